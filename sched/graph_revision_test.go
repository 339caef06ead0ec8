package sched

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// taskSpace is the space of these tests. Its tasks are only stolen.
const taskSpace Space = 3

var taskRules = [MaxSpaces]Rules{taskSpace: {Durable: true, Graph: true, Untimed: true, Private: true}}

// taskSched is a test scheduler of several shards, with a journal and one holder.
type taskSched struct {
	*testSched
	journal memJournal
	h       *Peer
}

func newTaskSched(t testing.TB) *taskSched {
	x := &taskSched{journal: make(memJournal, 8)}
	for i := range x.journal {
		x.journal[i] = make(map[uint64]Saved)
	}
	x.testSched = newTestSched(t, Options{Rules: taskRules, Journal: x.journal, Shards: len(x.journal)})
	x.h = x.s.NewHolderPeer("h")
	t.Cleanup(x.sane)
	return x
}

func (x *taskSched) sane() {
	x.t.Helper()
	if err := x.s.check(); err != nil {
		x.t.Error(err)
	}
}

func (x *taskSched) extend(queue string, tasks ...string) {
	x.t.Helper()
	x.ok(x.s.AddTasks(x.now, taskSpace, []byte(queue), graphTaskList(tasks...), &x.rec))
}

// steal steals the first task. It returns "" when there is none.
func (x *taskSched) steal(queue string) (name string, l TaskRevision) {
	x.s.Steal(x.now, x.h, []byte(queue), 1, &x.rec, func(v *TaskView) bool {
		name, l = string(v.Name), TaskRevision{v.Ref, v.Revision}
		return true
	})
	return name, l
}

// all steals all tasks in line.
func (x *taskSched) all(queue string) (names []string) {
	for {
		name, _ := x.steal(queue)
		if name == "" {
			return names
		}
		names = append(names, name)
	}
}

func (x *taskSched) wantAll(queue string, want ...string) {
	x.t.Helper()
	if got := x.all(queue); !slices.Equal(got, want) {
		x.t.Errorf("queue %s: got %q, want %q", queue, got, want)
	}
}

func (x *taskSched) refused(want, err error) {
	x.t.Helper()
	if !errors.Is(err, want) {
		x.t.Errorf("got %v, want %v", err, want)
	}
	x.sane()
}

// restart makes a new scheduler from the journal, with one holder for each space and name.
func (x *taskSched) restart() (holders map[string]*Peer) {
	x.t.Helper()
	holders = make(map[string]*Peer)
	last := x.s.lastSeq.Load()
	var saved []Saved
	for _, shard := range x.journal {
		for _, j := range shard {
			saved = append(saved, j)
		}
		clear(shard)
	}
	slices.SortFunc(saved, func(a, b Saved) int { return int(int64(a.Ref.Seq - b.Ref.Seq)) })
	seed := x.s.seed // each queue stays in its shard
	x.s = New(Options{Rules: taskRules, Journal: x.journal, Shards: len(x.journal)})
	x.s.seed = seed
	for _, j := range saved {
		x.journal.Save(x.s.ShardOf([]byte(j.Queue)), &j)
		x.ok(x.s.Restore(x.now, &j))
	}
	x.s.Resume(x.now, last, func(space Space, name string) *Peer {
		key := fmt.Sprint(space, name)
		if holders[key] == nil {
			holders[key] = x.s.NewHolderPeer(name)
		}
		return holders[key]
	}, &x.rec)
	x.h = x.s.NewHolderPeer("later")
	return holders
}

// TestPrivate checks that a private task is never handed to a peer that reserves, whatever its
// capabilities and whenever it asks. Other jobs of the queue are.
func TestPrivate(t *testing.T) {
	x := newTaskSched(t)
	early, late := x.capable(LongNames, "q"), x.capable(NameOnly|LongNames)
	x.reserve(early, 1)
	long := strings.Repeat("n", maxShort+1)
	x.extend("q", "a", long, "b<a")
	x.ok(x.s.Watch(x.now, late, []byte("q"), true, &x.rec))
	x.reserve(late, 2)
	x.now.Mono += 1 << 20
	x.now.Wall += 1 << 20
	x.s.ticks(x.now, &x.rec)
	x.want()
	if got := x.s.Stats().Jobs; got != 3 {
		t.Errorf("%d jobs are counted", got)
	}
	x.s.Status(func(q QueueStatus) {
		if q.Jobs != 3 || q.Workers != 2 {
			t.Errorf("the status is %+v", q)
		}
	})
	x.submit("q", "public")
	x.want("1 1 broadcast public", "2 2 broadcast public") // as long as late asks for it
	if x.s.Drop([]byte("q")) || x.s.Remove(x.now, taskSpace, []byte("q"), []byte("a"), &x.rec) {
		t.Error("the tasks were dropped or removed")
	}
	x.wantAll("q", "a", long)
	x.sane()
}

