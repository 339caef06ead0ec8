package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"treadle/codec/dwork"
	"treadle/loop/dwork/zmq"
)

const (
	// createBlock is how many tasks a producer sends at a time.
	createBlock = 16
	// taskName has room for the number of a task.
	taskName = "task-00000000"
	// echoVariant is no job server: it sends back what it gets, over the same sockets.
	echoVariant = "echo"
)

// dworkRows are measured on tasks that wait for nothing, made before the clock starts.
func dworkRows() []row {
	jobs := func(memory, durable, echo int) map[string]int {
		return map[string]int{"treadle": memory, "treadle always": durable, "zmq echo": echo}
	}
	hub := func(name string, workers, n int, guess map[string]int) row {
		return row{name: name, section: dworkSection, variants: []string{synced, echoVariant}, load: load{workers: workers, depth: n}, guess: guess}
	}
	return []row{
		hub("dwork create", 0, createBlock, jobs(400e3, 60e3, 400e3)),
		hub("dwork 1x1", 1, 1, jobs(20e3, 3e3, 20e3)),
		hub("dwork 8x1", 8, 1, jobs(50e3, 15e3, 50e3)),
		hub("dwork 1x16", 1, 16, jobs(200e3, 40e3, 200e3)),
		{name: reqRow, section: dworkSection, variants: []string{synced}, load: load{workers: 8, depth: 1, libzmq: true}, guess: jobs(20e3, 6e3, 0)},
		hub("dwork 8x16", 8, 16, jobs(600e3, 200e3, 600e3)),
	}
}

// admitsHub says who takes part in the rows of the dwork protocol: Treadle in memory and with a synced journal, and, as
// the limit of the sockets, the echo.
func (r row) admitsHub(c contender) bool {
	if r.load.libzmq && (!hasLibzmq() || c.variant == echoVariant) {
		return false
	}
	return c.name == "treadle" || r.section == dworkSection && (c.name == "treadle always" || c.variant == echoVariant)
}

// hubTrial is a load on one hub.
type hubTrial struct {
	address string
	echo    bool
	n       int
	arrived []atomic.Uint32 // by task: how often it was handed out
	done    atomic.Int64    // tasks completed
	mu      sync.Mutex
	latency *latencies // of steals
}

// measureHub takes one sample over the dwork protocol.
func (s *sample) measureHub(ctx context.Context, r row, c contender, running *server, size int) error {
	h := &hubTrial{address: running.hub, echo: c.variant == echoVariant, n: r.load.depth, arrived: make([]atomic.Uint32, size), latency: newLatencies()}
	// A trial that stands still ends.
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	creating := r.load.workers == 0
	phase := func() error { return h.create(ctx) }
	if !creating {
		if !h.echo {
			if err := h.create(ctx); err != nil {
				return err
			}
		}
		phase = func() error { return h.work(ctx, r.load.workers) }
	}
	if r.load.libzmq {
		of, clean, err := h.measureREQ(ctx, r.load.workers)
		if err != nil {
			return err
		}
		defer clean()
		phase, h.latency = of, newLatencies()
	}
	before, err := readMeter(running.pid)
	if err != nil {
		return err
	}
	start := now()
	if err := phase(); err != nil {
		return err
	}
	elapsed := now() - start
	after, err := readMeter(running.pid)
	if err != nil {
		return err
	}
	perMillion := func(spent time.Duration) float64 { return spent.Seconds() * 1e6 / float64(size) }
	s.Jobs, s.JobsPerSecond = size, float64(size)*1e9/float64(elapsed)
	s.ServerCPU, s.DriverCPU = perMillion(after.server-before.server), perMillion(after.driver-before.driver)
	s.Submit = h.latency.quantiles()
	return h.check(creating || r.load.libzmq)
}

// dial connects; the connection fails when ctx ends.
func (h *hubTrial) dial(ctx context.Context) (*zmq.Client, func(), error) {
	dialing, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	c, err := zmq.Dial(dialing, h.address)
	if err != nil {
		return nil, nil, err
	}
	release := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return c, func() { release(); _ = c.Close() }, nil
}

// appendTasks appends the tasks from first to last, the last one not included.
func appendTasks(out []byte, first, last int) []byte {
	for i := first; i < last; i++ {
		out = dwork.AppendTask(out, fmt.Appendf(nil, taskName[:5]+"%08d", i), []byte("bench"))
	}
	return out
}

