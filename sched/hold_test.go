//go:build invariants

package sched

import (
	"fmt"
	"testing"
)

// manyItems returns the number of items of each kind in a test: short in a short one.
func manyItems(short int) int {
	if testing.Short() {
		return short
	}
	return 1_000_000
}

// maxHeldSteps bounds the steps under one hold of a shard's lock: Release scans the jobs that a
// worker may have asked for, a job's end answers MaxAwaits awaits, and either is done with a batch
// of other work.
const maxHeldSteps = MaxSlots + MaxAwaits + 2*defaultBatch

// loadedSched is a scheduler of one shard that has very much of something.
type loadedSched struct {
	*Scheduler
	t    *testing.T
	now  Time
	ids  SessionID
	jobs int
	many int // number of items of each kind
}

// The spaces of a loadedSched.
const (
	heldPlain Space = iota
	heldOwned
	heldTask
)

// newLoadedSched returns a scheduler for many items of each kind.
func newLoadedSched(t *testing.T, many int) *loadedSched {
	x := &loadedSched{t: t, now: Time{Wall: 1_700_000_000_250}, many: many}
	x.Scheduler = New(Options{Rules: [MaxSpaces]Rules{
		heldOwned: {Global: true, Owned: true, Untimed: true, MaxFailures: 3}, heldTask: {Graph: true, Untimed: true},
	}})
	return x
}

func (x *loadedSched) ok(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *loadedSched) peer(capabilities Capabilities, queues ...string) *Peer {
	x.ids++
	p := x.NewPeer(x.ids, capabilities)
	p.window = 1 << 40
	for _, q := range queues {
		x.ok(x.Watch(x.now, p, []byte(q), false, discardAll{}))
	}
	return p
}

// submit submits n jobs and lets change edit each.
func (x *loadedSched) submit(n int, queue string, change func(i int, j *Submission)) {
	x.t.Helper()
	for i := range n {
		x.jobs++
		j := Submission{Queue: []byte(queue), Name: fmt.Append(nil, x.jobs)}
		if change != nil {
			change(i, &j)
		}
		err := x.Submit(x.now, &j, discardAll{})
		x.ok(err)
	}
}

// take reserves n jobs for a peer.
func (x *loadedSched) take(p *Peer, n int) {
	for i := range n {
		x.ok(x.Reserve(x.now, p, uint64(i), discardAll{}))
	}
}

func (x *loadedSched) tasks(n int, after ...[]byte) (all []Task) {
	for range n {
		x.jobs++
		all = append(all, Task{Name: fmt.Appendf(nil, "t%d", x.jobs), After: after})
	}
	for rest := all; len(rest) > 0; rest = rest[min(len(rest), 1000):] {
		x.ok(x.AddTasks(x.now, heldTask, []byte("t"), rest[:min(len(rest), 1000)], discardAll{}))
	}
	return all
}

func (x *loadedSched) steal(p *Peer, n int) {
	got := 0
	x.Steal(x.now, p, []byte("t"), n, discardAll{}, func(*TaskView) bool { got++; return true })
	if got != n {
		x.t.Fatalf("%d tasks are stolen, want %d", got, n)
	}
}

// takeWith reserves n jobs for a peer and locks a lock with each.
func (x *loadedSched) takeWith(p *Peer, n int, queue string, count func(i int) int, want bool) {
	sink := new(lastRun)
	for i := range n {
		x.ok(x.Reserve(x.now, p, uint64(i), sink))
		got, err := x.AcquireLock(x.now, p, sink.run, "lock", count(i), discardAll{})
		if x.ok(err); got != want {
			x.t.Fatalf("job %d of %s has the lock: %v", i, queue, got)
		}
	}
}

// change changes all jobs, and returns how many.
func (x *loadedSched) change(c *JobChange) (changed int) {
	var refs []JobRef
	for at, done := (Cursor{}), false; !done; {
		at, done = x.Walk(at, WalkBatch, func(j *Job) { refs = append(refs, j.Ref) })
	}
	return x.ChangeJobs(x.now, refs, c, discardAll{}, func(int, error) {})
}

