package dwork

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	codec "treadle/codec/dwork"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Bounds of the conversation.
const (
	// maxReply ends a reply of many tasks: what a client's own limit on frames is
	// likely to be. At least one task is always sent.
	maxReply = 16 << 20
	// maxParts bounds what a request has: what its tasks wait for, their logs, and the tasks
	// themselves, each of which counts as taskParts: nobody else is answered meanwhile.
	maxParts  = 1 << 17
	taskParts = 4
	// maxNames bounds the predecessors and the successors that a Lookup shows: very many may
	// wait for a task, and each is looked for.
	maxNames = 1 << 16
	// maxLocations bounds the workers known at a time; each takes about 300 bytes and its name.
	maxLocations = 1 << 20
	// maxLocation is the length of such a name in bytes: the journal has it with each task that
	// the worker holds. A host's name has at most 255.
	maxLocation = 1 << 10
)

var (
	errLocations = errors.New("too many workers are known: have some exit")
	errLocation  = fmt.Errorf("a location of more than %d bytes", maxLocation)
	errParts     = fmt.Errorf("more than %d dependencies and log entries, or %d tasks: send fewer at a time", maxParts, maxParts/taskParts)
)

// worker is a worker that is known by its location.
type worker struct {
	location string
	peer     *sched.Peer
	seen     int64 // Mono of its last request
}

// Holder implements protocol.Holders: the name is a worker's location.
func (h *Hub) Holder(location string) *sched.Peer {
	if h.o.Release {
		return nil
	}
	h.now = h.host.Now() // nobody could give a sign of life before
	w, err := h.known([]byte(location))
	if err != nil {
		return nil
	}
	return w.peer
}

// known returns the worker of a location, known from now on.
func (h *Hub) known(location []byte) (*worker, error) {
	w, err := h.workerAt(location)
	if err == nil {
		h.workers[w.location] = w
	}
	return w, err
}

// workerAt returns the worker of a location, which is not known yet if it is new.
func (h *Hub) workerAt(location []byte) (*worker, error) {
	w := h.workers[string(location)]
	if w == nil {
		switch {
		case len(h.workers) >= maxLocations:
			return nil, errLocations
		case len(location) > maxLocation:
			return nil, errLocation
		}
		w = &worker{location: string(location)}
		w.peer = h.sched.NewHolder(w.location)
	}
	w.seen = h.now.Mono
	return w, nil
}

// forget gives what a known worker holds back.
func (h *Hub) forget(w *worker) {
	delete(h.workers, w.location)
	h.sched.Forget(h.now, w.peer, h.sink)
	h.gaveBack = true
}

// read sets the query to a request, of which it keeps views. The error says what is wrong with it.
func (h *Hub) read(payload []byte) error { return codec.Decode(payload, &h.query) }

