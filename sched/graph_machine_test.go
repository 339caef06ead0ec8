package sched

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// graphQueue is the only queue of these tests.
var graphQueue = []byte("dwork")

// graphLockTimeout is how long a job waits for the lock, in milliseconds.
const graphLockTimeout = 1000

var graphNames = []string{"a", "b", "c", "d", "e", "f", "", strings.Repeat("long", 64), strings.Repeat("wide", 65)}

// graphThemes are mixes of verbs, see themes.
var graphThemes = [][]string{
	strings.Fields(`extend extend extend extend steal steal steal complete complete transfer exit remember pass tick crash`),
	strings.Fields(`extend extend extend steal complete transfer exit submit submit watch unwatch reserve reserve reserve
		finish finish fail delay release lock forget pass tick tick remember crash`),
	strings.Fields(`extend extend extend reserve reserve reserve delay delay lock lock finish fail pass tick crash`),
}

// graphMachine runs a scheduler, its journal and the model in parallel.
type graphMachine struct {
	t       *rapid.T
	s       *Scheduler
	m       *graphModel
	journal memJournal
	rec     recorder
	holders map[string]*Peer
	peers   []*Peer // of the model's workers
	lastID  SessionID
}

func newGraphMachine(t *rapid.T) *graphMachine {
	x := &graphMachine{t: t, journal: make(memJournal, 1), m: &graphModel{now: Time{Wall: 1_700_000_000_250, Mono: 10 * grain, WallMicros: 1}}}
	x.journal[0] = make(map[uint64]Saved)
	x.open()
	return x
}

func (x *graphMachine) open() {
	x.s = New(Options{Rules: graphRules, Journal: x.journal, Window: 1 << 40})
	x.s.SetLockTimeout(graphLockTimeout)
	x.s.SetRemember(x.m.remember)
	x.holders, x.peers = make(map[string]*Peer), nil
	for i := range 2 {
		x.m.workers = append(x.m.workers, nil)
		x.peers = append(x.peers, nil)
		x.connect(i)
	}
}

// connect makes a worker, either NameOnly or LongNames.
func (x *graphMachine) connect(i int) {
	x.lastID++
	capabilities := []Capabilities{NameOnly, LongNames}[i]
	x.peers[i] = x.s.NewPeer(x.lastID, capabilities)
	x.m.workers[i] = &graphWorker{id: x.lastID, name: fmt.Sprint("w", i), capabilities: capabilities}
	x.watch(i)
}

func (x *graphMachine) watch(i int) {
	if err := x.s.Watch(x.m.now, x.peers[i], graphQueue, false, &x.rec); err != nil {
		x.t.Fatal(err)
	}
	x.m.workers[i].serves = true
	x.m.match()
}

func (x *graphMachine) holder(name string) *Peer {
	if x.holders[name] == nil {
		x.holders[name] = x.s.NewHolderPeer(name)
	}
	return x.holders[name]
}

func (x *graphMachine) n(label string, n int) int { return rapid.IntRange(0, n-1).Draw(x.t, label) }

func (x *graphMachine) name(label string) []byte {
	return []byte(graphNames[x.n(label, len(graphNames))])
}

// tasks draws tasks; most of them, when there are any, are held by the holder.
func (x *graphMachine) tasks(holder string) []Task {
	var held []*graphJob
	for _, j := range x.m.all {
		if j.state == reserved && j.holder == holder {
			held = append(held, j)
		}
	}
	tasks := make([]Task, 1+x.n("tasks", 3))
	for i := range tasks {
		t := &tasks[i]
		t.Name, t.Workload = x.name("name"), []byte(strings.Repeat("w", x.n("size", 3)*40))
		if len(held) > 0 && x.n("other", 6) > 0 {
			t.Name = []byte(held[x.n("held", len(held))].name)
		}
		for range x.n("after", 4) {
			t.After = append(t.After, x.name("before"))
		}
		for k := range x.n("log", 3) {
			t.Log = append(t.Log, Event{StageOther + uint8(k), x.m.now.WallMicros - 5})
		}
	}
	return tasks
}

