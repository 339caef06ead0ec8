package client

import (
	"context"
	"errors"
	"fmt"

	"treadle/codec/dwork"
	"treadle/loop/dwork/zmq"
)

// Answers of a hub that are no failure of the request.
var (
	// ErrNoTask: no task is ready, or what was named is not known.
	ErrNoTask = errors.New("not found")
	// ErrAllDone: no task is left, or the server is stopping.
	ErrAllDone = errors.New("the hub says that all is done")
	// ErrNotZeroMQ is a peer whose bytes are not those of ZeroMQ.
	ErrNotZeroMQ = errors.New("what answers there does not speak ZeroMQ")
	// ErrHubRefused: the hub answered Error; why stands in its log.
	ErrHubRefused = errors.New("the hub refused the request: its log says why")
)

// DworkTask is a task as Create, Transfer and Steal know it. Its texts are any bytes.
type DworkTask struct {
	Name, Origin string
	After        []string
}

// DworkInfo is what Lookup says of a task.
type DworkInfo struct {
	DworkTask
	Before   []string
	Log      []dwork.LogEntry
	Location string // the worker that it is assigned to
}

// Hub is a client of the dwork protocol. It is for one goroutine.
type Hub struct {
	conn *zmq.Client
	out  []byte
	part []byte
	q    dwork.Query
}

// hubSetting names a hub on the command line.
const hubSetting = "-H or TREADLE_DWORK"

// DialHub connects to the hub at an address of the form that Dial takes. Connecting takes
// at most 10 s, or less by ctx; the connection itself does not depend on ctx afterwards.
func DialHub(ctx context.Context, address string) (*Hub, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, name, err := reach(ctx, address, hubSetting)
	if err != nil {
		return nil, err
	}
	c, err := zmq.NewClient(ctx, nc)
	if err != nil {
		if err = plain(err); !errors.Is(err, ErrClosed) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			err = ErrNotZeroMQ
		}
		return nil, unheard(name, hubSetting, err)
	}
	return &Hub{conn: c}, nil
}

// Close ends the connection.
func (h *Hub) Close() { _ = h.conn.Close() } // nothing is left to send

// ask sends what begins h.out and reads the reply to h.q.
func (h *Hub) ask(ctx context.Context) error {
	reply, err := h.conn.Request(ctx, h.out)
	if err != nil {
		return ending(plain(err))
	}
	if err := dwork.DecodeReply(reply, &h.q); err != nil {
		return fmt.Errorf("the hub's reply: %w", err)
	}
	switch h.q.Type {
	case dwork.Error:
		return ErrHubRefused
	case dwork.Exit:
		return ErrAllDone
	case dwork.NotFound:
		return ErrNoTask
	}
	return nil
}

func (h *Hub) begin(t dwork.Type) { h.out = dwork.AppendType(h.out[:0], t) }

func (h *Hub) tasks(tasks []DworkTask) {
	for _, t := range tasks {
		h.part = h.part[:0]
		for _, name := range t.After {
			h.part = dwork.AppendPred(h.part, dwork.Dep{Name: []byte(name)})
		}
		h.out = dwork.AppendTask(h.out, []byte(t.Name), []byte(t.Origin), h.part)
	}
}

// Create adds tasks, or dependencies to those that are there: all of it or nothing.
func (h *Hub) Create(ctx context.Context, tasks ...DworkTask) error {
	h.begin(dwork.Create)
	h.tasks(tasks)
	return h.ask(ctx)
}

// Steal asks for up to n ready tasks. ErrNoTask: none is ready; ErrAllDone: none is left.
func (h *Hub) Steal(ctx context.Context, location string, n int32) ([]DworkTask, error) {
	h.begin(dwork.Steal)
	h.out = dwork.AppendN(h.out, n)
	h.out = dwork.AppendLocation(h.out, []byte(location))
	if err := h.ask(ctx); err != nil {
		return nil, err
	}
	return h.taken(), nil
}

// taken copies the reply's tasks.
func (h *Hub) taken() []DworkTask {
	all := make([]DworkTask, 0, h.q.Count)
	for t := range h.q.Tasks {
		all = append(all, DworkTask{Name: string(t.Name), Origin: string(t.Origin)})
	}
	return all
}

// Complete says that tasks are done. With ErrNoTask come those that no worker holds, or, if the hub
// is strict, that the location does not; the others are done.
func (h *Hub) Complete(ctx context.Context, location string, tasks ...DworkTask) (missing []DworkTask, err error) {
	h.begin(dwork.Complete)
	h.tasks(tasks)
	h.out = dwork.AppendLocation(h.out, []byte(location))
	if err = h.ask(ctx); errors.Is(err, ErrNoTask) {
		missing = h.taken()
	}
	return missing, err
}

// Transfer gives tasks back, with more dependencies. ErrNoTask: the location does not
// hold one of them, and nothing is done.
func (h *Hub) Transfer(ctx context.Context, location string, tasks ...DworkTask) error {
	h.begin(dwork.Transfer)
	h.tasks(tasks)
	h.out = dwork.AppendLocation(h.out, []byte(location))
	return h.ask(ctx)
}

// Exit has all tasks of a location ready again. ErrNoTask: it is not known.
func (h *Hub) Exit(ctx context.Context, location string) error {
	h.begin(dwork.Exit)
	h.out = dwork.AppendLocation(h.out, []byte(location))
	return h.ask(ctx)
}

// Lookup shows a task.
func (h *Hub) Lookup(ctx context.Context, name string) (info DworkInfo, err error) {
	h.begin(dwork.Lookup)
	h.out = dwork.AppendName(h.out, []byte(name))
	if err := h.ask(ctx); err != nil {
		return info, err
	}
	for t := range h.q.Tasks {
		info.Name, info.Origin = string(t.Name), string(t.Origin)
		for d := range t.Pred {
			info.After = append(info.After, string(d.Name))
		}
		for d := range t.Succ {
			info.Before = append(info.Before, string(d.Name))
		}
		for e := range t.Log {
			info.Log = append(info.Log, e)
		}
	}
	info.Location = string(h.q.Location)
	return info, nil
}

// Status returns the hub's own words and how many tasks are ready.
func (h *Hub) Status(ctx context.Context) (text string, ready int, err error) {
	h.begin(dwork.OK)
	if err := h.ask(ctx); err != nil {
		return "", 0, err
	}
	return string(h.q.Name), int(h.q.N), nil
}
