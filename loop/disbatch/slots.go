package disbatch

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxClaimers bounds how many claims a queue has under way at once: enough for the way to
// the database and back, and few enough not to crowd it.
const maxClaimers = 8

// fill starts claimers for all queues that have room.
func (n *ExecutionNode) fill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.queues { // in another order every time: no queue is always first
		n.spawn(q, maxClaimers)
	}
}

// spawn starts up to so many claimers of a queue. The caller holds mu.
func (n *ExecutionNode) spawn(q *queueState, claimers int) {
	for ; claimers > 0 && n.room(q, 1); claimers-- {
		q.slots++
		n.slots++
		go n.slot(q)
	}
}

// room says whether a queue may have more slots. The caller holds mu.
func (n *ExecutionNode) room(q *queueState, more int) bool {
	return !n.halted && !q.drained && q.slots+q.others+more <= q.queue.Limit &&
		(n.view.limit == NoLimit || n.slots+n.view.foreign+more <= n.view.limit)
}

// slot claims tasks and has them run, one after the other, while there is room. Where the
// node has a limit of its own, it ends with each task, so that all queues get a turn.
func (n *ExecutionNode) slot(q *queueState) {
	for again := true; again; {
		a, ok := n.next(q)
		if ok {
			n.do(a)
		}
		n.mu.Lock()
		limited := n.view.limit != NoLimit
		if again = ok && !limited; !again {
			q.slots--
			n.slots--
		}
		if limited {
			for _, other := range n.queues {
				n.spawn(other, 1)
			}
		}
		n.mu.Unlock()
	}
}

// next claims a task for a slot; not ok ends the slot.
func (n *ExecutionNode) next(q *queueState) (*assignment, bool) {
	n.mu.Lock()
	if !n.room(q, 0) {
		n.mu.Unlock()
		return nil, false
	}
	n.claims.Add(1)
	queue, shared := q.queue, q.queue.Schema == Schema2018 && !n.view.alone
	a := &assignment{Plugin: q.plugin, Schema: queue.Schema, GFS: n.o.Config.GFS}
	n.mu.Unlock()
	defer n.claims.Done()
	t, err := n.store.claim(n.calls, &queue, n.o.Name, time.Now())
	if err == nil {
		n.tally.claimed.Add(1)
	}
	if err == nil && shared {
		err = n.verify(&queue, &t)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		q.drained = true
		if !errors.Is(err, ErrNotFound) && !n.halted {
			n.tally.errors.Add(1)
			n.log.Warn("cannot claim", "queue", queue.Name, "error", err.Error())
		}
		return nil, false
	}
	if n.local[t.ID] || n.halted {
		return nil, false // a tick was faster, or the task is about to be given back
	}
	a.Task = t.Raw
	n.take(&t, a)
	n.spawn(q, 1)
	return a, true
}

// verify gives a claimed task back if the queue is over the limit that it has at all nodes
// together. Nodes that claim at the same time see each other here, since each counts after
// its claim: more than the limit never begin.
func (n *ExecutionNode) verify(q *Queue, t *Task) error {
	count, err := n.store.CountTasks(n.calls, bson.D{{Key: "queue", Value: q.ID}, {Key: "status", Value: in([]int{StatusClaimed, StatusRunning})}})
	if err != nil || count <= int64(q.Limit) {
		return err
	}
	if _, err := n.giveBack(n.calls, []Queue{*q}, t.ID); err != nil {
		return err
	}
	return ErrNotFound
}

// adopt has a task run that was claimed by this node, beside the limits: it counts against
// them already.
func (n *ExecutionNode) adopt(q *queueState, t *Task) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.local[t.ID] || n.halted {
		return
	}
	a := &assignment{Task: t.Raw, Plugin: q.plugin, Schema: q.queue.Schema, GFS: n.o.Config.GFS}
	n.take(t, a)
	go n.do(a)
}

// take notes that a task is this process's. The caller holds mu and calls do.
func (n *ExecutionNode) take(t *Task, a *assignment) {
	n.local[t.ID] = true
	if a.Plugin.Kind == KindFunction {
		n.waits.Add(1)
	}
}

// do has a task run and returns when it is over.
func (n *ExecutionNode) do(a *assignment) {
	t := DecodeTask(a.Task)
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.local, t.ID)
	}()
	if a.Plugin.Kind == KindFunction {
		defer n.waits.Done()
		if err := n.function(a); err != nil && err != errNotMine {
			n.log.Error("a task is not finished", "task", t.ID.Hex(), "error", err.Error())
		}
		return
	}
	err := n.runner.run(t.ID, a)
	if err == nil {
		return
	}
	n.log.Error("a task is not finished", "task", t.ID.Hex(), "error", err.Error())
	if !errors.Is(err, errRunnerEnded) {
		n.pause()
		return // it stays claimed, and is tried again
	}
	if err := n.crash(n.calls, a, &t, ended(unableToComplete, err)); err != nil && !errors.Is(err, context.Canceled) {
		n.log.Error("a task stays running", "task", t.ID.Hex(), "error", err.Error())
	}
}

// pause keeps a slot that cannot start tasks from trying again at once.
func (n *ExecutionNode) pause() {
	select {
	case <-n.stopping:
	case <-time.After(n.o.Interval):
	}
}