// TestRevision checks that a revision is used once: every verb refuses an old one, and a task that
// comes back keeps its last.
func TestRevision(t *testing.T) {
	x := newTaskSched(t)
	x.extend("q", "a", "b", "c")
	name, l := x.steal("q")
	if name != "a" || l.Number != 0 {
		t.Fatalf("%s under %v", name, l)
	}
	x.ok(x.s.ReviseTask(x.h, l, 7))
	old, l := l, TaskRevision{l.Ref, 7}
	other := x.s.NewHolderPeer("other")
	for _, f := range []struct {
		p    *Peer
		l    TaskRevision
		want error
	}{{x.h, old, errStale}, {other, l, errNotHolder}, {x.h, TaskRevision{JobRef{Shard: 99}, 7}, ErrNotFound}} {
		x.refused(f.want, x.s.ReviseTask(f.p, f.l, 8))
		x.refused(f.want, x.s.ReleaseTask(x.now, f.p, f.l, true, &x.rec))
		x.refused(f.want, x.s.FinishTask(x.now, f.p, f.l, &x.rec))
	}
	if got := x.s.Stats().Stale; got != 6 { // of the third there is not even a shard
		t.Errorf("%d stale ones are counted", got)
	}
	x.ok(x.s.ReleaseTask(x.now, x.h, l, false, &x.rec))
	x.refused(ErrNotFound, x.s.ReleaseTask(x.now, x.h, l, false, &x.rec))
	if name, l = x.steal("q"); name != "b" {
		t.Fatalf("%s is the next", name)
	}
	x.ok(x.s.ReleaseTask(x.now, x.h, l, true, &x.rec))
	x.wantAll("q", "b", "c", "a")
	found := x.s.LookupTask(taskSpace, []byte("q"), []byte("a"), func(v *TaskView) { l = TaskRevision{v.Ref, v.Revision} })
	if !found || l.Number != 7 {
		t.Errorf("a came back under %v", l)
	}
	x.ok(x.s.ReviseTask(x.h, l, 8, Event{StageOther, 5}))
	x.s.LookupTask(taskSpace, []byte("q"), []byte("a"), func(v *TaskView) {
		if last := v.Log[len(v.Log)-1]; last != (Event{StageOther, 5}) || v.Revision != 8 {
			t.Errorf("its log ends with %v, its revision is %d", last, v.Revision)
		}
	})
	l.Number = 8
	x.ok(x.s.FinishTask(x.now, x.h, l, &x.rec))
	x.refused(ErrNotFound, x.s.FinishTask(x.now, x.h, l, &x.rec))
	if active, _ := x.s.Backlog([]byte("q")); active != 2 {
		t.Errorf("%d tasks are left", active)
	}
}

// TestRevisionRestart checks that holder and revision outlive the process, and that holders of
// different spaces differ.
func TestRevisionRestart(t *testing.T) {
	x := newTaskSched(t)
	x.extend("q", "a", "b")
	_, l := x.steal("q")
	x.ok(x.s.ReviseTask(x.h, l, -5))
	l.Number = -5
	x.ok(x.s.ReviseTask(x.h, l, 1<<60))
	holders := x.restart()
	p := holders["3h"]
	if p == nil || len(holders) != 1 {
		t.Fatalf("the holders are %v", holders)
	}
	x.s.LookupTask(taskSpace, []byte("q"), []byte("a"), func(v *TaskView) { l = TaskRevision{v.Ref, v.Revision} })
	if l.Number != 1<<60 {
		t.Fatalf("a came back under %v", l)
	}
	x.ok(x.s.ReleaseTask(x.now, p, l, false, &x.rec))
	x.restart()
	x.s.LookupTask(taskSpace, []byte("q"), []byte("a"), func(v *TaskView) {
		if v.Revision != 1<<60 || v.Stage != StageReady {
			t.Errorf("a came back in stage %d under %d", v.Stage, v.Revision)
		}
	})
	x.wantAll("q", "a", "b")
}