// create makes all tasks, a block a request.
func (h *hubTrial) create(ctx context.Context) error {
	c, release, err := h.dial(ctx)
	if err != nil {
		return err
	}
	defer release()
	var out []byte
	for i := 0; i < len(h.arrived); i += createBlock {
		out = appendTasks(dwork.AppendType(out[:0], dwork.Create), i, min(i+createBlock, len(h.arrived)))
		began := now()
		reply, err := exchange(c, out)
		if err != nil {
			return err
		}
		h.latency.record(now() - began)
		if !h.echo && string(reply) != string(dwork.AppendType(nil, dwork.OK)) {
			return fmt.Errorf("create was answered %x", reply)
		}
	}
	return nil
}

func exchange(c *zmq.Client, out []byte) ([]byte, error) {
	c.Send(out)
	if err := c.Flush(); err != nil {
		return nil, err
	}
	return c.Recv()
}

// work has the workers take and complete all tasks.
func (h *hubTrial) work(ctx context.Context, workers int) error {
	h.latency = newLatencies()
	var all sync.WaitGroup
	failed := make([]error, workers)
	for i := range workers {
		all.Go(func() { failed[i] = h.worker(ctx, fmt.Sprintf("worker-%d", i)) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// worker steals and completes until no task is left. The echo is sent the same two requests.
func (h *hubTrial) worker(ctx context.Context, location string) error {
	c, release, err := h.dial(ctx)
	if err != nil {
		return err
	}
	defer release()
	own := newLatencies()
	defer func() {
		own.flush()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.latency.histogram.Merge(own.histogram)
	}()
	steal := dwork.AppendLocation(dwork.AppendN(dwork.AppendType(nil, dwork.Steal), int32(h.n)), []byte(location))
	var q dwork.Query
	var out []byte
	for {
		began := now()
		reply, err := exchange(c, steal)
		if err != nil {
			return err
		}
		own.record(now() - began)
		if h.echo {
			out = dwork.AppendLocation(appendTasks(dwork.AppendType(out[:0], dwork.Complete), 0, h.n), []byte(location))
			if _, err := exchange(c, out); err != nil || h.done.Add(int64(h.n)) >= int64(len(h.arrived)) {
				return err
			}
			continue
		}
		if err := dwork.DecodeReply(reply, &q); err != nil {
			return err
		}
		switch q.Type {
		case dwork.Exit:
			return nil
		case dwork.NotFound: // the last ones are in others' hands
			continue
		case dwork.Transfer:
		default:
			return fmt.Errorf("steal was answered %v", q.Type)
		}
		out = dwork.AppendType(out[:0], dwork.Complete)
		for t := range q.Tasks {
			if err := h.count(t.Name); err != nil {
				return err
			}
			out = dwork.AppendTask(out, t.Name, t.Origin)
		}
		if reply, err = exchange(c, dwork.AppendLocation(out, []byte(location))); err != nil {
			return err
		}
		if string(reply) != string(dwork.AppendType(nil, dwork.OK)) {
			return fmt.Errorf("complete was answered %x", reply)
		}
	}
}

// count notes that a task arrived.
func (h *hubTrial) count(name []byte) error {
	i := 0
	for _, digit := range name[min(len(taskName)-8, len(name)):] {
		i = i*10 + int(digit-'0')
	}
	if len(name) != len(taskName) || i < 0 || i >= len(h.arrived) {
		return fmt.Errorf("a task %q was handed out that nobody made", name)
	}
	h.arrived[i].Add(1)
	return nil
}

// check says whether every task arrived exactly once, unless none was counted here.
func (h *hubTrial) check(uncounted bool) error {
	if uncounted || h.echo {
		return nil
	}
	for i := range h.arrived {
		if n := h.arrived[i].Load(); n != 1 {
			return fmt.Errorf("task %d was handed out %d times", i, n)
		}
	}
	return nil
}

// echoContender is this program itself, run as an echo.
func echoContender() (contender, error) {
	self, err := os.Executable()
	if err != nil {
		return contender{}, err
	}
	return contender{name: "zmq echo", variant: echoVariant, start: command{path: self, arguments: func(ports [portCount]string, _ string) []string {
		return []string{"-echo", "127.0.0.1:" + ports[0]}
	}}.start}, nil
}

// echo sends back every request until ctx ends.
func echo(ctx context.Context, address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	l := zmq.Listen(ln, zmq.Options{})
	var batch []zmq.Request
	for {
		select {
		case <-ctx.Done():
			return l.Close()
		case <-l.Ready():
			batch = l.Take(batch[:0])
			for _, r := range batch {
				r.Reply(r.Payload)
			}
		}
	}
}
