//go:build invariants

package fuzz

import (
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch"
)

// siteQueue is a queue of the site.
type siteQueue struct {
	id           primitive.ObjectID
	name, plugin string
	sort         string
	schema       disbatch.Schema
	limit        int           // over all nodes, or of each in the dialect of 2016
	timeout      time.Duration // of its tasks; 0: none
}

func (q *siteQueue) document() bson.D {
	return bson.D{
		{Key: "_id", Value: q.id}, {Key: "name", Value: q.name}, {Key: q.schema.PluginField(), Value: q.plugin},
		{Key: q.schema.LimitField(), Value: q.limit}, {Key: "sort", Value: q.sort},
	}
}

// siteTask is what the ledger knows of a task: what its document said last, and what may come.
type siteTask struct {
	number int
	id     primitive.ObjectID
	queue  *siteQueue
	status int
	node   string
	since  time.Time // it has this status

	given  *siteWorker // who had it
	result string      // what a worker said that it came to
	failed bool        // a worker has failed it, or left
	lost   bool        // its server ended before the task did, or before its claim came
}

func (t *siteTask) String() string { return fmt.Sprintf("t%d", t.number) }

// siteLedger is all queues and tasks.
type siteLedger struct {
	queues []*siteQueue
	tasks  []*siteTask // by number, which is the order of their ids
}

// create makes a task.
func (s *site) create(q *siteQueue) {
	t := &siteTask{number: len(s.tasks), id: siteID(len(s.tasks)), queue: q, status: disbatch.StatusQueued}
	s.tasks = append(s.tasks, t)
	s.say("%v of %s", t, q.name)
	s.run(bson.D{{Key: "insert", Value: "tasks"}, {Key: "documents", Value: bson.A{bson.D{
		{Key: "_id", Value: t.id}, {Key: "queue", Value: q.id}, {Key: "status", Value: disbatch.StatusQueued}, {Key: "node", Value: q.schema.Nobody()},
	}}}})
}

// named is the task of a job.
func (s *site) named(name string) *siteTask {
	for _, t := range s.tasks {
		if t.id.Hex() == name {
			return t
		}
	}
	s.fail("a job is called %q", name)
	return nil
}

// given checks that a worker may be given its task: nobody ever had it, and the database says
// that it runs on this host.
func (s *site) given(w *siteWorker) {
	t := w.task
	s.say("%v is given %v", w, t)
	if t.given != nil {
		s.fail("%v is given %v, and %v had it", w, t, t.given)
	}
	t.given = w
	d := s.read(t)
	if d.Status != disbatch.StatusRunning || d.Node != w.life.host.name {
		s.fail("%v is given %v, whose status is %d at %q", w, t, d.Status, d.Node)
	}
}

func (s *site) read(t *siteTask) disbatch.Task {
	return s.find(bson.D{{Key: "_id", Value: t.id}})[0]
}

// find returns what the database has of tasks, by number.
func (s *site) find(filter bson.D) (tasks []disbatch.Task) {
	reply := s.run(bson.D{
		{Key: "find", Value: "tasks"}, {Key: "filter", Value: filter}, {Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "batchSize", Value: siteTasks + siteLateTasks},
	})
	documents, err := reply.Lookup("cursor", "firstBatch").Array().Values()
	if err != nil {
		panic(err) // the double makes documents
	}
	for _, d := range documents {
		tasks = append(tasks, disbatch.DecodeTask(d.Document()))
	}
	return tasks
}

