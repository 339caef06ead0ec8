//go:build invariants

package sched

import (
	"fmt"
	"strings"
	"testing"
)

// listedItems is the number of items of each kind.
const listedItems = 50_000

// listAll lists the jobs of a queue, or of all, and returns how many.
func (x *loadedSched) listAll(m *Match, queue string) (n int) {
	l, err := NewListing(m, []byte(queue), queue == "", "")
	x.ok(err)
	for done := false; !done; {
		done = x.List(x.now, l, defaultBatch, func(*JobView) bool { n++; return true })
	}
	return n
}

// slowMatch tries a pattern of a name at very many places.
var slowMatch = &Match{Names: []string{strings.Repeat("*a", 127) + "b"}}

// listHolds prepare a scheduler each, and return a listing with the number of jobs that it has to find.
var listHolds = map[string]func(x *loadedSched) (act func() int, want int){
	"ready jobs of one second": func(x *loadedSched) (func() int, int) {
		x.submit(listedItems, "f", nil)
		return func() int { return x.listAll(&Match{}, "f") }, listedItems
	},
	"ready jobs of as many priorities": func(x *loadedSched) (func() int, int) {
		x.submit(listedItems, "f", func(i int, j *Submission) { j.Priority = int64(i) })
		return func() int { return x.listAll(&Match{}, "f") }, listedItems
	},
	"jobs of which none matches": func(x *loadedSched) (func() int, int) {
		x.submit(listedItems, "f", func(_ int, j *Submission) {
			j.Name = append(make([]byte, 200), fmt.Sprint(x.jobs)...)
		})
		return func() int { return x.listAll(slowMatch, "f") + x.listAll(slowMatch, "") }, 0
	},
	"queues": func(x *loadedSched) (func() int, int) {
		for i := range listedItems {
			x.submit(1, fmt.Sprint(i), nil)
		}
		return func() int { return x.listAll(&Match{}, "") + x.listAll(&Match{Queues: []string{"none"}}, "") }, listedItems
	},
	"delayed jobs, in large ones": func(x *loadedSched) (func() int, int) {
		x.submit(listedItems, "f", func(i int, j *Submission) { j.SchedAt = x.now.Wall/1000 + 9 + int64(i%1000) })
		x.submit(20, "f", func(_ int, j *Submission) { j.Workload = make([]byte, 8<<20) })
		return func() int {
			return x.listAll(&Match{}, "f") + x.listAll(&Match{Texts: []string{"a", "b", "\x00\x00", "\x00"}}, "f")
		}, listedItems + 20
	},
	"jobs that run, of one worker and of many": func(x *loadedSched) (func() int, int) {
		x.submit(2*listedItems, "f", nil)
		p := x.peer(LongNames, "f")
		x.take(p, listedItems)
		for range listedItems {
			x.take(x.peer(LongNames, "f"), 1)
		}
		return func() int { return x.listAll(&Match{}, "f") }, 2 * listedItems
	},
	"workers of another queue": func(x *loadedSched) (func() int, int) {
		for range listedItems {
			x.peer(0, "g")
		}
		x.submit(2, "f", nil)
		x.submit(1, "f", func(_ int, j *Submission) { j.Name, j.Space, j.Await = make([]byte, 300), heldOwned, x.peer(LongNames) })
		x.take(x.peer(0, "f"), 1)
		ref, _ := x.Find(heldOwned, []byte("f"), make([]byte, 300))
		return func() int {
			_, _ = x.Why(x.now, ref)
			return x.listAll(&Match{}, "f")
		}, 3
	},
	"keys": func(x *loadedSched) (func() int, int) {
		table, err := NewPolicies([]PolicyRule{{Pattern: "f", Values: map[string]string{"key": "name before :", "fair": "key"}}})
		x.ok(err)
		x.SetPolicies(table)
		x.submit(listedItems, "f", nil)
		return func() int { return x.listAll(&Match{}, "f") }, listedItems
	},
	"tasks that wait, in another queue's jobs": func(x *loadedSched) (func() int, int) {
		x.submit(listedItems, "g", nil)
		all := x.tasks(listedItems)
		for first := 0; first < len(all); first += 1000 {
			x.ok(x.AddTasks(x.now, heldTask, []byte("f"), all[first:first+1000], discardAll{}))
		}
		last := Task{Name: []byte("last")}
		for i := range all {
			last.After = append(last.After, all[i].Name)
		}
		x.ok(x.AddTasks(x.now, heldTask, []byte("f"), []Task{last}, discardAll{}))
		return func() int {
			ref, _ := x.Find(heldTask, []byte("f"), []byte("last"))
			if why, _ := x.Why(x.now, ref); len(why) != 1 || !why[0].More || why[0].Count != maxWhySteps {
				x.t.Errorf("%+v", why)
			}
			return x.listAll(&Match{}, "f")
		}, listedItems + 1
	},
	"failed jobs": func(x *loadedSched) (func() int, int) {
		table, err := NewPolicies([]PolicyRule{{Pattern: "f", Values: map[string]string{"retries": "0", "keep-failed": "1000000"}}})
		x.ok(err)
		x.SetPolicies(table)
		p := x.peer(LongNames, "f")
		for range listedItems {
			x.submit(1, "f", nil)
			sink := new(lastRun)
			_, err := x.TryReserve(x.now, p, 1, sink)
			x.ok(err)
			x.ok(x.Fail(x.now, p, sink.run, []byte("it hurts"), discardAll{}))
		}
		return func() int { return x.listAll(&Match{Texts: []string{"hurts"}}, "f") }, listedItems
	},
	"a job behind very many": func(x *loadedSched) (func() int, int) {
		x.submit(listedItems, "f", func(i int, j *Submission) { j.Priority = int64(i / 2) })
		x.submit(listedItems, "g", nil)
		return func() int {
			for _, queue := range []string{"f", "g"} {
				l, _ := NewListing(&Match{}, []byte(queue), false, "")
				var last JobRef
				for done := false; !done; {
					done = x.List(x.now, l, defaultBatch, func(v *JobView) bool { last = v.Ref; return true })
				}
				if why, _ := x.Why(x.now, last); len(why) != 2 || !why[1].More {
					x.t.Errorf("%+v", why)
				}
			}
			return 0
		}, 0
	},
}

// TestLongestListHold checks that a listing, and the reasons of a job, take a batch of steps under one hold of the
// lock, with very much of everything.
func TestLongestListHold(t *testing.T) {
	const most = 4*maxWhySteps + 8
	for what, prepare := range listHolds {
		x := newLoadedSched(t, 0)
		x.SetTimeout(0)
		act, want := prepare(x)
		x.ticks(x.now, discardAll{})
		g := &x.shards[0].mu
		g.maxSteps = 0
		if n := act(); n != want {
			t.Errorf("%s: %d jobs are listed, want %d", what, n, want)
		}
		if t.Logf("%s: %d steps of %d", what, g.maxSteps, g.steps); g.maxSteps > most || g.maxSteps == 0 {
			t.Errorf("%s: %d steps under one hold of the lock, of which %d are allowed", what, g.maxSteps, most)
		}
	}
}