// request returns a request for jobs of queue f.
func (x *loadedSched) request() *Peer {
	p := x.NewRequestPeer(0, "")
	x.ok(x.Watch(x.now, p, []byte("f"), false, discardAll{}))
	return p
}

// lease leases n jobs for a second.
func (x *loadedSched) lease(n int) {
	for p := x.request(); n > 0; {
		sink := new(allRuns)
		got, _, err := x.TryReserveUpTo(x.now, p, 1, n, sink)
		if x.ok(err); got == 0 {
			x.t.Fatal("nothing is leased")
		}
		x.Grant(x.now, p, sink.runs, LeaseTerms{For: 1000})
		n -= got
	}
}

// allRuns is a sink that keeps all runs handed out.
type allRuns struct{ runs []Run }

func (s *allRuns) Deliver(d *Delivery) { s.runs = append(s.runs, d.Job.Run()) }

// lastRun is a sink that keeps the last run handed out.
type lastRun struct{ run Run }

func (s *lastRun) Deliver(d *Delivery) { s.run = d.Job.Run() }

// holdCases prepare a scheduler each, and return what is measured.
type holdCases map[string]func(x *loadedSched) (act func())

// workerHolds are of workers, and of the requests of HTTP.
var workerHolds = holdCases{
	"a worker that holds very many jobs leaves": func(x *loadedSched) func() {
		p := x.peer(LongNames, "f")
		x.submit(x.many, "f", nil)
		x.take(p, x.many)
		return func() { x.Disconnect(x.now, p, discardAll{}) }
	},
	"their time is over": func(x *loadedSched) func() {
		p := x.peer(LongNames, "f")
		x.submit(x.many, "f", nil)
		x.take(p, x.many)
		return func() { x.SetTimeout(1000); x.now.Mono += 2000 }
	},
	"very many leases expire": func(x *loadedSched) func() {
		x.submit(x.many, "f", nil)
		x.lease(x.many)
		return func() { x.now.Mono += 2000 }
	},
	"a request of very many jobs, with very many leased, hangs up": func(x *loadedSched) func() {
		x.submit(x.many, "f", nil)
		x.lease(x.many - MaxRequestJobs)
		p := x.request()
		sink := new(allRuns)
		_, _, err := x.TryReserveUpTo(x.now, p, 1, MaxRequestJobs, sink)
		x.ok(err)
		x.Grant(x.now, p, sink.runs[:MaxRequestJobs/2], LeaseTerms{For: 1000})
		return func() { x.Disconnect(x.now, p, discardAll{}) }
	},
	"a worker releases one of very many": func(x *loadedSched) func() {
		p := x.peer(LongNames, "f")
		x.submit(x.many, "f", nil)
		x.take(p, x.many)
		return func() { x.ok(x.ReleaseNewest(x.now, p, uint64(x.many-1), discardAll{})) }
	},
	"a worker with very many requests comes to very many jobs": func(x *loadedSched) func() {
		p := x.peer(LongNames, "f")
		x.take(p, MaxSlots)
		x.submit(x.many, "g", nil)
		return func() { x.ok(x.Watch(x.now, p, []byte("g"), false, discardAll{})) }
	},
	"a worker of very many queues asks and leaves": func(x *loadedSched) func() {
		p := x.peer(LongNames, "f")
		for i := range maxWatches - 1 {
			x.ok(x.Watch(x.now, p, fmt.Append(nil, i), false, discardAll{}))
		}
		return func() {
			x.take(p, 2)
			x.Disconnect(x.now, p, discardAll{})
		}
	},
	"a worker has very many names to report, and jobs of all of them come": func(x *loadedSched) func() {
		p := x.peer(NameOnly, "f")
		x.SetTimeout(1000)
		x.submit(maxUnreported, "f", nil)
		x.take(p, maxUnreported)
		x.now.Mono += 1500
		x.ticks(x.now, discardAll{})
		x.take(p, 1)
		return func() { x.now.Mono += 5000 }
	},
}

