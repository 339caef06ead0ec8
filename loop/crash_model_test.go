package loop

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/codec/periodic"
)

// jobsOf is what a naive model holds of one function: its jobs by name, each with what
// must survive. The CONFIG values are one more function.
type jobsOf map[string]periodic.Job

func (a jobsOf) equal(b jobsOf) bool {
	return maps.EqualFunc(a, b, func(x, y periodic.Job) bool {
		return string(x.Workload) == string(y.Workload) && x.SchedAt == y.SchedAt && x.Count == y.Count && x.Timeout == y.Timeout
	})
}

// String is short.
func (a jobsOf) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		j := a[name]
		all = append(all, fmt.Sprintf("%s:%.4s@%d*%d", name, j.Workload, j.SchedAt, j.Count))
	}
	return fmt.Sprint(all)
}

// history is a function's state after each change, in order, and which of them was
// acknowledged last: a crash may take away the changes after it, in order from the end.
type history struct {
	states []jobsOf
	acked  int
}

// crashModel is the naive model of a Periodic server that crashes.
type crashModel struct {
	functions map[string]*history
	pending   map[uint32]map[string]int // what the answer to a request acknowledges
	running   map[string]string         // handles, by function and name
	request   uint32
}

func (m *crashModel) of(function string) *history {
	h := m.functions[function]
	if h == nil {
		h = &history{states: []jobsOf{{}}}
		m.functions[function] = h
	}
	return h
}

func (h *history) now() jobsOf { return h.states[len(h.states)-1] }

// change makes one change, which request acknowledges; 0: none does.
func (m *crashModel) change(request uint32, function string, edit func(jobsOf)) {
	h := m.of(function)
	next := jobsOf{}
	maps.Copy(next, h.now())
	edit(next)
	h.states = append(h.states, next)
	if request != 0 {
		if m.pending[request] == nil {
			m.pending[request] = make(map[string]int)
		}
		m.pending[request][function] = len(h.states) - 1
	}
}

// submit puts a job unless it is running.
func (m *crashModel) submit(request uint32, function string, j periodic.Job) {
	m.change(request, function, func(jobs jobsOf) {
		if m.running[function+"/"+string(j.Name)] == "" {
			jobs[string(j.Name)] = j
		}
	})
}

// acknowledge takes the answers that a client has read.
func (m *crashModel) acknowledge(t *testing.T, answers []periodic.Response) {
	t.Helper()
	for _, r := range answers {
		if len(r.Body) != 1 || r.Body[0] != byte(periodic.Success) {
			t.Fatalf("request %d is answered with %x", r.MsgID, r.Body)
		}
		for function, at := range m.pending[r.MsgID] {
			h := m.functions[function]
			h.acked = max(h.acked, at)
		}
		delete(m.pending, r.MsgID)
	}
}

// restart checks what a restarted server holds and goes on from there: every function
// is as it was after the last acknowledged change or after a later one. It counts the
// functions whose last changes are lost.
func (m *crashModel) restart(t *testing.T, got map[string]jobsOf) (lost int) {
	t.Helper()
	for function, h := range m.functions {
		jobs := got[function]
		if !slices.ContainsFunc(h.states[h.acked:], jobs.equal) {
			t.Errorf("%q was %v after the last acknowledged change, then %v; after the crash it is %v", function, h.states[h.acked], h.states[h.acked+1:], jobs)
		}
		if !jobs.equal(h.now()) {
			lost++
		}
		*h = history{states: []jobsOf{maps.Clone(jobs)}}
	}
	clear(m.pending)
	clear(m.running)
	return lost
}

// crashWorld is a server, its peers and the model that they are compared with.
type crashWorld struct {
	*world
	*crashModel
	rng           *rand.Rand
	client, taker *memConn
	held          []heldJob
}

type heldJob struct{ function, name, handle string }

const configFunction = "config"

// act does one random thing that clients and workers do.
func (w *crashWorld) act() {
	w.request++
	id := w.request
	function := []string{"worked", "too", "waiting", "dropped"}[w.rng.IntN(4)]
	name := fmt.Sprint(w.rng.IntN(6))
	random := periodic.Job{
		Name: []byte(name), Workload: fmt.Appendf(nil, "%d%0*d", id, w.rng.IntN(300), 0),
		SchedAt: []int64{0, 0, 1 << 40}[w.rng.IntN(3)], Count: int32(w.rng.IntN(3)), Timeout: int32(w.rng.IntN(2)) * 1000,
	}
	switch w.rng.IntN(10) {
	case 0, 1, 2:
		w.submit(id, function, random)
		random.Func = []byte(function)
		w.client.receive(request(id, periodic.SubmitJob, periodic.AppendJob(nil, &random)))
	case 3:
		args := count(2)
		for _, f := range []string{function, "waiting"} {
			w.submit(id, f, random)
			random.Func = []byte(f)
			args = periodic.AppendJob(args, &random)
		}
		w.client.receive(request(id, periodic.Load, args))
	case 4:
		w.change(id, function, func(jobs jobsOf) { delete(jobs, name) })
		delete(w.running, function+"/"+name)
		w.client.receive(request(id, periodic.RemoveJob, jobName(function, name)))
	case 5:
		w.change(id, "dropped", func(jobs jobsOf) { clear(jobs) })
		w.client.receive(request(id, periodic.DropFunc, str8("dropped")))
	case 6:
		w.change(id, configFunction, func(jobs jobsOf) { jobs["poll-delay"] = periodic.Job{Count: int32(id)} })
		w.client.receive(request(id, periodic.ConfigSet, setting("poll-delay", id)))
	case 7:
		w.grab(id)
	default:
		w.give(id)
	}
}

