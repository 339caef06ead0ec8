package sched

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

const (
	graphOnceTasks     = 20_000
	graphOnceProducers = 3
	graphOnceHolders   = 4
	graphOnceWorkers   = 2
)

// graphStress runs producers, holders, workers and a timer on one graph.
type graphStress struct {
	stress
	journal memJournal
	holders [2 * graphOnceTasks]atomic.Int32 // number of peers that hold a task
	over    [2 * graphOnceTasks]atomic.Bool  // tasks whose end was reported
	after   [2 * graphOnceTasks][]int        // written before the task is made
	fresh   atomic.Int64                     // the next task that a holder makes
}

// make adds a task; of those that it comes after all are made already.
func (x *graphStress) make(i int, more ...Task) {
	t := Task{Name: strconv.AppendInt(nil, int64(i), 10)}
	for _, a := range x.after[i] {
		t.After = append(t.After, strconv.AppendInt(nil, int64(a), 10))
	}
	if err := x.s.AddTasks(x.now(), graphTasks, graphQueue, append([]Task{t}, more...), x.sink); err != nil {
		x.fail("task %d: %v", i, err)
	}
}

func (x *graphStress) producer(first int) {
	r := rand.New(rand.NewPCG(uint64(first), 3))
	for i := first; i < graphOnceTasks; i += graphOnceProducers {
		for range min(r.IntN(5), i/graphOnceProducers) {
			x.after[i] = append(x.after[i], i-graphOnceProducers*(1+r.IntN(min(i/graphOnceProducers, 50))))
		}
		x.make(i)
	}
}

// handed checks that no other peer holds a task and that its predecessors are done.
func (x *graphStress) handed(name []byte) int {
	i, err := strconv.Atoi(string(name))
	if err != nil || x.holders[i].Add(1) != 1 || x.over[i].Load() {
		x.fail("task %q is in %d hands, done: %v", name, x.holders[i].Load(), x.over[i].Load())
	}
	for _, a := range x.after[i] {
		if !x.over[a].Load() {
			x.fail("task %d was handed out before task %d was done", i, a)
		}
	}
	return i
}

// ends is called before a task's end is reported.
func (x *graphStress) ends(i int) {
	if x.holders[i].Add(-1); x.over[i].Swap(true) {
		x.fail("task %d is done twice", i)
	}
}

func (x *graphStress) ended() {
	if x.left.Add(-1) == 0 {
		x.broken.Do(func() { close(x.finish) })
	}
}

func (x *graphStress) holder(n int) {
	r := rand.New(rand.NewPCG(uint64(n), 4))
	p := x.s.NewHolderPeer(strconv.Itoa(n))
	for {
		select {
		case <-x.finish:
			return
		default:
		}
		if x.round(r, p) {
			p = x.s.NewHolderPeer(strconv.Itoa(n))
		}
	}
}

// round steals some tasks, completes most of them, splits some and ends the holder with the rest.
func (x *graphStress) round(r *rand.Rand, p *Peer) (over bool) {
	var held, kept []int
	var done []Task
	x.s.Steal(x.now(), p, graphQueue, 1+r.IntN(16), x.sink, func(v *TaskView) bool {
		held = append(held, x.handed(v.Name))
		return true
	})
	for _, i := range held {
		switch what := r.IntN(100); {
		case what < 3:
			kept = append(kept, i)
		case what < 6:
			x.divide(p, i)
		default:
			x.ends(i)
			done = append(done, Task{Name: strconv.AppendInt(nil, int64(i), 10)})
		}
	}
	x.s.Complete(x.now(), p, graphTasks, graphQueue, done, x.sink, func(i int) { x.fail("task %s is missing", done[i].Name) })
	for range done {
		x.ended()
	}
	for _, i := range kept {
		x.holders[i].Add(-1)
	}
	if len(kept) > 0 {
		x.s.Disconnect(x.now(), p, x.sink)
	}
	if len(held) == 0 {
		runtime.Gosched()
	}
	return len(kept) > 0
}

// divide makes a task that is to be done before the rest of one that the peer holds.
func (x *graphStress) divide(p *Peer, i int) {
	part := int(x.fresh.Add(1))
	x.left.Add(1)
	x.make(part)
	x.after[i] = append(x.after[i], part)
	x.holders[i].Add(-1)
	t := Task{Name: strconv.AppendInt(nil, int64(i), 10), After: [][]byte{strconv.AppendInt(nil, int64(part), 10)}}
	if err := x.s.Transfer(x.now(), p, graphTasks, graphQueue, []Task{t}, x.sink); err != nil {
		x.fail("task %d: %v", i, err)
	}
}

// worker does tasks as jobs, not all of them at once.
func (x *graphStress) worker(box int) {
	r := rand.New(rand.NewPCG(uint64(box), 5))
	p := x.s.NewPeer(SessionID(box) << inboxShift)
	if err := x.s.Watch(x.now(), p, graphQueue, false, x.sink); err != nil {
		x.fail("watch: %v", err)
	}
	for tag := uint64(0); ; tag++ {
		if err := x.s.Reserve(x.now(), p, tag, x.sink); err != nil {
			x.fail("reserve: %v", err)
		}
		letters := x.sink[box].wait(x.finish)
		if letters == nil {
			select {
			case <-x.finish:
			default:
				x.fail("%d tasks are left and worker %d waits", x.left.Load(), box)
			}
			return
		}
		for _, d := range letters {
			i := x.handed([]byte(d.job.name))
			var err error
			switch what := r.IntN(100); {
			case what < 5:
				x.holders[i].Add(-1)
				err = x.s.Fail(x.now(), p, d.job.run, nil, x.sink)
			case what < 10:
				x.holders[i].Add(-1)
				err = x.s.Delay(x.now(), p, d.job.run, int64(r.IntN(2)), 1, x.sink)
			default:
				x.ends(i)
				if err = x.s.Finish(x.now(), p, d.job.run, nil, x.sink); err == nil {
					x.ended()
				}
			}
			if err != nil {
				x.fail("task %d: %v", i, err)
			}
		}
		x.s.Flushed(x.now(), p, 0, x.sink)
	}
}

// TestGraphExactlyOnce checks under concurrency that every task is done exactly once, after its
// predecessors, and held by one peer at a time. At the end the journal has the queue alone.
func TestGraphExactlyOnce(t *testing.T) {
	x := &graphStress{journal: memJournal{make(map[uint64]Saved)}}
	x.stress = stress{t: t, s: New(Options{Rules: graphRules, Journal: x.journal}), sink: newInboxes(graphOnceWorkers), finish: make(chan struct{})}
	x.wall.Store(1_700_000_000_000)
	x.left.Store(graphOnceTasks)
	x.fresh.Store(graphOnceTasks - 1)
	x.s.SetRemember(40 * grain)
	var all sync.WaitGroup
	for i := range graphOnceProducers {
		all.Go(func() { x.producer(i) })
	}
	for i := range graphOnceHolders {
		all.Go(func() { x.holder(i) })
	}
	for i := range graphOnceWorkers {
		all.Go(func() { x.worker(i) })
	}
	all.Go(x.timer)
	all.Wait()
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
	if active, _ := x.s.Backlog(graphQueue); active != 0 || len(x.journal[0]) != 1 {
		t.Errorf("%d tasks and %d records are left", active, len(x.journal[0]))
	}
}