// submitterHolds are of submitters, of those who wait for a result or a lock, and of jobs that become due.
var submitterHolds = holdCases{
	"the holder of a lock that very many wait for leaves": func(x *loadedSched) func() {
		const waiters = 32_000
		holder, waiter := x.peer(LongNames, "f"), x.peer(LongNames, "g")
		x.submit(waiters, "f", nil)
		x.submit(waiters, "g", nil)
		x.takeWith(holder, waiters, "f", func(int) int { return waiters }, true)
		x.takeWith(waiter, waiters, "g", func(i int) int { return i + 1 }, false)
		return func() { x.Disconnect(x.now, holder, discardAll{}) }
	},
	"a broadcast to very many": func(x *loadedSched) func() {
		for range x.many / MaxSlots {
			p := x.peer(0)
			x.ok(x.Watch(x.now, p, []byte("f"), true, discardAll{}))
			x.take(p, MaxSlots)
		}
		return func() { x.submit(1, "f", nil) }
	},
	"very many jobs of very many queues are due": func(x *loadedSched) func() {
		at := x.now.Wall/1000 + 1
		p := x.peer(LongNames, "f")
		x.submit(x.many, "f", func(_ int, j *Submission) { j.SchedAt = at })
		for i := range x.many / 10 {
			x.submit(1, fmt.Sprint(i), func(_ int, j *Submission) { j.SchedAt = at })
		}
		x.take(p, MaxSlots)
		return func() { x.now.Wall += 2000 }
	},
	"a master of very many jobs leaves": func(x *loadedSched) func() {
		p := x.peer(LongNames)
		x.submit(x.many, "f", func(_ int, j *Submission) { j.Space, j.Await = heldOwned, p })
		return func() { x.Disconnect(x.now, p, discardAll{}) }
	},
	"its names are taken again": func(x *loadedSched) func() {
		p, heir := x.peer(LongNames), x.peer(LongNames)
		x.submit(x.many, "f", func(_ int, j *Submission) { j.Space, j.Await = heldOwned, p })
		return func() {
			x.Disconnect(x.now, p, discardAll{})
			x.jobs = 0
			x.submit(1000, "f", func(_ int, j *Submission) { j.Space, j.Await = heldOwned, heir })
		}
	},
	"a result that very many await": func(x *loadedSched) func() {
		p := x.peer(LongNames, "f")
		x.take(p, 1)
		sink := new(lastRun)
		j := Submission{Queue: []byte("f"), Name: []byte("awaited")}
		for range MaxAwaits {
			j.Await = x.peer(LongNames)
			err := x.Submit(x.now, &j, sink)
			x.ok(err)
		}
		return func() { x.ok(x.Finish(x.now, p, sink.run, make([]byte, 1<<20), discardAll{})) }
	},
}

// taskHolds are of tasks with their graph.
var taskHolds = holdCases{
	"a holder of very many tasks exits": func(x *loadedSched) func() {
		p := x.NewHolderPeer("h")
		x.tasks(x.many)
		x.steal(p, x.many)
		return func() { x.Disconnect(x.now, p, discardAll{}) }
	},
	"a task that very many wait for is complete": func(x *loadedSched) func() {
		p := x.NewHolderPeer("h")
		hub := x.tasks(1)
		x.steal(p, 1)
		x.tasks(x.many, hub[0].Name)
		return func() {
			x.Complete(x.now, p, heldTask, []byte("t"), hub, discardAll{}, func(int) { x.t.Error("it is not complete") })
		}
	},
	"a task that waits for very many is cancelled": func(x *loadedSched) func() {
		last := x.tasks(1)
		for _, t := range x.tasks(x.many) {
			x.ok(x.AddTasks(x.now, heldTask, []byte("t"), []Task{{Name: last[0].Name, After: [][]byte{t.Name}}}, discardAll{}))
		}
		return func() { x.RemoveTask(x.now, heldTask, []byte("t"), last[0].Name, discardAll{}) }
	},
	"very many complete tasks are forgotten": func(x *loadedSched) func() {
		p := x.NewHolderPeer("h")
		x.SetRemember(1000)
		all := x.tasks(x.many)
		x.steal(p, x.many)
		x.Complete(x.now, p, heldTask, []byte("t"), all, discardAll{}, nil)
		return func() { x.now.Mono += 2000 }
	},
}