// TestRemoveTask checks that RemoveTask removes a task in any state and frees its successors.
func TestRemoveTask(t *testing.T) {
	x := newTaskSched(t)
	cancel := func(name string, want bool) {
		t.Helper()
		if got := x.s.RemoveTask(x.now, taskSpace, []byte("q"), []byte(name), &x.rec); got != want {
			t.Errorf("cancelling %s: %v", name, got)
		}
		x.sane()
	}
	cancel("nothing", false)
	x.extend("q", "held", "ready", "waiting<held", "after-waiting<waiting", "after-held<held", "kept")
	_, l := x.steal("q")
	cancel("ready", true)
	cancel("ready", false)
	cancel("waiting", true)
	cancel("held", true)
	x.refused(ErrNotFound, x.s.ReviseTask(x.h, l, 1))
	if st := x.s.Stats(); st.Removed != 3 || st.Done != 0 {
		t.Errorf("%+v", st.Counters)
	}
	if _, ready := x.s.Backlog([]byte("q")); ready != 3 {
		t.Errorf("%d tasks are ready", ready)
	}
	x.restart()
	x.wantAll("q", "after-waiting", "after-held", "kept")
}

// TestHead checks that heads of queues can be compared across shards and restarts.
func TestHead(t *testing.T) {
	x := newTaskSched(t)
	queues := strings.Fields("e d c b a f g h i j")
	if _, ok := x.s.Head([]byte("a")); ok {
		t.Error("an empty queue has a head")
	}
	for _, q := range queues {
		x.extend(q, "1")
	}
	for _, q := range queues {
		x.extend(q, "2")
	}
	order := func() string {
		var all []string
		for {
			first, least := "", int64(0)
			for _, q := range queues {
				if place, ok := x.s.Head([]byte(q)); ok && (first == "" || place < least) {
					first, least = q, place
				}
			}
			if first == "" {
				return strings.Join(all, " ")
			}
			name, _ := x.steal(first)
			all = append(all, first+name)
		}
	}
	_, l := x.steal("a")
	x.ok(x.s.ReleaseTask(x.now, x.h, l, true, &x.rec))
	_, l = x.steal("e")
	x.ok(x.s.ReleaseTask(x.now, x.h, l, false, &x.rec))
	if got, want := order(), "a1 d1 c1 b1 f1 g1 h1 i1 j1 e2 d2 c2 b2 a2 f2 g2 h2 i2 j2 e1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, p := range x.restart() {
		x.s.Disconnect(x.now, p, &x.rec)
	}
	x.restart()
	queues = append(queues, "z")
	x.extend("z", "1")
	if got, want := order(), "e1 d1 c1 b1 a1 f1 g1 h1 i1 j1 e2 d2 c2 b2 a2 f2 g2 h2 i2 j2 z1"; got != want {
		t.Errorf("after a restart: got %s, want %s", got, want)
	}
}

// oneSave is a Journal that notes the records of tasks in order.
type oneSave struct{ saved []Saved }

func (o *oneSave) Save(_ int, j *Saved) {
	if j.Space == taskSpace {
		saved := *j
		saved.Workload, saved.Log = slices.Clone(j.Workload), slices.Clone(j.Log)
		o.saved = append(o.saved, saved)
	}
}
func (o *oneSave) Drop(int, uint64) {}
func (o *oneSave) Begin(int)        {}
func (o *oneSave) End(int)          {}

// TestStealIsOneRecord checks that a stolen task is journaled in one record with its new revision
// and log entries: a crash cannot keep a part of it.
func TestStealIsOneRecord(t *testing.T) {
	var journal oneSave
	s := New(Options{Rules: taskRules, Journal: &journal})
	var rec recorder
	if err := s.AddTasks(Time{}, taskSpace, []byte("q"), graphTaskList("a"), &rec); err != nil {
		t.Fatal(err)
	}
	before := len(journal.saved)
	s.Steal(Time{}, s.NewHolderPeer("h"), []byte("q"), 1, &rec, func(v *TaskView) bool {
		v.Revision = 46
		v.Log = append(v.Log, Event{StageOther, 9})
		return true
	})
	if n := len(journal.saved) - before; n != 1 {
		t.Fatalf("%d records were saved, want 1", n)
	}
	back := New(Options{Rules: taskRules})
	if err := back.Restore(Time{}, &journal.saved[before]); err != nil {
		t.Fatal(err)
	}
	h := back.NewHolderPeer("h")
	back.Resume(Time{}, 0, func(Space, string) *Peer { return h }, &rec)
	if !back.LookupTask(taskSpace, []byte("q"), []byte("a"), func(v *TaskView) {
		if v.Holder != "h" || v.Revision != 46 || v.Log[len(v.Log)-1] != (Event{StageOther, 9}) {
			t.Errorf("restored as %+v", v)
		}
	}) {
		t.Error("the task is lost")
	}
}
