package client

import (
	"context"
	"errors"
	"fmt"

	"treadle/codec/dwork"
	"treadle/loop/dwork/zmq"
)

// Errors for a hub's replies.
var (
	// ErrNoTask reports that no task is ready, or that a task or location is unknown.
	ErrNoTask = errors.New("not found")
	// ErrAllDone reports that no task is left, or that the server is stopping.
	ErrAllDone = errors.New("the hub says that all is done")
	// ErrNotZeroMQ reports a peer whose bytes are not ZeroMQ's.
	ErrNotZeroMQ = errors.New("the peer does not speak ZeroMQ")
	// ErrHubRefused is the reply Error. The hub's log has the reason.
	ErrHubRefused = errors.New("the hub refused the request: its log says why")
)

// DworkTask is a task of Create, Transfer and Steal. Its texts may be any bytes.
type DworkTask struct {
	Name, Origin string
	After        []string
}

// DworkInfo is the result of Lookup.
type DworkInfo struct {
	DworkTask
	Before   []string
	Log      []dwork.LogEntry
	Location string // the worker that holds the task
}

// HubClient is a client of the dwork protocol. One goroutine at a time may use it.
type HubClient struct {
	conn *zmq.Client
	out  []byte
	part []byte
	q    dwork.Query
}

// hubSetting names a hub on the command line.
const hubSetting = "-H or TREADLE_DWORK"

// DialHub connects to the hub at an address as Dial does. Connecting takes at most 10 s, or less by
// ctx. After DialHub the connection does not depend on ctx.
func DialHub(ctx context.Context, address string) (*HubClient, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, name, err := connectTo(ctx, address, hubSetting)
	if err != nil {
		return nil, err
	}
	c, err := zmq.NewClient(ctx, nc)
	if err != nil {
		if err = simplify(err); !errors.Is(err, ErrClosed) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			err = ErrNotZeroMQ
		}
		return nil, newPeerError(name, hubSetting, err)
	}
	return &HubClient{conn: c}, nil
}

// Close closes the connection.
func (h *HubClient) Close() { _ = h.conn.Close() } // nothing is left to send

// ask sends the request in h.out and decodes the reply into h.q.
func (h *HubClient) ask(ctx context.Context) error {
	reply, err := h.conn.Request(ctx, h.out)
	if err != nil {
		return mapEOF(simplify(err))
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

func (h *HubClient) begin(t dwork.Type) { h.out = dwork.AppendType(h.out[:0], t) }

func (h *HubClient) tasks(tasks []DworkTask) {
	for _, t := range tasks {
		h.part = h.part[:0]
		for _, name := range t.After {
			h.part = dwork.AppendPred(h.part, dwork.Dep{Name: []byte(name)})
		}
		h.out = dwork.AppendTask(h.out, []byte(t.Name), []byte(t.Origin), h.part)
	}
}

// Create adds tasks, or adds dependencies to existing ones: all of them or none.
func (h *HubClient) Create(ctx context.Context, tasks ...DworkTask) error {
	h.begin(dwork.Create)
	h.tasks(tasks)
	return h.ask(ctx)
}

// Steal asks for up to n ready tasks. ErrNoTask: none is ready. ErrAllDone: none is left.
func (h *HubClient) Steal(ctx context.Context, location string, n int32) ([]DworkTask, error) {
	h.begin(dwork.Steal)
	h.out = dwork.AppendN(h.out, n)
	h.out = dwork.AppendLocation(h.out, []byte(location))
	if err := h.ask(ctx); err != nil {
		return nil, err
	}
	return h.replyTasks(), nil
}

// replyTasks copies the reply's tasks.
func (h *HubClient) replyTasks() []DworkTask {
	all := make([]DworkTask, 0, h.q.Count)
	for t := range h.q.Tasks {
		all = append(all, DworkTask{Name: string(t.Name), Origin: string(t.Origin)})
	}
	return all
}

// Complete reports tasks as done. With ErrNoTask it returns the tasks that no worker holds or, on a
// strict hub, that location does not hold; the other tasks are done.
func (h *HubClient) Complete(ctx context.Context, location string, tasks ...DworkTask) (missing []DworkTask, err error) {
	h.begin(dwork.Complete)
	h.tasks(tasks)
	h.out = dwork.AppendLocation(h.out, []byte(location))
	if err = h.ask(ctx); errors.Is(err, ErrNoTask) {
		missing = h.replyTasks()
	}
	return missing, err
}

// Transfer gives tasks back, with more dependencies. ErrNoTask: location does not hold one of them,
// and nothing changes.
func (h *HubClient) Transfer(ctx context.Context, location string, tasks ...DworkTask) error {
	h.begin(dwork.Transfer)
	h.tasks(tasks)
	h.out = dwork.AppendLocation(h.out, []byte(location))
	return h.ask(ctx)
}

// Exit makes all tasks of a location ready again. ErrNoTask: the location is unknown.
func (h *HubClient) Exit(ctx context.Context, location string) error {
	h.begin(dwork.Exit)
	h.out = dwork.AppendLocation(h.out, []byte(location))
	return h.ask(ctx)
}

// Lookup returns a task.
func (h *HubClient) Lookup(ctx context.Context, name string) (info DworkInfo, err error) {
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

// Status returns the hub's status text and the number of ready tasks.
func (h *HubClient) Status(ctx context.Context) (text string, ready int, err error) {
	h.begin(dwork.OK)
	if err := h.ask(ctx); err != nil {
		return "", 0, err
	}
	return string(h.q.Name), int(h.q.N), nil
}
