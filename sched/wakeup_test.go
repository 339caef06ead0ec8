package sched

import (
	"fmt"
	"testing"
)

// singleJob is a scheduler with one submitter, one worker and at most one job at a time: no later
// traffic repairs a lost wake-up.
type singleJob struct {
	t      *testing.T
	s      *Scheduler
	worker *Peer
	queues [][]byte
	sink   inboxes
}

var testNow = Time{Wall: 1_700_000_000_000}

func newSingleJob(t *testing.T, queues, window int) *singleJob {
	x := &singleJob{t: t, s: New(Options{Shards: 8, Window: window}), sink: newInboxes(1)}
	x.worker = x.s.NewPeer(0)
	for i := range queues {
		x.queues = append(x.queues, fmt.Append(nil, "queue ", i))
		x.watch(i)
	}
	return x
}

func (x *singleJob) watch(round int) {
	if err := x.s.Watch(testNow, x.worker, x.queues[round%len(x.queues)], false, x.sink); err != nil {
		x.t.Error(err)
	}
}

func (x *singleJob) submit(round int) {
	j := Submission{Queue: x.queues[round%len(x.queues)], Name: fmt.Append(nil, round), Workload: make([]byte, 100)}
	if err := x.s.Submit(testNow, &j, x.sink); err != nil {
		x.t.Error(err)
	}
}

func (x *singleJob) reserve(round int) {
	if err := x.s.Reserve(testNow, x.worker, uint64(round), x.sink); err != nil {
		x.t.Error(err)
	}
}

// served waits for the round's job and finishes it.
func (x *singleJob) served(round int) bool {
	all := x.sink[0].wait(nil)
	if len(all) == 0 {
		return false
	}
	d := all[0]
	if d.effect != Assign || d.tag != uint64(round) || d.job.name != fmt.Sprint(round) {
		x.t.Errorf("round %d: %+v", round, d)
	}
	return x.s.Finish(testNow, x.worker, d.job.run, nil, x.sink) == nil
}

func (x *singleJob) flushed(int) { x.s.Flushed(testNow, x.worker, 0, x.sink) }

func (x *singleJob) end() {
	if err := x.s.check(); err != nil {
		x.t.Error(err)
	}
	if n := x.s.Stats().Jobs; n != 0 {
		x.t.Errorf("%d jobs are left", n)
	}
}

// unlined takes the worker, which has no slot, out of line: it submits a job, which finds no slot
// there.
func (x *singleJob) unlined(round int) {
	j := Submission{Queue: x.queues[round%len(x.queues)], Name: []byte("primer")}
	if err := x.s.Submit(testNow, &j, x.sink); err != nil {
		x.t.Error(err)
	}
	if !x.s.Remove(testNow, 0, j.Queue, j.Name, x.sink) {
		x.t.Error("the primer was gone")
	}
}

// TestNoLostWakeupReserve checks that a job submitted while its only worker reserves is handed out,
// whichever comes first: to a worker of one queue, and to one of several queues on several shards,
// whose Reserve takes several locks one after the other.
func TestNoLostWakeupReserve(t *testing.T) {
	for _, queues := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(queues, " queues"), func(t *testing.T) {
			x := newSingleJob(t, queues, 0)
			duel(t, x.unlined, x.submit, func(round int) bool {
				x.reserve(round)
				x.flushed(round)
				return x.served(round)
			})
			x.end()
		})
	}
}

// TestNoLostWakeupFlushed checks that a job submitted while its only, blocked worker reports that
// its bytes are sent is handed out.
func TestNoLostWakeupFlushed(t *testing.T) {
	for _, queues := range []int{1, 5} {
		t.Run(fmt.Sprint(queues, " queues"), func(t *testing.T) {
			x := newSingleJob(t, queues, 100) // one job fills the window
			duel(t, x.reserve, x.submit, func(round int) bool {
				x.flushed(round)
				return x.served(round)
			})
			x.end()
		})
	}
}

// TestNoLostWakeupSleep checks that a job submitted while its worker falls asleep wakes it, and is
// there when it reserves.
func TestNoLostWakeupSleep(t *testing.T) {
	for _, queues := range []int{1, 5} {
		t.Run(fmt.Sprint(queues, " queues"), func(t *testing.T) {
			x := newSingleJob(t, queues, 0)
			duel(t, x.unlined, x.submit, func(round int) bool {
				if err := x.s.Sleep(testNow, x.worker, uint64(round), x.sink); err != nil {
					t.Error(err)
				}
				if d := x.sink[0].wait(nil); len(d) != 1 || d[0].effect != Wake {
					return false
				}
				x.flushed(round)
				ok, err := x.s.TryReserve(testNow, x.worker, uint64(round), x.sink)
				return ok && err == nil && x.served(round)
			})
			x.end()
		})
	}
}

// TestNoLostWakeupWatch checks that a job submitted to a queue while a peer with a slot becomes its
// worker is handed out.
func TestNoLostWakeupWatch(t *testing.T) {
	x := newSingleJob(t, 5, 0)
	before := func(round int) {
		x.s.Unwatch(x.worker, x.queues[round%len(x.queues)])
		x.reserve(round)
	}
	duel(t, before, x.submit, func(round int) bool {
		x.watch(round)
		x.flushed(round)
		return x.served(round)
	})
	x.end()
}

// TestNoLostWakeupFail checks that a job that one peer gives back while another reserves is handed
// out.
func TestNoLostWakeupFail(t *testing.T) {
	x := newSingleJob(t, 2, 0)
	x.sink = newInboxes(2)
	other := x.s.NewPeer(1 << inboxShift)
	var held Run
	before := func(round int) {
		if err := x.s.Watch(testNow, other, x.queues[round%2], false, x.sink); err != nil {
			t.Error(err)
		}
		if err := x.s.Reserve(testNow, other, 0, x.sink); err != nil {
			t.Error(err)
		}
		x.submit(round)
		held = x.sink[1].wait(nil)[0].job.run
		x.s.Flushed(testNow, other, 0, x.sink)
	}
	release := func(round int) {
		if round%3 == 0 {
			x.s.Disconnect(testNow, other, x.sink)
			other = x.s.NewPeer(1 << inboxShift)
		} else if err := x.s.Fail(testNow, other, held, nil, x.sink); err != nil {
			t.Error(err)
		}
	}
	duel(t, before, release, func(round int) bool {
		x.reserve(round)
		x.flushed(round)
		return x.served(round)
	})
	x.end()
}

// TestWakeOfBlockedPeer checks that a Sleep is answered at once although back-pressure keeps jobs from
// the peer, and its watch stands in line at the age of a slot that is gone.
func TestWakeOfBlockedPeer(t *testing.T) {
	x := newTestSched(t, Options{Shards: 1, Window: 600, Batch: 1})
	p := x.peer("f", "g")
	for _, j := range [][2]string{{"f", "large"}, {"f", "a"}, {"g", "b"}} {
		if _, err := x.submit(j[0], j[1], func(s *Submission) { s.Workload = make([]byte, 600) }); err != nil {
			t.Fatal(err)
		}
	}
	x.reserve(p, 1)
	x.want("1 1 assign large")
	if ok, err := x.s.TryReserve(x.now, p, 2, &x.rec); ok || err != nil {
		t.Fatal(ok, err)
	}
	x.s.Remove(x.now, 0, []byte("f"), []byte("a"), &x.rec)
	if err := x.s.Sleep(x.now, p, 3, &x.rec); err != nil {
		t.Fatal(err)
	}
	x.want("1 3 wake ")
}
