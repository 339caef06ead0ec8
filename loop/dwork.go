package loop

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"treadle/codec/dwork"
	"treadle/codec/gloom"
	"treadle/loop/dwork/zmq"
	"treadle/sched"
)

// dworkSpace is the name space of the dwork protocol's tasks. All of them are jobs of
// one queue.
const dworkSpace sched.Space = 4

var dworkQueue = []byte("dwork")

// dworkRules are those of tasks: each waits for others, and is its worker's until that
// one says otherwise.
var dworkRules = sched.Rules{Durable: true, Graph: true, Untimed: true}

// Bounds of the conversation.
const (
	// maxDworkReply ends a reply of many tasks: what a client's own limit on frames is
	// likely to be. At least one task is always sent.
	maxDworkReply = 16 << 20
	// maxDworkParts bounds what a request has: what its tasks wait for, their logs, and the tasks
	// themselves, each of which counts as taskParts: nobody else is answered meanwhile.
	maxDworkParts = 1 << 17
	taskParts     = 4
	// maxDworkNames bounds the predecessors and the successors that a Lookup shows: very many may
	// wait for a task, and each is looked for.
	maxDworkNames = 1 << 16
	// maxLocations bounds the workers known at a time; each takes about 300 bytes and its name.
	maxLocations = 1 << 20
	// maxLocation is the length of such a name in bytes: the journal has it with each task that
	// the worker holds. A host's name has at most 255.
	maxLocation = 1 << 10
)

var (
	errLocations = errors.New("too many workers are known: have some exit")
	errLocation  = fmt.Errorf("a location of more than %d bytes", maxLocation)
	errParts     = fmt.Errorf("more than %d dependencies and log entries, or %d tasks: send fewer at a time", maxDworkParts, maxDworkParts/taskParts)
)

// dworkHub is the one conversation of the dwork protocol, protocols/dwork.md: all of it
// runs on one goroutine, which is the owner of every worker's side of the scheduler.
type dworkHub struct {
	server   *Server
	now      sched.Time
	workers  map[string]*dworkWorker // by location
	sink     timerSink
	stopping atomic.Bool // nothing is handed out or created any more, see answerStopping
	stats    dworkStats

	sockets   []net.Listener
	listeners []*zmq.Listener
	ready     chan struct{} // there is something to do, see wake
	batch     []zmq.Request
	out       []byte
	parked    []parkedReply
	owed      atomic.Int64 // how many are parked
	awaited   int          // of them, in this turn
	gaveBack  bool         // in this turn a worker's tasks were

	query dwork.Query
	tasks []sched.Task // of the request at hand
	after [][]byte     // their predecessors, one behind the other
	log   []sched.Event
	parts []byte // of the task being written
}

// dworkWorker is a worker that is known by its location.
type dworkWorker struct {
	location string
	peer     *sched.Peer
	seen     int64 // Mono of its last request
}

// dworkStats counts what happened since the start.
type dworkStats struct {
	requests [dwork.Error + 1]atomic.Uint64 // by type
	refused  atomic.Uint64
}

func newDworkHub(s *Server) *dworkHub {
	return &dworkHub{
		server: s, workers: make(map[string]*dworkWorker), sink: timerSink{s, make([]bool, s.o.Loops)},
		ready: make(chan struct{}, 1),
	}
}

// holder finds the peer of a restored task's worker.
func (h *dworkHub) holder(location string) *sched.Peer {
	if h.server.o.Dwork.Restart == DworkReady {
		return nil
	}
	h.now = h.server.now() // nobody could give a sign of life before
	w, err := h.worker([]byte(location))
	if err != nil {
		return nil
	}
	return w.peer
}

// worker returns the worker of a location, known from now on.
func (h *dworkHub) worker(location []byte) (*dworkWorker, error) {
	w, err := h.workerAt(location)
	if err == nil {
		h.workers[w.location] = w
	}
	return w, err
}

// workerAt returns the worker of a location, which is not known yet if it is new.
func (h *dworkHub) workerAt(location []byte) (*dworkWorker, error) {
	w := h.workers[string(location)]
	if w == nil {
		switch {
		case len(h.workers) >= maxLocations:
			return nil, errLocations
		case len(location) > maxLocation:
			return nil, errLocation
		}
		w = &dworkWorker{location: string(location)}
		w.peer = h.server.sched.NewHolder(w.location)
	}
	w.seen = h.now.Mono
	return w, nil
}

// forget gives what a known worker holds back.
func (h *dworkHub) forget(w *dworkWorker) {
	delete(h.workers, w.location)
	h.server.sched.Forget(h.now, w.peer, &h.sink)
	h.gaveBack = true
}

