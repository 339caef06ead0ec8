package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// DworkLoad is a load on one hub of the dwork protocol. Its tasks wait for nothing.
type DworkLoad struct {
	address string
	tasks   int
	n       int          // tasks a Steal
	done    atomic.Int64 // tasks completed
	mu      sync.Mutex   // guards what follows
	arrived *checker
	latency *Latencies
}

// NewDworkLoad returns a load of tasks, n of which are stolen at a time.
func NewDworkLoad(address string, tasks, n int) *DworkLoad {
	return &DworkLoad{address: address, tasks: tasks, n: n, arrived: newChecker(tasks), latency: NewLatencies()}
}

// Latency returns the latencies of the latest Create or Work: of creating requests, or of steals.
func (h *DworkLoad) Latency() Quantiles { return h.latency.Quantiles() }

// dial connects; the connection fails when ctx ends.
func (h *DworkLoad) dial(ctx context.Context) (*zmq.Client, func(), error) {
	dialing, cancel := context.WithTimeout(ctx, DialLimit)
	defer cancel()
	c, err := zmq.Dial(dialing, h.address)
	if err != nil {
		return nil, nil, err
	}
	release := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return c, func() { release(); _ = c.Close() }, nil
}

// Create makes all tasks, a block a request.
func (h *DworkLoad) Create(ctx context.Context) error {
	c, release, err := h.dial(ctx)
	if err != nil {
		return err
	}
	defer release()
	var out []byte
	for i := 0; i < h.tasks; i += CreateBlock {
		out = dwork.AppendType(out[:0], dwork.Create)
		for task := i; task < min(i+CreateBlock, h.tasks); task++ {
			out = dwork.AppendTask(out, fmt.Appendf(nil, taskPrefix+"%0*d", taskDigits, task), []byte("bench"))
		}
		began := Now()
		if err := h.change(c, out); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		h.latency.Record(Now() - began)
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

// change sends a request that the hub answers with OK.
func (h *DworkLoad) change(c *zmq.Client, out []byte) error {
	reply, err := exchange(c, out)
	if err == nil && string(reply) != string(dwork.AppendType(nil, dwork.OK)) {
		err = fmt.Errorf("%w: %x in place of OK", ErrMalformed, reply)
	}
	return err
}

// Work has the workers take and complete all tasks, each once.
func (h *DworkLoad) Work(ctx context.Context, workers int) error {
	h.latency = NewLatencies()
	if err := Parallel(workers, func(i int) error { return h.worker(ctx, workerName(i)) }); err != nil {
		return err
	}
	return h.arrived.check()
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

// worker steals and completes until no task is left.
func (h *DworkLoad) worker(ctx context.Context, location string) error {
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
		if err := dwork.DecodeReply(reply, &q); err != nil {
			return err
		}
		switch q.Type {
		case dwork.Exit:
			return nil
		case dwork.NotFound: // other workers hold the last tasks
			continue
		case dwork.Transfer:
		default:
			return fmt.Errorf("steal was answered %v", q.Type)
		}
		if out, err = h.take(&q, out); err != nil {
			return err
		}
		if err := h.change(c, dwork.AppendLocation(out, []byte(location))); err != nil {
			return fmt.Errorf("complete: %w", err)
		}
	}
}

// take notes the tasks of a reply, and appends them to a completion.
func (h *DworkLoad) take(q *dwork.Query, out []byte) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t := range q.Tasks {
		number, ok := strings.CutPrefix(string(t.Name), taskPrefix)
		id, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil {
			return out, fmt.Errorf("a task %q was handed out that nobody made", t.Name)
		}
		if err := h.arrived.take(id); err != nil {
			return out, err
		}
		out = dwork.AppendTask(out, t.Name, t.Origin)
	}
	return out, nil
}
