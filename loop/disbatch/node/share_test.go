package node

import (
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// TestNodesShareQueue: beside a node of the original, which claims once per interval, a node of Treadle does not run
// all tasks of a queue with one thread.
func TestNodesShareQueue(t *testing.T) {
	const tasks = 180
	s, w := newSite(t, functionPlugin), newWorkers(false)
	q := s.Queue(d("name", "a", "plugin", "F", "threads", 1))
	s.Fill(&q, sitetest.Payloads(tasks)...)
	must(t, s.Store.ReportNode(s.Ctx, "original", time.Now(), nil))
	s.node("me", with(w))
	theirs := 0
	s.Until("the end of all tasks", func() bool { // polls every 5 ms beside a node with ticks of 20 ms
		must(t, s.Store.ReportNode(s.Ctx, "original", time.Now(), nil))
		if running, err := s.Store.CountTasks(s.Ctx, d("queue", q.ID, "status", d("$in", []int{store.StatusClaimed, store.StatusRunning}))); err == nil && running == 0 {
			if task, err := s.Store.Claim(s.Ctx, &q, "original", time.Now()); err == nil {
				_, err = s.Tasks.UpdateOne(s.Ctx, byID(task.ID), set(d("status", store.StatusSucceeded)))
				must(t, err)
				theirs++
			}
		}
		left, err := s.Store.CountTasks(s.Ctx, d("status", d("$lte", 0)))
		return err == nil && left == 0
	})
	if w.once(t, tasks-theirs, 1); theirs < tasks/10 {
		t.Errorf("the other node had %d of %d tasks", theirs, tasks)
	}
}

// TestShare: a node that knows of another refills its even part of the threads at once, and claims the rest at ticks.
// Nodes that may not serve the queue or start no tasks do not count, nor do 2016 queues, whose limit is per node.
func TestShare(t *testing.T) {
	f := func(atOnce int, queue, node bson.D) {
		t.Helper()
		t.Run(fmt.Sprint(queue, node), func(t *testing.T) {
			s, w := newSite(t, functionPlugin), newWorkers(true)
			q := s.Queue(queue)
			s.Fill(&q, sitetest.Payloads(40)...)
			_, err := s.Nodes.InsertOne(s.Ctx, append(d("node", "other", "timestamp", time.Now()), node...))
			must(t, err)
			n := s.node("me", with(w), rarely)
			s.Until("the first tick's tasks", func() bool { return w.holding() == 4 })
			w.finish(4)
			for round := range 3 {
				s.Until("tasks in place of those", func() bool { return w.holding() == atOnce })
				s.Until("the end of the others", func() bool { n.node.mu.Lock(); defer n.node.mu.Unlock(); return n.node.slots == atOnce })
				w.mu.Lock()
				runs := len(w.runs)
				w.mu.Unlock()
				if want := 4 + (round+1)*atOnce; runs != want {
					t.Errorf("%d tasks ran, want %d", runs, want)
				}
				w.finish(atOnce)
			}
			w.mu.Lock()
			w.hold = false
			w.mu.Unlock()
			w.finish(40)
		})
	}
	f(2, d("name", "a", "plugin", "F", "threads", 4), nil)
	f(4, d("name", "a", "plugin", "F", "threads", 4), d("maxthreads", 0))
	f(4, d("name", "a", "plugin", "F", "threads", 4, "nodes_pin", bson.A{"me"}), nil)
	f(4, d("name", "a", "plugin", "F", "threads", 4, "nodes_ignore", bson.A{"other"}), nil)
	f(4, d("name", "a", "constructor", "F", "maxthreads", 4, "count_todo", 0, "count_total", 0), nil)
}