// follow checks what has happened to the tasks since it was called last, and the limits.
func (s *site) follow() {
	running, claimed := map[string]int{}, []*siteTask(nil)
	for i, d := range s.find(bson.D{}) { // all at once: it is what a play spends its time with
		t := s.tasks[i]
		if d.Status != t.status || d.Node != t.node && d.Status < disbatch.StatusRunning {
			s.say("%v has status %d at %q", t, d.Status, d.Node)
			if !s.may(t, &d) {
				s.fail("%v had status %d at %q, and has %d at %q: %s", t, t.status, t.node, d.Status, d.Node, d.Raw)
			}
			if t.status == disbatch.StatusQueued {
				claimed = append(claimed, t)
			}
			t.status, t.node, t.since = d.Status, d.Node, time.Now()
			switch t.status {
			case disbatch.StatusQueued:
				t.lost = false
			case disbatch.StatusClaimed:
				t.lost = t.lost || s.passing.isDead()
			}
		}
		if t.status == disbatch.StatusRunning {
			running[t.queue.name]++
			running[t.queue.name+t.node]++
			running[t.node]++
		}
	}
	for _, t := range claimed {
		s.ordered(t)
	}
	for _, h := range s.hosts {
		if h.limit != disbatch.NoLimit && running[h.name] > h.limit {
			s.fail("%d tasks run on %s, whose limit is %d", running[h.name], h.name, h.limit)
		}
		for _, q := range s.queues {
			at := q.name
			if q.schema == disbatch.Schema2016 {
				at += h.name
			}
			if running[at] > q.limit {
				s.fail("%d tasks of %s run, whose limit is %d", running[at], at, q.limit)
			}
		}
	}
}

// may says whether a task may come to what its document says now.
func (s *site) may(t *siteTask, d *disbatch.Task) bool {
	const orphanAge = 5 * time.Minute
	stdout, _ := d.Raw.Lookup("stdout").StringValueOK()
	stderr, _ := d.Raw.Lookup("stderr").StringValueOK()
	switch was, is := t.status, d.Status; {
	case was == disbatch.StatusQueued && is == disbatch.StatusClaimed:
		return true
	case was == disbatch.StatusClaimed && is == disbatch.StatusQueued, was == disbatch.StatusRunning && is == disbatch.StatusQueued:
		return t.given == nil && isNobody(t.queue, d.Raw.Lookup("node"))
	case was == disbatch.StatusClaimed && is == disbatch.StatusRunning:
		return d.Node == t.node
	case was == disbatch.StatusClaimed && is == disbatch.StatusOrphaned:
		return t.lost || time.Since(t.since) >= orphanAge
	case was == disbatch.StatusRunning && is == disbatch.StatusOrphaned:
		return t.lost
	case was == disbatch.StatusRunning && is == disbatch.StatusSucceeded:
		return t.result != "" && stdout == t.result
	case was == disbatch.StatusRunning && is == disbatch.StatusFailed:
		return t.failed && stderr == "the worker failed the job or left" ||
			t.queue.timeout > 0 && time.Since(t.since) >= t.queue.timeout && strings.HasPrefix(stderr, "its time-out is over") ||
			strings.HasPrefix(stderr, "the server stopped before") && (t.lost || s.stops(t.node))
	}
	return false
}

// isNobody says whether a node is, in a queue's dialect, nobody's.
func isNobody(q *siteQueue, node bson.RawValue) bool {
	n, number := node.AsInt64OK()
	return q.schema == disbatch.Schema2018 && node.Type == bson.TypeNull || q.schema == disbatch.Schema2016 && number && n == -1
}

// stops says whether the server of a host is stopping.
func (s *site) stops(name string) bool {
	for _, h := range s.hosts {
		if h.name == name {
			return h.life != nil && h.life.stopping
		}
	}
	return false
}

// ordered checks that a task was the queue's next.
func (s *site) ordered(t *siteTask) {
	for _, o := range s.tasks {
		if o.queue != t.queue || o.status != disbatch.StatusQueued {
			continue
		}
		if t.queue.sort == disbatch.SortFIFO && o.number < t.number || t.queue.sort == disbatch.SortLIFO && o.number > t.number {
			s.fail("%v is claimed before %v, and the queue's sort is %s", t, o, t.queue.sort)
		}
	}
}

// loses notes the tasks that a host's server has left claimed or running.
func (s *site) loses(h *siteHost) {
	for _, t := range s.tasks {
		if t.node == h.name && (t.status == disbatch.StatusClaimed || t.status == disbatch.StatusRunning) {
			t.lost = true
		}
	}
}

// lostTasks are those that are lost by now.
func (s *site) lostTasks() map[*siteTask]bool {
	lost := map[*siteTask]bool{}
	for _, t := range s.tasks {
		lost[t] = t.lost
	}
	return lost
}

func (s *site) allEnded() bool {
	for _, t := range s.tasks {
		if t.status < disbatch.StatusSucceeded && t.status != disbatch.StatusOrphaned {
			return false
		}
	}
	return true
}