// read sets the query to a request, of which it keeps views. The error says what is wrong with it.
func (h *dworkHub) read(payload []byte) error { return dwork.Decode(payload, &h.query) }

// answer appends the reply to the request that was read, with what was wrong with it. With wait it
// may be sent only after the group is committed.
func (h *dworkHub) answer(out []byte, wrong error) (_ []byte, group uint64, wait bool) {
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
	case dwork.Create:
		err = h.create()
		wait = true
	case dwork.Complete:
		out, err = h.complete(out)
		wait = true
	case dwork.Transfer:
		out, err = h.transfer(out)
		wait = true
	case dwork.Steal:
		out, err = h.steal(out)
	case dwork.Exit:
		out = h.exit(out)
	case dwork.Lookup:
		out = h.lookup(out)
	default:
		out = h.status(out)
	}
	if err != nil {
		return h.refuse(out, err), 0, false
	}
	if q.Type == dwork.Create {
		out = dwork.AppendType(out, dwork.OK)
	}
	if wait {
		group, wait = h.server.durable(dworkQueue)
	}
	return out, group, wait
}

// isReport says whether a request tells what became of tasks. A hub that stops takes it still: a
// finished task would be done twice.
func isReport(t dwork.Type) bool {
	return t == dwork.Complete || t == dwork.Transfer || t == dwork.Exit
}

// answerStopping answers the other requests while the server stops: Exit ends workers, NotFound has
// them ask again.
func (h *dworkHub) answerStopping(out []byte) []byte {
	if h.query.Type == dwork.Steal && h.server.o.Dwork.Stop == DworkNotFound {
		return dwork.AppendType(out, dwork.NotFound)
	}
	return dwork.AppendType(out, dwork.Exit)
}

// refuse answers Error; the reason is for the log.
func (h *dworkHub) refuse(out []byte, why error) []byte {
	h.stats.refused.Add(1)
	if h.server.noise.allow(h.now.Mono) {
		h.server.log.Info("refusing a dwork request", "reason", why.Error())
	}
	return dwork.AppendType(out, dwork.Error)
}

// take reads the request's tasks for the scheduler. They are views of the request.
func (h *dworkHub) take() ([]sched.Task, error) {
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
		if taskParts*len(h.tasks)+len(h.after)+len(h.log) > maxDworkParts {
			return nil, errParts
		}
	}
	return h.tasks, nil
}

