package loop

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/codec/kts46"
	"treadle/sched"
)

// newKtsDiskRig is newKtsRig with a journal on a disk, at the time of a clock.
func newKtsDiskRig(t testing.TB, d *disk, clock sched.Time) *ktsRig {
	t.Helper()
	s, err := newServer(Options{Data: "data", Shards: 4, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := &ktsRig{t: t, ktsHub: s.kts46, clock: clock}
	s.clock = func() sched.Time { return r.clock }
	s.stop = func() {}
	s.store.FS = d
	if err := s.openJournal(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	return r
}

// end closes the journal, once.
func (r *ktsRig) end() {
	if err := r.server.feed.journal.Close(); err != nil {
		r.t.Error(err)
	}
}

// quietly does what a call of version 1 does, and does not wait for the disk: a client
// that never hears the answer.
func (r *ktsRig) quietly(method string, args ...any) {
	r.t.Helper()
	m := ktsCalls[method]
	texts := make([]string, m.texts)
	for i := range texts {
		texts[i] = args[i].(string)
	}
	_, _, err := r.own(func() error { _, err := m.do(r.ktsHub, args, texts); return err })
	if err != nil {
		r.t.Fatalf("%s%q: %v", method, args, err)
	}
	r.server.feed.flush(1)
}

// simJob is what the naive model knows of a job: how many steps were acknowledged as done,
// and whether what ends it was.
type simJob struct {
	total, batch int64
	version      int
	done         int64
	ends         map[string]bool
}

// simWorker is a worker: what it thinks that it holds, and from when.
type simWorker struct {
	id, job, kind string
	start         int64
	version       int
	last          string // revision
	stale         []string
}

func (w *simWorker) drop() {
	w.stale = append(w.stale, w.last)
	w.job, w.kind, w.last = "", "", ""
}

// ktsSim is workers, clients and a supervisor that do everything at random.
type ktsSim struct {
	*ktsRig
	rng     *rand.Rand
	jobs    map[string]*simJob
	workers []*simWorker
}

func (s *ktsSim) setUp() {
	s.does("createProject", "p")
	for i := range 5 {
		name, j := fmt.Sprint("j", i), &simJob{total: int64(s.rng.IntN(12)), batch: int64(1 + s.rng.IntN(5)), version: 1 + i%2, ends: make(map[string]bool)}
		s.jobs[name] = j
		s.does("addJob", "p", name, definition(float64(j.total)/2, 0.5, int(j.batch)))
		if j.version == 1 {
			s.does("runJob", "p", name)
		} else {
			s.wants(ktsQuoted, "addTask", "p", name)
		}
	}
	for i := range 4 {
		s.workers = append(s.workers, &simWorker{id: fmt.Sprint("w", i), version: 1 + i%2})
	}
}

const ktsQuoted = `"success"`

// given checks a task that was handed out: the steps that come next, never others, and
// what ends a job when all of its steps are done.
func (s *ktsSim) given(w *simWorker) {
	s.t.Helper()
	t := s.ktsHub.workers[w.id].task
	j := s.jobs[t.job.name]
	w.job, w.kind, w.start = t.job.name, t.kind.String(), t.job.progress.Done
	if w.start != j.done || (w.kind == "simulation") != (j.done < j.total) || j.ends[w.kind] ||
		w.kind != "simulation" && (t.kind == ktsStatistics) != (j.version == 1) {
		s.t.Fatalf("%s is given %s of %s from step %d, the model says %+v", w.id, w.kind, w.job, w.start, j)
	}
	for _, other := range s.workers {
		if other != w && other.job == w.job && other.kind == w.kind {
			s.t.Fatalf("%s is given %s of %s, which %s holds", w.id, w.kind, w.job, other.id)
		}
	}
}

// get has a worker ask for work.
func (s *ktsSim) get(w *simWorker) {
	s.t.Helper()
	if w.version == 1 {
		if w.job != "" {
			w.drop()
		}
		if t := s.getJob(w.id); t != nil {
			w.last = string(t.last)
			s.given(w)
		}
		return
	}
	kinds := []string{"throughput", "simulation", "idleTimes", "basicStatistics"}
	if w.job != "" {
		s.wants(`{"type":"WorkerHasTask"}`, "getTask", w.id, kinds)
		return
	}
	reply := s.json("getTask", w.id, kinds)
	if reply == `{"empty":true}` {
		return
	}
	w.last = s.sigOf(reply)
	s.given(w)
	if s.rng.IntN(4) == 0 {
		s.wants(ktsQuoted, "rejectTask", w.id, w.last)
		w.drop()
		return
	}
	w.last = s.sigOf(s.json("acceptTask", w.id, w.last))
}

// finished notes in the model that a worker's task is done.
func (s *ktsSim) finished(w *simWorker) {
	j := s.jobs[w.job]
	if w.kind == "simulation" {
		j.done = min(j.done+j.batch, j.total)
	} else {
		j.ends[w.kind] = true
	}
	w.drop()
}

func (s *ktsSim) finish(w *simWorker) {
	s.t.Helper()
	if w.version == 1 {
		s.does("reportStatus", w.id, "finished", kts46.DateTime(w.last))
	} else {
		s.wants(ktsQuoted, "taskFinished", w.id, w.last)
	}
	s.finished(w)
}

// act does one thing.
func (s *ktsSim) act() {
	s.t.Helper()
	w := s.workers[s.rng.IntN(len(s.workers))]
	switch what := s.rng.IntN(10); {
	case what == 0:
		s.pass(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
	case what == 1:
		s.does("runJob", "p", fmt.Sprint("j", s.rng.IntN(len(s.jobs))))
	case what == 2 && len(w.stale) > 0: // a report from the past
		stale := w.stale[s.rng.IntN(len(w.stale))]
		if w.version == 1 {
			s.faults("", "reportStatus", w.id, "finished", kts46.DateTime(stale))
		} else if got := s.json("taskFinished", w.id, stale); got == ktsQuoted {
			s.t.Fatalf("%s finished under %s, which is past", w.id, stale)
		}
	case w.job == "":
		s.get(w)
	case what == 3 && w.version == 1:
		s.get(w) // though it holds one
	case what == 4: // it has died, and a supervisor notices
		at := s.getCurrent(w.id)
		if got := s.does("restartTask", w.id, at); got != true {
			s.t.Fatalf("restartTask of %s at %s: %v", w.id, at, got)
		}
		w.drop()
	case what == 5 && w.version == 1:
		s.does("reportStatus", w.id, "abort", kts46.DateTime(w.last))
		w.drop()
	case what < 8:
		w.stale = append(w.stale, w.last)
		if w.version == 1 {
			w.last = string(s.does("reportStatus", w.id, "working", kts46.DateTime(w.last)).(kts46.DateTime))
		} else {
			w.last = s.sigOf(s.json("taskInProgress", w.id, w.last))
		}
	default:
		s.finish(w)
	}
}

// crash has some calls under way, kills the server, and starts it from what a crash leaves
// on the disk: of what was not acknowledged, all, some or nothing.
func (s *ktsSim) crash(d *disk, mem *vfs.MemFS) (*disk, *vfs.MemFS) {
	s.t.Helper()
	d.gate.Lock()
	under := make(map[*simWorker]bool)
	for range s.rng.IntN(3) {
		w := s.workers[s.rng.IntN(len(s.workers))]
		if under[w] || w.version != 1 {
			continue
		}
		under[w] = true
		states := []string{"working", "abort", "finished"}
		if w.job == "" {
			s.quietly("getJob", w.id)
		} else {
			s.quietly("reportStatus", w.id, states[s.rng.IntN(3)], kts46.DateTime(w.last))
		}
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[s.rng.IntN(3)], RNG: s.rng})
	after := s.ktsRig
	d.gate.Unlock()
	after.end()
	d = newDiskOn(left)
	s.ktsRig = newKtsDiskRig(s.t, d, s.clock)
	for _, w := range s.workers {
		s.comeBack(w, under, after)
	}
	for name, j := range s.jobs {
		now := s.projects["p"].jobs[name].progress
		then := after.projects["p"].jobs[name].progress
		if now.Done != j.done && now.Done != then.Done {
			s.t.Fatalf("%s has %d steps done, acknowledged were %d, asked for %d", name, now.Done, j.done, then.Done)
		}
		j.done = now.Done
		if now.Finished && j.version == 1 {
			j.ends["statistics"] = true
		}
		if now.Finished && !then.Finished {
			s.t.Fatalf("%s is finished, and was not", name)
		}
	}
	return d, left
}

// comeBack checks what a worker holds after a crash: what it held, unless a call of its
// own was under way, which happened or did not.
func (s *ktsSim) comeBack(w *simWorker, under map[*simWorker]bool, after *ktsRig) {
	s.t.Helper()
	held := func(r *ktsRig) string {
		if t, err := r.held(w.id); err == nil {
			if w.version == 1 {
				return string(ktsDateTime(t))
			}
			return ktsSig(t)
		}
		return ""
	}
	got := held(s.ktsRig)
	if got != w.last && (!under[w] || got != held(after)) {
		s.t.Fatalf("%s holds %q after the crash, held %q before it", w.id, got, w.last)
	}
	if got == w.last {
		return
	}
	if w.last != "" {
		w.stale = append(w.stale, w.last)
	}
	w.job, w.kind, w.last = "", "", got
	if t, err := s.held(w.id); err == nil {
		w.job, w.kind, w.start = t.job.name, t.kind.String(), t.job.progress.Done
	}
}

// drain has two fresh workers do all that is left, as supervisors restart the rest.
func (s *ktsSim) drain() {
	s.t.Helper()
	for _, w := range s.workers {
		if w.job != "" {
			s.does("restartTask", w.id, s.getCurrent(w.id))
			w.drop()
		}
	}
	for idle := 0; idle < len(s.workers); {
		idle++
		for _, w := range s.workers {
			if s.get(w); w.job != "" {
				s.finish(w)
				idle = 0
			}
		}
	}
	for name, j := range s.jobs {
		p := s.projects["p"].jobs[name].progress
		if !p.Finished || p.Done < j.total || p.Done != j.done || len(j.ends) != map[int]int{1: 1, 2: 3}[j.version] {
			s.t.Errorf("%s ends as %+v, the model says %+v", name, p, j)
		}
	}
	if got := s.server.sched.Stats().Jobs; got != 0 {
		s.t.Errorf("%d tasks are left", got)
	}
}

// TestKtsSimulation: workers that die, give back, reject and report late, and a server
// that crashes at random points: all steps of every job are done, in order, none is lost
// or given to two, and what ends a job is last.
func TestKtsSimulation(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			d := newDiskOn(mem)
			s := &ktsSim{rng: rand.New(rand.NewPCG(seed, 46)), jobs: make(map[string]*simJob)}
			s.ktsRig = newKtsDiskRig(t, d, sched.Time{Wall: ktsStart.UnixMilli(), Micros: ktsStart.UnixMicro()})
			s.setUp()
			for range 6 {
				for range s.rng.IntN(25) {
					s.act()
				}
				d, mem = s.crash(d, mem)
			}
			s.drain()
		})
	}
}