// grab takes one job, if there is one.
func (w *crashWorld) grab(id uint32) {
	if !w.due("worked") && !w.due("too") {
		return // it would stand in line, and the model does not
	}
	w.taker.send(request(id, periodic.GrabJob))
	got := w.taker.frames()
	if len(got) != 1 {
		w.t.Fatalf("a GRAB_JOB gets %d answers", len(got))
	}
	handle, j := assigned(w.t, got[0])
	h := heldJob{string(j.Func), string(j.Name), string(handle)}
	w.held = append(w.held, h)
	w.running[h.function+"/"+h.name] = h.handle
}

// due reports whether a function has a job that a worker gets at once.
func (w *crashWorld) due(function string) bool {
	for name, j := range w.of(function).now() {
		if j.SchedAt <= w.manual.now().Wall/1000 && w.running[function+"/"+name] == "" {
			return true
		}
	}
	return false
}

// give is what a worker does with a job that it holds: nothing of it is acknowledged.
func (w *crashWorld) give(id uint32) {
	if len(w.held) == 0 {
		return
	}
	i := w.rng.IntN(len(w.held))
	h := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	cmd := []periodic.Command{periodic.WorkDone, periodic.WorkFail, periodic.SchedLater}[w.rng.IntN(3)]
	args := []byte(h.handle)
	if cmd == periodic.SchedLater {
		args = binary.BigEndian.AppendUint64(args, 3600)
		args = binary.BigEndian.AppendUint16(args, 2)
	}
	w.taker.receive(request(id, cmd, args))
	if w.running[h.function+"/"+h.name] != h.handle {
		return // it was removed meanwhile
	}
	delete(w.running, h.function+"/"+h.name)
	w.change(0, h.function, func(jobs jobsOf) {
		j := jobs[h.name]
		switch cmd {
		case periodic.WorkDone:
			delete(jobs, h.name)
			return
		case periodic.WorkFail:
			j.SchedAt = w.manual.now().Wall / 1000
		case periodic.SchedLater:
			j.SchedAt = w.manual.now().Wall/1000 + 3600
			j.Count += 2
		}
		jobs[h.name] = j
	})
}

// holds asks the server for everything.
func (w *crashWorld) holds() map[string]jobsOf {
	w.t.Helper()
	c := w.join(0, periodic.Client)
	c.send(request(1, periodic.Dump), request(2, periodic.ConfigGet, str8("poll-delay")))
	all := map[string]jobsOf{}
	for _, r := range c.frames() {
		if r.MsgID == 2 {
			if v := binary.BigEndian.Uint32(r.Body[1:]); v != 300 {
				all[configFunction] = jobsOf{"poll-delay": {Count: int32(v)}}
			}
			continue
		}
		n, rest, _ := periodic.Int64(r.Body)
		for range n {
			var j periodic.Job
			k, err := periodic.ParseJob(rest, &j)
			if err != nil {
				w.t.Fatal(err)
			}
			if all[string(j.Func)] == nil {
				all[string(j.Func)] = jobsOf{}
			}
			all[string(j.Func)][string(j.Name)] = j
			rest = rest[k:]
		}
	}
	c.close()
	return all
}

// TestCrashModel: random requests of clients and workers, and crashes at random points
// of them, some while a group is being synced. Without a crash the server holds what
// the naive model holds. After one, which keeps none, some or all of what was not
// synced, everything that was acknowledged is there, nothing that was acknowledged as
// removed is back, and of the rest each function's changes are there up to one of them.
func TestCrashModel(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	crashes, lost := 0, 0
	for seed := range seeds {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			mem := vfs.NewCrashableMem()
			m := &crashModel{functions: map[string]*history{}, pending: map[uint32]map[string]int{}, running: map[string]string{}, request: 1000}
			for range 4 {
				d := newDiskOn(mem)
				w := &crashWorld{rng: rng, crashModel: m, world: newWorld(t, Options{Data: "data", Shards: 4}, func(s *Server) { s.store.FS = d })}
				lost += m.restart(t, w.holds())
				mem = w.untilCrash(d, mem)
				crashes++
			}
		})
	}
	t.Logf("%d crashes, %d times a function's last changes were lost", crashes, lost)
	if !t.Failed() && (crashes != int(seeds)*4 || lost == 0) {
		t.Errorf("%d crashes took the last changes of %d functions", crashes, lost)
	}
}

// untilCrash does random things, takes the disk as a crash leaves it, and checks what
// would have been without the crash.
func (w *crashWorld) untilCrash(d *disk, mem *vfs.MemFS) (after *vfs.MemFS) {
	w.client, w.taker = w.join(0, periodic.Client), w.worker(0, "worked", "too")
	held := w.rng.IntN(2) == 0
	steps := 1 + w.rng.IntN(60)
	hold := w.rng.IntN(steps)
	for i := range steps {
		if held && i == hold {
			d.gate.Lock() // what follows is appended and perhaps written, and never synced
		}
		w.act()
		if w.rng.IntN(3) == 0 {
			w.settle()
		}
		w.acknowledge(w.t, w.client.frames())
	}
	after = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[w.rng.IntN(3)], RNG: w.rng})
	acked := map[string]int{}
	for function, h := range w.functions {
		acked[function] = h.acked
	}
	if held {
		d.gate.Unlock()
	}
	w.await("all answers", func() bool {
		w.acknowledge(w.t, w.client.frames())
		return len(w.pending) == 0
	})
	got := w.holds()
	for function, h := range w.functions {
		if !got[function].equal(h.now()) {
			w.t.Errorf("%q is %v, the model says %v", function, got[function], h.now())
		}
		h.acked = acked[function] // when the crash came
	}
	return after
}