// release lets go of a large request's views.
func (h *dworkHub) release() {
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

func (h *dworkHub) create() error {
	if h.server.full() {
		h.server.counters.diskFull()
		return errors.New("the disk is nearly full, see --min-free")
	}
	defer h.release()
	tasks, err := h.take()
	if err != nil {
		return err
	}
	return h.server.sched.Extend(h.now, dworkSpace, dworkQueue, tasks, &h.sink)
}

// complete answers with the tasks that no worker holds, or, by a setting, that this one does not,
// when there are any.
func (h *dworkHub) complete(out []byte) ([]byte, error) {
	w, err := h.worker(h.query.Location)
	if err != nil {
		return out, err
	}
	defer h.release()
	tasks, err := h.take()
	if err != nil {
		return out, err
	}
	holder := w.peer
	if h.server.o.Dwork.Complete == DworkAny {
		holder = nil
	}
	start := len(out)
	h.server.sched.Complete(h.now, holder, dworkSpace, dworkQueue, tasks, &h.sink, func(i int) {
		if len(out) == start {
			out = dwork.AppendType(out, dwork.NotFound)
		}
		out = dwork.AppendTask(out, tasks[i].Name, tasks[i].Workload)
	})
	if len(out) == start {
		out = dwork.AppendType(out, dwork.OK)
	}
	return out, nil
}

func (h *dworkHub) transfer(out []byte) ([]byte, error) {
	w, err := h.worker(h.query.Location)
	if err != nil {
		return out, err
	}
	defer h.release()
	tasks, err := h.take()
	if err != nil {
		return out, err
	}
	switch err := h.server.sched.Transfer(h.now, w.peer, dworkSpace, dworkQueue, tasks, &h.sink); {
	case err == sched.ErrNotFound:
		return dwork.AppendType(out, dwork.NotFound), nil
	case err != nil:
		return out, err
	}
	return dwork.AppendType(out, dwork.OK), nil
}

// steal hands out ready tasks. A worker is known from the first that it is given.
func (h *dworkHub) steal(out []byte) ([]byte, error) {
	n := 1
	if h.query.HasN {
		n = int(h.query.N)
	}
	w, err := h.workerAt(h.query.Location)
	if err != nil {
		return out, err
	}
	start := len(out)
	h.server.sched.Steal(h.now, w.peer, dworkQueue, min(n, h.server.o.Dwork.MaxSteal), &h.sink, func(t *sched.TaskView) bool {
		if len(out) == start {
			out = dwork.AppendType(out, dwork.Transfer)
		}
		h.parts = appendDworkLog(h.parts[:0], t.Log)
		out = dwork.AppendTask(out, t.Name, t.Workload, h.parts)
		return len(out)-start < maxDworkReply
	})
	if len(out) > start {
		h.workers[w.location] = w
		return out, nil
	}
	if active, _ := h.server.sched.Backlog(dworkQueue); active == 0 && h.server.o.Dwork.Idle == DworkExit {
		return dwork.AppendType(out, dwork.Exit), nil
	}
	return dwork.AppendType(out, dwork.NotFound), nil
}

func (h *dworkHub) exit(out []byte) []byte {
	w := h.workers[string(h.query.Location)]
	if w == nil {
		return dwork.AppendType(out, dwork.NotFound)
	}
	h.forget(w)
	return dwork.AppendType(out, dwork.OK)
}

func (h *dworkHub) status(out []byte) []byte {
	active, ready := h.server.sched.Backlog(dworkQueue)
	out = dwork.AppendType(out, dwork.OK)
	out = dwork.AppendName(out, fmt.Appendf(h.parts[:0], "dhub: %d active tasks, %d ready.", active, ready))
	return dwork.AppendN(out, int32(ready)) // far fewer fit in memory than an int32 counts
}

// lookup shows a task: whom it waits for, who waits for it, its log, and its worker.
func (h *dworkHub) lookup(out []byte) []byte {
	known := h.server.sched.LookupTask(dworkSpace, dworkQueue, h.query.Name, func(t *sched.TaskView) {
		parts, names := h.parts[:0], 0
		for name := range t.After() {
			parts = dwork.AppendPred(parts, dwork.Dep{Name: name})
			if names++; names == maxDworkNames || len(parts) > maxDworkReply {
				break
			}
		}
		names = 0
		for name := range t.Before() {
			parts = dwork.AppendSucc(parts, dwork.Dep{Name: name})
			if names++; names == maxDworkNames || len(parts) > maxDworkReply {
				break
			}
		}
		h.parts = appendDworkLog(parts, t.Log)
		out = dwork.AppendType(out, dwork.OK)
		out = dwork.AppendTask(out, t.Name, t.Workload, h.parts)
		if t.Stage == sched.StageReserved {
			location := t.Holder
			if t.By != 0 {
				location = fmt.Sprintf("%s:%d", location, t.By)
			}
			out = dwork.AppendLocation(out, []byte(location))
		}
	})
	if cap(h.parts) > maxDworkReply/16 {
		h.parts = nil
	}
	if !known {
		out = dwork.AppendType(out, dwork.NotFound)
	}
	return out
}

// expire gives back the tasks of workers that were silent for longer than their lease.
func (h *dworkHub) expire() {
	var silent []string
	for location, w := range h.workers {
		if h.now.Mono-w.seen >= h.server.o.Dwork.Lease.Milliseconds() {
			silent = append(silent, location)
		}
	}
	slices.Sort(silent) // whose tasks stand in line first is the same in every play
	for _, location := range silent {
		h.server.log.Info("a dwork worker is silent, its tasks are ready again", "location", location, "dwork-lease", h.server.o.Dwork.Lease)
		h.forget(h.workers[location])
	}
}

// stageOf and stateOf translate between the states of the wire and the stages of the
// scheduler, which has names for three of them.
func stageOf(s dwork.State) uint8 {
	switch s {
	case dwork.Ready:
		return sched.StageReady
	case dwork.Stolen:
		return sched.StageReserved
	case dwork.Done:
		return sched.StageDone
	}
	return sched.StageOther + uint8(s)
}

func stateOf(stage uint8) dwork.State {
	switch stage {
	case sched.StageReady:
		return dwork.Ready
	case sched.StageReserved:
		return dwork.Stolen
	case sched.StageDone:
		return dwork.Done
	}
	return dwork.State(stage - sched.StageOther)
}

func appendDworkLog(parts []byte, log []sched.Event) []byte {
	for _, e := range log {
		parts = dwork.AppendLog(parts, dwork.LogEntry{State: stateOf(e.Stage), Time: e.Micros})
	}
	return parts
}

// appendTaskJSON is a task as workers of other protocols get it.
func appendTaskJSON(dst []byte, j *sched.Job) []byte {
	dst = append(dst, `{"name":`...)
	dst = gloom.AppendText(dst, j.Name)
	dst = append(dst, `,"origin":`...)
	dst = gloom.AppendText(dst, j.Workload)
	return append(dst, '}')
}
