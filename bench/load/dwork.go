package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"treadle/codec/dwork"
	"treadle/loop/dwork/zmq"
)

const (
	// CreateBlock is how many tasks a producer sends at a time.
	CreateBlock = 16
	// taskPrefix and eight digits are a task's name.
	taskPrefix = "task-"
	taskDigits = 8
)

// Hub is a load on one hub of the dwork protocol, or on an echo, which is sent the same requests. Its tasks wait for
// nothing.
type Hub struct {
	address string
	echo    bool
	n       int             // tasks a Steal
	arrived []atomic.Uint32 // by task: how often it was handed out
	done    atomic.Int64    // tasks completed
	mu      sync.Mutex
	latency *Latencies
}

// NewHub is a load of so many tasks, n of which are stolen at a time.
func NewHub(address string, echo bool, tasks, n int) *Hub {
	return &Hub{address: address, echo: echo, n: n, arrived: make([]atomic.Uint32, tasks), latency: NewLatencies()}
}

// Found returns the latencies of the latest Create or Work: of creating requests, or of steals.
func (h *Hub) Found() Found { return Found{Submit: h.latency.Quantiles()} }

// dial connects; the connection fails when ctx ends.
func (h *Hub) dial(ctx context.Context) (*zmq.Client, func(), error) {
	dialing, cancel := context.WithTimeout(ctx, DialLimit)
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
		out = dwork.AppendTask(out, fmt.Appendf(nil, taskPrefix+"%0*d", taskDigits, i), []byte("bench"))
	}
	return out
}

// Create makes all tasks, a block a request.
func (h *Hub) Create(ctx context.Context) error {
	c, release, err := h.dial(ctx)
	if err != nil {
		return err
	}
	defer release()
	var out []byte
	for i := 0; i < len(h.arrived); i += CreateBlock {
		out = appendTasks(dwork.AppendType(out[:0], dwork.Create), i, min(i+CreateBlock, len(h.arrived)))
		began := Now()
		reply, err := exchange(c, out)
		if err != nil {
			return err
		}
		h.latency.Record(Now() - began)
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

// Work has the workers take and complete all tasks.
func (h *Hub) Work(ctx context.Context, workers int) error {
	h.latency = NewLatencies()
	return Parallel(workers, func(i int) error { return h.worker(ctx, workerName(i)) })
}

func workerName(i int) string { return fmt.Sprintf("worker-%d", i) }

// Parallel runs work n times at once, and joins the errors.
func Parallel(n int, work func(i int) error) error {
	var all sync.WaitGroup
	failed := make([]error, n)
	for i := range n {
		all.Go(func() { failed[i] = work(i) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// worker steals and completes until no task is left. The echo is sent the same two requests.
func (h *Hub) worker(ctx context.Context, location string) error {
	c, release, err := h.dial(ctx)
	if err != nil {
		return err
	}
	defer release()
	own := NewLatencies()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.latency.merge(own)
	}()
	steal := dwork.AppendLocation(dwork.AppendN(dwork.AppendType(nil, dwork.Steal), int32(h.n)), []byte(location))
	var q dwork.Query
	var out []byte
	for {
		began := Now()
		reply, err := exchange(c, steal)
		if err != nil {
			return err
		}
		own.Record(Now() - began)
		out = dwork.AppendType(out[:0], dwork.Complete)
		if h.echo {
			out = dwork.AppendLocation(appendTasks(out, 0, h.n), []byte(location))
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
func (h *Hub) count(name []byte) error {
	i := 0
	for _, digit := range name[min(len(taskPrefix), len(name)):] {
		i = i*10 + int(digit-'0')
	}
	if len(name) != len(taskPrefix)+taskDigits || i < 0 || i >= len(h.arrived) {
		return fmt.Errorf("a task %q was handed out that nobody made", name)
	}
	h.arrived[i].Add(1)
	return nil
}

// Check says whether Work had every task handed out exactly once.
func (h *Hub) Check() error {
	for i := range h.arrived {
		if n := h.arrived[i].Load(); n != 1 && !h.echo {
			return fmt.Errorf("task %d was handed out %d times", i, n)
		}
	}
	return nil
}
