package load

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// backlogToken marks the events that tell the producers to continue.
	backlogToken = -2
	// backlogFactor bounds the jobs waiting in the server, in requests in flight.
	backlogFactor = 4
	// backlogLeast is the least bound: one producer on one connection would stop all the time.
	backlogLeast = 64
)

// backlog is back-pressure on producers that are faster than the workers. They stop when the server's queue holds the
// limit, and continue when half of it is gone. Without it a closed loop measures a queue that grows all through the
// run, and some peers become ten times slower by chance. Long queues have rows of their own.
//
// The producers' pump and the workers' pump both use it.
type backlog struct {
	limit  int
	taken  atomic.Int64 // jobs that arrived at workers
	wakeAt atomic.Int64 // producers wait for this many to have arrived; 0: nobody waits
	bell   int          // an eventfd in the producers' pump
}

// newBacklog adds the bell to the producers' pump. After an error close is due, too.
func newBacklog(p *pump, l Load) (*backlog, error) {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot create an event: %w", err)
	}
	inFlight := l.Connections
	if l.Functions > 0 { // many workers, and a queue each: let them find more than one job at a time
		inFlight = max(inFlight, l.Workers)
	}
	p.backlog = &backlog{limit: max(backlogLeast, backlogFactor*inFlight*l.Depth), bell: bell}
	return p.backlog, p.watch(unix.EPOLL_CTL_ADD, bell, backlogToken, unix.EPOLLIN)
}

func (b *backlog) close() {
	if b != nil {
		_ = unix.Close(b.bell)
	}
}

// room returns the number of jobs that may be submitted now, after the given number.
func (b *backlog) room(submitted int) int {
	if b == nil {
		return math.MaxInt
	}
	return b.limit - (submitted - int(b.taken.Load()))
}

// wait orders the bell for the moment when half of the backlog is gone. It reports false when that is past.
func (b *backlog) wait(submitted int) bool {
	at := int64(submitted - b.limit/2)
	b.wakeAt.Store(at)
	// The workers read wakeAt after they have set taken, so one of the two sides sees the other.
	if b.taken.Load() < at {
		return true
	}
	b.wakeAt.Store(0)
	return false
}

// arrived sets the number of jobs that have arrived, and rings when the producers wait for it.
func (b *backlog) arrived(taken int) error {
	if b == nil {
		return nil
	}
	b.taken.Store(int64(taken))
	at := b.wakeAt.Load()
	if at == 0 || int64(taken) < at || !b.wakeAt.CompareAndSwap(at, 0) {
		return nil
	}
	if _, err := unix.Write(b.bell, binary.NativeEndian.AppendUint64(nil, 1)); err != nil {
		return fmt.Errorf("cannot wake the producers: %w", err)
	}
	return nil
}

// resume lets every producer of a pump fill its free slots.
func (b *backlog) resume(p *pump) error {
	var count [8]byte
	if _, err := unix.Read(b.bell, count[:]); err != nil {
		return nil // rung and answered before
	}
	for i, l := range p.connections {
		out := l.conversation.(*producer).fill(Now(), p.out[:0])
		if len(out) == 0 {
			continue
		}
		if err := p.send(l, i, out); err != nil {
			return err
		}
	}
	return nil
}