// answer appends the reply to the request that was read, with what was wrong with it. With wait it
// may be sent only after the group is committed.
func (h *Hub) answer(out []byte, wrong error) (_ []byte, group uint64, wait bool) {
	q := &h.query
	if wrong != nil {
		return h.refuse(out, wrong), 0, false
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

// isReport says whether a request tells what became of tasks. A hub that stops takes it still: a
// finished task would be done twice.
func isReport(t codec.Type) bool {
	return t == codec.Complete || t == codec.Transfer || t == codec.Exit
}

// answerStopping answers the other requests while the server stops: Exit ends workers, NotFound has
// them ask again.
func (h *Hub) answerStopping(out []byte) []byte {
	if h.query.Type == codec.Steal && h.o.StopNotFound {
		return codec.AppendType(out, codec.NotFound)
	}
	return codec.AppendType(out, codec.Exit)
}

// refuse answers Error; the reason is for the log.
func (h *Hub) refuse(out []byte, why error) []byte {
	h.stats.refused.Add(1)
	h.host.LogLimited(slog.LevelInfo, "refusing a dwork request", "reason", why.Error())
	return codec.AppendType(out, codec.Error)
}

// take reads the request's tasks for the scheduler. They are views of the request.
func (h *Hub) take() ([]sched.Task, error) {
	h.tasks, h.after, h.log = h.tasks[:0], h.after[:0], h.log[:0]
	for t := range h.query.Tasks {
		preds, events := len(h.after), len(h.log)
		for d := range t.Pred {
			h.after = append(h.after, d.Name)
		}
		for e := range t.Log {
			h.log = append(h.log, sched.Event{Stage: stageOf(e.State), Micros: e.Time})
		}
		// Appending may move what the earlier tasks have; they keep what they were given.
		h.tasks = append(h.tasks, sched.Task{
			Name: t.Name, Workload: t.Origin, After: h.after[preds:len(h.after):len(h.after)], Log: h.log[events:len(h.log):len(h.log)],
		})
		if taskParts*len(h.tasks)+len(h.after)+len(h.log) > maxParts {
			return nil, errParts
		}
	}
	return h.tasks, nil
}

// release lets go of a large request's views.
func (h *Hub) release() {
	if cap(h.tasks) > 1024 {
		h.tasks = nil
	}
	if cap(h.after) > 1024 {
		h.after = nil
	}
	if cap(h.log) > 1024 {
		h.log = nil
	}
}

func (h *Hub) create() error {
	if h.host.Full() {
		h.host.Refused(protocol.ReasonDisk)
		return errors.New("the disk is nearly full, see --min-free")
	}
	defer h.release()
	tasks, err := h.take()
	if err != nil {
		return err
	}
	return h.sched.Extend(h.now, Space, queue, tasks, h.sink)
}

// complete answers with the tasks that no worker holds, or, by a setting, that this one does not,
// when there are any.
func (h *Hub) complete(out []byte) ([]byte, error) {
	w, err := h.known(h.query.Location)
	if err != nil {
		return out, err
	}
	defer h.release()
	tasks, err := h.take()
	if err != nil {
		return out, err
	}
	holder := w.peer
	if !h.o.HolderCompletes {
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

func (h *Hub) transfer(out []byte) ([]byte, error) {
	w, err := h.known(h.query.Location)
	if err != nil {
		return out, err
	}
	defer h.release()
	tasks, err := h.take()
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

// steal hands out ready tasks. A worker is known from the first that it is given.
func (h *Hub) steal(out []byte) ([]byte, error) {
	n := 1
	if h.query.HasN {
		n = int(h.query.N)
	}
	w, err := h.workerAt(h.query.Location)
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
	if active, _ := h.sched.Backlog(queue); active == 0 && !h.o.IdleNotFound {
		return codec.AppendType(out, codec.Exit), nil
	}
	return codec.AppendType(out, codec.NotFound), nil
}

func (h *Hub) exit(out []byte) []byte {
	w := h.workers[string(h.query.Location)]
	if w == nil {
		return codec.AppendType(out, codec.NotFound)
	}
	h.forget(w)
	return codec.AppendType(out, codec.OK)
}

func (h *Hub) status(out []byte) []byte {
	active, ready := h.sched.Backlog(queue)
	out = codec.AppendType(out, codec.OK)
	out = codec.AppendName(out, fmt.Appendf(h.parts[:0], "dhub: %d active tasks, %d ready.", active, ready))
	return codec.AppendN(out, int32(ready)) // far fewer fit in memory than an int32 counts
}

// lookup shows a task: whom it waits for, who waits for it, its log, and its worker.
func (h *Hub) lookup(out []byte) []byte {
	known := h.sched.LookupTask(Space, queue, h.query.Name, func(t *sched.TaskView) {
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
	if !known {
		out = codec.AppendType(out, codec.NotFound)
	}
	return out
}

// Expire gives back the tasks of workers that were silent for longer than their lease.
func (h *Hub) Expire() {
	h.now = h.host.Now()
	var silent []string
	for location, w := range h.workers {
		if h.now.Mono-w.seen >= h.o.Lease.Milliseconds() {
			silent = append(silent, location)
		}
	}
	slices.Sort(silent) // the order in which their tasks become ready is the same in every play
	for _, location := range silent {
		h.host.Log().Info("a dwork worker is silent, its tasks are ready again", "location", location, "dwork-lease", h.o.Lease)
		h.forget(h.workers[location])
	}
	h.endTurn()
}

func appendLog(parts []byte, log []sched.Event) []byte {
	for _, e := range log {
		parts = codec.AppendLog(parts, codec.LogEntry{State: stateOf(e.Stage), Time: e.Micros})
	}
	return parts
}