// operatorHolds are of an operator, who asks or changes.
var operatorHolds = holdCases{
	"a STATUS with very many due seconds": func(x *loadedSched) func() {
		x.submit(x.many, "f", func(i int, j *Submission) { j.SchedAt, j.Priority = int64(i+1), int64(i%2) })
		x.submit(x.many, "g", func(i int, j *Submission) { j.SchedAt, j.Priority = int64(i+1), int64(i) })
		return func() {
			x.Status(func(q QueueStatus) {
				if q.SchedAt != 1 {
					x.t.Errorf("%+v", q)
				}
			})
		}
	},
	"a STATUS of very many queues": func(x *loadedSched) func() {
		for i := range x.many {
			x.submit(1, fmt.Sprint(i), nil)
		}
		return func() { x.Status(func(QueueStatus) {}) }
	},
	"an operator moves very many jobs to workers that wait": func(x *loadedSched) func() {
		p := x.peer(LongNames, "g")
		x.submit(x.many, "f", nil)
		x.take(p, MaxSlots)
		return func() {
			if n := x.change(&JobChange{Verb: MoveJobs, Queue: "g"}); n != x.many {
				x.t.Errorf("%d jobs have moved", n)
			}
		}
	},
	"an operator removes very many jobs that a worker holds": func(x *loadedSched) func() {
		p := x.peer(NameOnly, "f")
		x.submit(x.many, "f", nil)
		x.take(p, x.many)
		return func() { x.change(&JobChange{Verb: RemoveJobs}) }
	},
	"a queue of very many jobs is dropped": func(x *loadedSched) func() {
		x.submit(x.many, "f", nil)
		return func() { x.Drop([]byte("f")) }
	},
	"a walk over very many jobs": func(x *loadedSched) func() {
		x.submit(x.many, "f", nil)
		x.submit(20, "f", func(_ int, j *Submission) { j.Workload = make([]byte, 8<<20) })
		return func() {
			for c, done := (Cursor{}), false; !done; {
				c, done = x.Walk(c, defaultBatch, func(*Job) {})
			}
		}
	},
}

// TestLongestHold checks that no verb does more than maxHeldSteps steps under one hold of a shard's
// lock, with very much of everything a peer can have.
func TestLongestHold(t *testing.T) {
	for _, cases := range []holdCases{workerHolds, submitterHolds, taskHolds, operatorHolds} {
		testHolds(t, manyItems(40_000), cases)
	}
}

// testHolds checks that no verb and no Tick of a case takes more steps under one hold of the lock than are allowed. A
// case prepares a scheduler and returns what is measured. many is the number of items of each kind.
func testHolds(t *testing.T, many int, cases holdCases) {
	for what, prepare := range cases {
		x := newLoadedSched(t, many)
		x.SetTimeout(0)
		act := prepare(x)
		x.ticks(x.now, discardAll{})
		g := &x.shards[0].mu
		g.maxSteps = 0
		act()
		x.ticks(x.now, discardAll{})
		t.Logf("%s: %d steps of %d", what, g.maxSteps, g.steps)
		if g.maxSteps > maxHeldSteps || g.maxSteps == 0 {
			t.Errorf("%s: %d steps under one hold of the lock, of which %d are allowed", what, g.maxSteps, maxHeldSteps)
		}
	}
}
