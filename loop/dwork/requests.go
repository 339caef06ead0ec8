package dwork

import (
	"fmt"
	"log/slog"

	codec "treadle/codec/dwork"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Limits of requests and replies.
const (
	// maxReply ends a reply of many tasks at the likely frame limit of clients. A reply has at
	// least one task.
	maxReply = 16 << 20
	// maxParts bounds the dependencies and log entries of a request, with taskParts for each task,
	// since other requests wait meanwhile.
	maxParts  = 1 << 17
	taskParts = 4
	// maxNames bounds the predecessors, and the successors, that a Lookup shows.
	maxNames = 1 << 16
)

var errTooManyParts = fmt.Errorf("more than %d dependencies and log entries, or %d tasks: send fewer at a time", maxParts, maxParts/taskParts)

// decode sets the query, which keeps views of payload.
func (h *Protocol) decode(payload []byte) error { return codec.Decode(payload, &h.query) }

// answer appends the reply to the query. invalid is the error of decode; answer then refuses the
// request. With wait the reply may be sent only after the group is committed.
func (h *Protocol) answer(out []byte, invalid error) (_ []byte, group uint64, wait bool) {
	q := &h.query
	if invalid != nil {
		return h.refuse(out, invalid), 0, false
	}
	h.stats.requests[q.Type].Add(1)
	if h.stopping.Load() && !isReport(q.Type) {
		return h.answerStopping(out), 0, false
	}
	var err error
	switch q.Type {
	case codec.Create:
		err = h.create()
		wait = true
	case codec.Complete:
		out, err = h.complete(out)
		wait = true
	case codec.Transfer:
		out, err = h.transfer(out)
		wait = true
	case codec.Steal:
		out, err = h.steal(out)
	case codec.Exit:
		out = h.exit(out)
	case codec.Lookup:
		out = h.lookup(out)
	default:
		out = h.status(out)
	}
	if err != nil {
		return h.refuse(out, err), 0, false
	}
	if q.Type == codec.Create {
		out = codec.AppendType(out, codec.OK)
	}
	if wait {
		group, wait = h.host.Durable(queue)
	}
	return out, group, wait
}

// isReport is true for a request that ends tasks of its worker. A stopping hub still handles such a
// request, or finished tasks would be done again.
func isReport(t codec.Type) bool {
	return t == codec.Complete || t == codec.Transfer || t == codec.Exit
}

// answerStopping answers the other requests while the server stops. Exit ends a worker; after
// NotFound it asks again.
func (h *Protocol) answerStopping(out []byte) []byte {
	if h.query.Type == codec.Steal && h.o.Stop == answerNotFound {
		return codec.AppendType(out, codec.NotFound)
	}
	return codec.AppendType(out, codec.Exit)
}

// refuse answers Error and logs the reason.
func (h *Protocol) refuse(out []byte, why error) []byte {
	h.stats.refused.Add(1)
	h.host.LogLimited(slog.LevelInfo, "refusing a dwork request", "reason", why.Error())
	return codec.AppendType(out, codec.Error)
}

// readTasks returns the request's tasks for the scheduler, as views of the request.
func (h *Protocol) readTasks() ([]sched.Task, error) {
	h.tasks, h.preds, h.log = h.tasks[:0], h.preds[:0], h.log[:0]
	for t := range h.query.Tasks {
		preds, events := len(h.preds), len(h.log)
		for d := range t.Pred {
			h.preds = append(h.preds, d.Name)
		}
		for e := range t.Log {
			h.log = append(h.log, sched.Event{Stage: stageOf(e.State), Micros: e.Time})
		}
		// Postpone appends may move these slices, but leave the views of earlier tasks valid.
		h.tasks = append(h.tasks, sched.Task{
			Name: t.Name, Workload: t.Origin, After: h.preds[preds:len(h.preds):len(h.preds)], Log: h.log[events:len(h.log):len(h.log)],
		})
		if taskParts*len(h.tasks)+len(h.preds)+len(h.log) > maxParts {
			return nil, errTooManyParts
		}
	}
	return h.tasks, nil
}

// dropLargeBuffers drops the views of a large request.
func (h *Protocol) dropLargeBuffers() {
	if cap(h.tasks) > 1024 {
		h.tasks = nil
	}
	if cap(h.preds) > 1024 {
		h.preds = nil
	}
	if cap(h.log) > 1024 {
		h.log = nil
	}
}

// create handles Create: it adds the tasks of the request to the graph.
func (h *Protocol) create() error {
	if err := h.host.Refusing(); err != nil {
		h.host.Refused(name, protocol.ReasonOf(err))
		return err
	}
	defer h.dropLargeBuffers()
	tasks, err := h.readTasks()
	if err != nil {
		return err
	}
	return h.sched.Extend(h.now, Space, queue, tasks, h.sink)
}

// complete ends tasks. The answer names the tasks that no worker holds. When Options.Complete is holder, it names those
// that this worker does not hold.
func (h *Protocol) complete(out []byte) ([]byte, error) {
	defer h.dropLargeBuffers()
	w, tasks, err := h.workerAndTasks()
	if err != nil {
		return out, err
	}
	holder := w.peer
	if h.o.Complete != completeHolder {
		holder = nil
	}
	start := len(out)
	h.sched.Complete(h.now, holder, Space, queue, tasks, h.sink, func(i int) {
		if len(out) == start {
			out = codec.AppendType(out, codec.NotFound)
		}
		out = codec.AppendTask(out, tasks[i].Name, tasks[i].Workload)
	})
	if len(out) == start {
		out = codec.AppendType(out, codec.OK)
	}
	return out, nil
}

// workerAndTasks returns the worker and the tasks that a request names.
func (h *Protocol) workerAndTasks() (*worker, []sched.Task, error) {
	w, err := h.addWorker(h.query.Location)
	if err != nil {
		return nil, nil, err
	}
	tasks, err := h.readTasks()
	return w, tasks, err
}

// transfer handles Transfer: it returns a worker's tasks to the graph, with further predecessors, and appends the
// reply.
func (h *Protocol) transfer(out []byte) ([]byte, error) {
	defer h.dropLargeBuffers()
	w, tasks, err := h.workerAndTasks()
	if err != nil {
		return out, err
	}
	switch err := h.sched.Transfer(h.now, w.peer, Space, queue, tasks, h.sink); {
	case err == sched.ErrNotFound:
		return codec.AppendType(out, codec.NotFound), nil
	case err != nil:
		return out, err
	}
	return codec.AppendType(out, codec.OK), nil
}

// steal hands out ready tasks. It adds a worker with the worker's first task.
func (h *Protocol) steal(out []byte) ([]byte, error) {
	n := 1
	if h.query.HasN {
		n = int(h.query.N)
	}
	w, err := h.findWorker(h.query.Location)
	if err != nil {
		return out, err
	}
	start := len(out)
	h.sched.Steal(h.now, w.peer, queue, min(n, h.o.MaxSteal), h.sink, func(t *sched.TaskView) bool {
		if len(out) == start {
			out = codec.AppendType(out, codec.Transfer)
		}
		h.parts = appendLog(h.parts[:0], t.Log)
		out = codec.AppendTask(out, t.Name, t.Workload, h.parts)
		return len(out)-start < maxReply
	})
	if len(out) > start {
		h.workers[w.location] = w
		return out, nil
	}
	if active, _ := h.sched.Backlog(queue); active == 0 && h.o.Idle != answerNotFound {
		return codec.AppendType(out, codec.Exit), nil
	}
	return codec.AppendType(out, codec.NotFound), nil
}

func (h *Protocol) exit(out []byte) []byte {
	w := h.workers[string(h.query.Location)]
	if w == nil {
		return codec.AppendType(out, codec.NotFound)
	}
	h.removeWorker(w)
	return codec.AppendType(out, codec.OK)
}

func (h *Protocol) status(out []byte) []byte {
	active, ready := h.sched.Backlog(queue)
	out = codec.AppendType(out, codec.OK)
	out = codec.AppendName(out, fmt.Appendf(h.parts[:0], "dhub: %d active tasks, %d ready.", active, ready))
	return codec.AppendN(out, int32(ready)) // far fewer fit in memory than an int32 counts
}

// lookup answers with a task: its predecessors, successors, log and worker.
func (h *Protocol) lookup(out []byte) []byte {
	found := h.sched.LookupTask(Space, queue, h.query.Name, func(t *sched.TaskView) {
		parts, names := h.parts[:0], 0
		for name := range t.After() {
			parts = codec.AppendPred(parts, codec.Dep{Name: name})
			if names++; names == maxNames || len(parts) > maxReply {
				break
			}
		}
		names = 0
		for name := range t.Before() {
			parts = codec.AppendSucc(parts, codec.Dep{Name: name})
			if names++; names == maxNames || len(parts) > maxReply {
				break
			}
		}
		h.parts = appendLog(parts, t.Log)
		out = codec.AppendType(out, codec.OK)
		out = codec.AppendTask(out, t.Name, t.Workload, h.parts)
		if t.Stage == sched.StageReserved {
			location := t.Holder
			if t.By != 0 {
				location = fmt.Sprintf("%s:%d", location, t.By)
			}
			out = codec.AppendLocation(out, []byte(location))
		}
	})
	if cap(h.parts) > maxReply/16 {
		h.parts = nil
	}
	if !found {
		out = codec.AppendType(out, codec.NotFound)
	}
	return out
}

func appendLog(parts []byte, log []sched.Event) []byte {
	for _, e := range log {
		parts = codec.AppendLog(parts, codec.LogEntry{State: stateOf(e.Stage), Time: e.Micros})
	}
	return parts
}
