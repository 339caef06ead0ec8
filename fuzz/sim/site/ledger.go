//go:build invariants

package site

import (
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// queue is a queue of the site.
type queue struct {
	id           primitive.ObjectID
	name, plugin string
	sort         string
	schema       store.Schema
	limit        int           // over all nodes, or of each in the dialect of 2016
	timeout      time.Duration // time-out of its tasks; 0: none
}

func (q *queue) document() bson.D {
	return bson.D{
		{Key: "_id", Value: q.id}, {Key: "name", Value: q.name}, {Key: q.schema.PluginField(), Value: q.plugin},
		{Key: q.schema.LimitField(), Value: q.limit}, {Key: "sort", Value: q.sort},
	}
}

// task is what the ledger knows of a task: its document as of the last look, and what may follow.
type task struct {
	number int
	id     primitive.ObjectID
	queue  *queue
	status int
	node   string
	since  time.Time // moment from which the task has its status

	given  *worker // worker that has had it
	result string  // result that the worker reported
	failed bool    // a worker has failed it, or left
	lost   bool    // its server ended before the task did, or before its claim came
}

func (t *task) String() string { return fmt.Sprintf("t%d", t.number) }

// ledger is the model of a site: all queues and tasks.
type ledger struct {
	queues []*queue
	tasks  []*task // tasks by number, which is the order of their ids
}

// create creates a task.
func (s *site) create(q *queue) {
	t := &task{number: len(s.ledger.tasks), id: objectID(len(s.ledger.tasks)), queue: q, status: store.StatusQueued}
	s.ledger.tasks = append(s.ledger.tasks, t)
	s.trace.Logf("%v of %s", t, q.name)
	s.run(bson.D{{Key: "insert", Value: "tasks"}, {Key: "documents", Value: bson.A{bson.D{
		{Key: "_id", Value: t.id}, {Key: "queue", Value: q.id}, {Key: "status", Value: store.StatusQueued}, {Key: "node", Value: q.schema.Unclaimed()},
	}}}})
}

// taskNamed finds the task of a job.
func (s *site) taskNamed(name string) *task {
	for _, t := range s.ledger.tasks {
		if t.id.Hex() == name {
			return t
		}
	}
	s.trace.Failf("got a job that is called %q, want the id of one of %d tasks", name, len(s.ledger.tasks))
	return nil
}

// given checks that a worker may be given its task: no worker ever had it, and by the database it runs on this host.
func (s *site) given(w *worker) {
	t := w.task
	s.trace.Logf("%v is given %v", w, t)
	if t.given != nil {
		s.trace.Failf("%v is given %v, although %v had it", w, t, t.given)
	}
	t.given = w
	d := s.read(t)
	if d.Status != store.StatusRunning || d.Node != w.process.host.name {
		s.trace.Failf("%v is given %v, whose status is %d at %q: want it running on this host", w, t, d.Status, d.Node)
	}
}

func (s *site) read(t *task) store.Task {
	return s.find(bson.D{{Key: "_id", Value: t.id}})[0]
}

// find returns the database's tasks, by number.
func (s *site) find(filter bson.D) (tasks []store.Task) {
	reply := s.run(bson.D{
		{Key: "find", Value: "tasks"}, {Key: "filter", Value: filter}, {Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "batchSize", Value: maxTasks + lateTasks},
	})
	documents, err := reply.Lookup("cursor", "firstBatch").Array().Values()
	if err != nil {
		panic(err) // the fake makes documents
	}
	for _, d := range documents {
		tasks = append(tasks, store.DecodeTask(d.Document()))
	}
	return tasks
}

// checkTasks checks what has changed in the tasks since the last call, and the limits.
func (s *site) checkTasks() {
	running, claimed := map[string]int{}, []*task(nil)
	for i, d := range s.find(bson.D{}) { // all at once: it is what a play spends its time with
		t := s.ledger.tasks[i]
		if d.Status != t.status || d.Node != t.node && d.Status < store.StatusRunning {
			s.trace.Logf("%v has status %d at %q", t, d.Status, d.Node)
			if !s.allowed(t, &d) {
				s.trace.Failf("%v had status %d at %q, and now has %d at %q, which no step of its host allows: %s", t, t.status, t.node, d.Status, d.Node, d.Raw)
			}
			if t.status == store.StatusQueued {
				claimed = append(claimed, t)
			}
			t.status, t.node, t.since = d.Status, d.Node, time.Now()
			switch t.status {
			case store.StatusQueued:
				t.lost = false
			case store.StatusClaimed:
				t.lost = t.lost || s.sender.isDead()
			}
		}
		if t.status == store.StatusRunning {
			running[t.queue.name]++
			running[t.queue.name+t.node]++
			running[t.node]++
		}
	}
	for _, t := range claimed {
		s.checkOrder(t)
	}
	for _, h := range s.hosts {
		if h.limit != store.NoLimit && running[h.name] > h.limit {
			s.trace.Failf("%d tasks run on %s, whose limit is %d", running[h.name], h.name, h.limit)
		}
		for _, q := range s.ledger.queues {
			at := q.name
			if q.schema == store.Schema2016 {
				at += h.name
			}
			if running[at] > q.limit {
				s.trace.Failf("%d tasks of %s run, whose limit is %d", running[at], at, q.limit)
			}
		}
	}
}

// allowed reports whether a task may come to what its document says now.
func (s *site) allowed(t *task, d *store.Task) bool {
	const orphanAge = 5 * time.Minute
	stdout, _ := d.Raw.Lookup("stdout").StringValueOK()
	stderr, _ := d.Raw.Lookup("stderr").StringValueOK()
	switch was, is := t.status, d.Status; {
	case was == store.StatusQueued && is == store.StatusClaimed:
		return true
	case was == store.StatusClaimed && is == store.StatusQueued, was == store.StatusRunning && is == store.StatusQueued:
		return t.given == nil && isNobody(t.queue, d.Raw.Lookup("node"))
	case was == store.StatusClaimed && is == store.StatusRunning:
		return d.Node == t.node
	case was == store.StatusClaimed && is == store.StatusOrphaned:
		return t.lost || time.Since(d.MTime) >= orphanAge // the time of the claim when its host sent it
	case was == store.StatusRunning && is == store.StatusOrphaned:
		return t.lost
	case was == store.StatusRunning && is == store.StatusSucceeded:
		return t.result != "" && stdout == t.result
	case was == store.StatusRunning && is == store.StatusFailed:
		return t.failed && stderr == "the worker failed the job or left" ||
			t.queue.timeout > 0 && time.Since(t.since) >= t.queue.timeout && strings.HasPrefix(stderr, "its time-out is over") ||
			strings.HasPrefix(stderr, "the server stopped before") && (t.lost || s.stops(t.node))
	}
	return false
}

// isNobody reports whether a node field, in a queue's schema, means no node.
func isNobody(q *queue, node bson.RawValue) bool {
	n, number := node.AsInt64OK()
	return q.schema == store.Schema2018 && node.Type == bson.TypeNull || q.schema == store.Schema2016 && number && n == -1
}

// stops reports whether the server of a host is stopping.
func (s *site) stops(name string) bool {
	for _, h := range s.hosts {
		if h.name == name {
			return h.process != nil && h.process.stopping
		}
	}
	return false
}

// checkOrder checks that a claimed task was the next of its queue.
func (s *site) checkOrder(t *task) {
	for _, o := range s.ledger.tasks {
		if o.queue != t.queue || o.status != store.StatusQueued {
			continue
		}
		if t.queue.sort == "fifo" && o.number < t.number || t.queue.sort == "lifo" && o.number > t.number {
			s.trace.Failf("%v is claimed before %v, although the queue's sort is %s", t, o, t.queue.sort)
		}
	}
}

// markLost notes the tasks that a host's server has left claimed or running.
func (s *site) markLost(h *host) {
	for _, t := range s.ledger.tasks {
		if t.node == h.name && (t.status == store.StatusClaimed || t.status == store.StatusRunning) {
			t.lost = true
		}
	}
}

// lostTasks are the tasks that are lost by now.
func (s *site) lostTasks() map[*task]bool {
	lost := map[*task]bool{}
	for _, t := range s.ledger.tasks {
		lost[t] = t.lost
	}
	return lost
}

func (s *site) allEnded() bool {
	for _, t := range s.ledger.tasks {
		if t.status < store.StatusSucceeded && t.status != store.StatusOrphaned {
			return false
		}
	}
	return true
}
