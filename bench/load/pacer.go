package load

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pacerToken marks the events of the pacer's timer; connections count from 0.
	pacerToken = -1
	// pacerLead is how long before a job is due the timer wakes the pump, which then waits busily: waking a sleeping
	// core takes tens of microseconds, and they would be counted as the server's.
	pacerLead = 100 * time.Microsecond
)

// pacer submits jobs at a fixed rate, independent of the server: an open loop. Each job carries the time when it was
// due, so the latencies of a server that falls behind include the wait of all jobs behind.
type pacer struct {
	timer    int
	side     *producerSide
	start    int64
	interval int64
}

// newPacer adds a timer to a pump whose conversations are all paced producers. After an error close is due, too.
func newPacer(p *pump, s *producerSide, rate int) (*pacer, error) {
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot create a timer: %w", err)
	}
	p.pacer = &pacer{timer: timer, side: s, interval: int64(time.Second) / int64(rate)}
	return p.pacer, p.watch(unix.EPOLL_CTL_ADD, timer, pacerToken, unix.EPOLLIN)
}

func (c *pacer) close() {
	if c != nil {
		_ = unix.Close(c.timer)
	}
}

// begin makes the first job due one interval from now.
func (c *pacer) begin() error {
	c.start = Now() + c.interval
	return c.arm()
}

// due is when the next job is to be submitted.
func (c *pacer) due() int64 { return c.start + int64(c.side.next)*c.interval }

// arm sets the timer for the next job, or stops it behind the last one.
func (c *pacer) arm() error {
	var setting unix.ItimerSpec
	if c.side.next < c.side.jobs {
		wait := max(1, c.due()-Now()-int64(pacerLead))
		setting.Value = unix.NsecToTimespec(wait)
	}
	if err := unix.TimerfdSettime(c.timer, 0, &setting, nil); err != nil {
		return fmt.Errorf("cannot set the timer: %w", err)
	}
	return nil
}

// fire submits every job that is due, each on the next connection in turn, and sets the timer again. A paced producer
// has a slot for each of its jobs, so no job waits for the answer to another.
func (c *pacer) fire(p *pump) error {
	due := c.due()
	for Now() < due {
	}
	for c.side.next < c.side.jobs && c.due() <= Now() {
		index, slot := c.side.next%len(p.connections), c.side.next/len(p.connections)
		l := p.connections[index]
		out := l.conversation.(*producer).submitNext(c.due(), slot, p.out[:0])
		if err := p.send(l, index, out); err != nil {
			return err
		}
	}
	return c.arm()
}