// TestGraphAgainstModel checks that the scheduler does with graphs of tasks what the model does,
// and that a new scheduler restored from the journal goes on where the old one was killed.
func TestGraphAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newGraphMachine(t)
		theme := rapid.SampledFrom(graphThemes).Draw(t, "theme")
		for range rapid.IntRange(0, 120).Draw(t, "verbs") {
			verb := rapid.SampledFrom(theme).Draw(t, "verb")
			if err := x.run(verb); err != nil {
				t.Fatalf("%s: %v", verb, err)
			}
		}
		if err := x.drain(); err != nil {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func (x *graphMachine) run(verb string) error {
	x.m.now.WallMicros += 7
	if err := x.verb(verb); err != nil {
		return err
	}
	return x.compare()
}

func (x *graphMachine) verb(verb string) error {
	s, m, now := x.s, x.m, x.m.now
	holder := []string{"h0", "h1"}[x.n("holder", 2)]
	switch verb {
	case "extend":
		tasks := x.tasks("")
		return x.sameError(s.AddTasks(now, graphTasks, graphQueue, tasks, &x.rec), m.extend(tasks))
	case "transfer":
		tasks := x.tasks(holder)
		return x.sameError(s.Transfer(now, x.holder(holder), graphTasks, graphQueue, tasks, &x.rec), m.transfer(holder, tasks))
	case "steal":
		return x.steal(holder, []int{1, 1, 2, 5, 0, -1}[x.n("n", 6)])
	case "complete":
		tasks := x.tasks(holder)
		if x.n("anybody", 3) == 0 {
			holder = anyHolder
		}
		return x.complete(holder, tasks)
	case "exit":
		s.Disconnect(now, x.holder(holder), &x.rec)
		delete(x.holders, holder)
		m.forgetHolder(holder)
	case "remember":
		m.remember = []int64{0, 300, 5000}[x.n("ms", 3)]
		s.SetRemember(m.remember)
	case "pass":
		ms := []int64{1, 200, 800, 2500}[x.n("time", 4)]
		m.now.Wall, m.now.Mono, m.now.WallMicros = now.Wall+ms, now.Mono+ms, now.WallMicros+1000*ms
	case "tick":
		s.ticks(now, &x.rec)
		m.tick()
	case "crash":
		return x.crash(x.n("come back", 4))
	case "submit":
		space, name, priority := graphPlain+Space(x.n("space", 2)), x.name("name"), int64(x.n("priority", 3)-1)
		if len(name) > maxShort { // the order of such jobs and others is not this model's
			return nil
		}
		out, err := s.outcome(now, &Submission{Space: space, Queue: graphQueue, Name: name, Priority: priority}, &x.rec)
		if err != nil {
			return err
		}
		return same("outcome", out, m.submit(space, string(name), priority))
	default:
		return x.work(verb, x.n("worker", len(x.peers)))
	}
	return nil
}

// work does a verb of workers.
func (x *graphMachine) work(verb string, i int) error {
	s, m, now, p, w := x.s, x.m, x.m.now, x.peers[i], x.m.workers[i]
	tag := uint64(x.n("tag", 3))
	switch verb {
	case "watch":
		x.watch(i)
	case "unwatch":
		s.Unwatch(p, graphQueue)
		w.serves = false
	case "reserve":
		m.reserve(w, tag)
		return s.Reserve(now, p, tag, &x.rec)
	case "release":
		return x.sameError(s.ReleaseNewest(now, p, tag, &x.rec), m.releaseLast(w, tag))
	case "forget":
		s.Disconnect(now, p, &x.rec)
		m.forget(w)
		x.connect(i)
	default:
		if len(w.held) == 0 {
			return nil
		}
		return x.report(verb, p, w, w.held[x.n("held", len(w.held))])
	}
	return nil
}

// report does a verb of a worker with a job that a worker holds.
func (x *graphMachine) report(verb string, p *Peer, w *graphWorker, j *graphJob) error {
	s, m, now := x.s, x.m, x.m.now
	run, err := x.held(j)
	if err != nil {
		return err
	}
	switch verb {
	case "finish":
		m.finish(w, j)
		return s.Finish(now, p, run, nil, &x.rec)
	case "fail":
		w.drop(j)
		m.fail(j)
		m.match()
		m.unlock(j)
		return s.Fail(now, p, run, nil, &x.rec)
	case "delay":
		seconds, step := []int64{0, 1, 3}[x.n("delay", 3)], int32(x.n("step", 2))
		m.delay(w, j, seconds, step)
		return s.Delay(now, p, run, seconds, step, &x.rec)
	}
	most := x.n("most", 2)
	got, err := s.AcquireLock(now, p, run, "lock", most, &x.rec)
	if err != nil {
		return err
	}
	return same("acquired", got, m.lock(w, j, most))
}

// held finds the run of a job that a worker holds.
func (x *graphMachine) held(j *graphJob) (Run, error) {
	sh := &x.s.shards[0]
	for _, w := range sh.watches {
		for i := 0; w != nil && i < len(w.held); i++ {
			if r := sh.slab.at(w.held[i].job); r.space == j.space && string(sh.nameView(w.held[i].job)) == j.name {
				return Run{Space: r.space, Record: w.held[i].job, Number: w.held[i].number}, nil
			}
		}
	}
	return Run{}, errors.New("the job is not held")
}

func (x *graphMachine) sameError(got, want error) error {
	if !sameGraphError(got, want) {
		return fmt.Errorf("error: got %v, want %v", got, want)
	}
	return nil
}

func (x *graphMachine) steal(holder string, n int) error {
	var got []string
	x.s.Steal(x.m.now, x.holder(holder), graphQueue, n, &x.rec, func(v *TaskView) bool {
		got = append(got, string(v.Name))
		return true
	})
	if want := x.m.steal(holder, n); !slices.Equal(got, want) {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	return nil
}

func (x *graphMachine) complete(holder string, tasks []Task) error {
	var got []int
	var p *Peer
	if holder != anyHolder {
		p = x.holder(holder)
	}
	x.s.Complete(x.m.now, p, graphTasks, graphQueue, tasks, &x.rec, func(i int) { got = append(got, i) })
	if want := x.m.complete(holder, tasks); !slices.Equal(got, want) {
		return fmt.Errorf("missing: got %v, want %v", got, want)
	}
	return nil
}

// crash starts a new scheduler with the journal. All, one or none of the holders come back.
func (x *graphMachine) crash(who int) error {
	comes := func(name string) bool { return who < 2 || who == 2 && name == "h0" }
	holder := func(_ Space, name string) *Peer {
		if comes(name) {
			return x.holder(name)
		}
		return nil
	}
	if who == 3 {
		holder = nil
	}
	x.m.restart(comes)
	last := x.s.lastSeq.Load()
	x.open()
	for _, seq := range slices.Sorted(maps.Keys(x.journal[0])) {
		j := x.journal[0][seq]
		if err := x.s.Restore(x.m.now, &j); err != nil {
			return err
		}
	}
	x.s.Resume(x.m.now, last, holder, &x.rec)
	return nil
}

// drain completes every task. Then the journal has the queue alone.
func (x *graphMachine) drain() error {
	for i := range x.peers {
		x.s.Disconnect(x.m.now, x.peers[i], &x.rec)
		x.m.forget(x.m.workers[i])
	}
	x.m.now.Wall, x.m.now.Mono = x.m.now.Wall+10_000, x.m.now.Mono+10_000
	if err := x.run("tick"); err != nil {
		return err
	}
	for _, h := range []string{"h0", "h1"} {
		x.s.Disconnect(x.m.now, x.holder(h), &x.rec)
		delete(x.holders, h)
		x.m.forgetHolder(h)
	}
	for active, _ := x.s.Backlog(graphQueue); active > 0; active-- {
		if err := x.steal("h0", 1); err != nil {
			return err
		}
		var tasks []Task
		for _, j := range x.m.all {
			if j.state == reserved {
				tasks = append(tasks, Task{Name: []byte(j.name)})
			}
		}
		if err := x.complete("h0", tasks); err != nil {
			return err
		}
		if err := x.compare(); err != nil {
			return err
		}
	}
	for _, j := range x.journal[0] {
		if j.Kind != KindQueue {
			return fmt.Errorf("the journal is left with %+v", j)
		}
	}
	active, _ := x.s.Backlog(graphQueue)
	return same("tasks left", active, 0)
}
