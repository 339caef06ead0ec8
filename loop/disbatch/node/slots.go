package node

import (
	"context"
	"errors"
	"time"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/config"
)

// maxClaimers bounds how many claims a queue has under way at once: enough for the way to
// the database and back, and few enough not to crowd it.
const maxClaimers = 8

// Of claims that meet: how long one that has room waits between counts for the others to
// give back, and how long at most, since the node of one of them may be gone; and for how
// many ticks at most a node that gave back leaves the queue to the others.
const (
	firstMeeting    = 2 * time.Millisecond
	lastMeeting     = 20 * time.Millisecond
	meetingPatience = 3 * time.Second
	maxRest         = 4
)

// errOverLimit says that a claim was given back, since others were before it.
var errOverLimit = errors.New("the queue is at its limit over all nodes")

// fill starts claimers for all queues that have room: one where other nodes may be doing
// the same, which brings more with it if it keeps its claim.
func (n *Node) fill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.shuffled() {
		claimers := maxClaimers
		if q.queue.Schema == disbatch.Schema2018 {
			claimers = 1
		}
		n.spawn(q, claimers)
	}
}

// shuffled are the queues that are served, in another order every time: no queue is always
// first. The caller holds mu.
func (n *Node) shuffled() (all []*queueState) {
	for i := range n.view.queues {
		if q := n.queues[n.view.queues[i].ID]; q != nil {
			all = append(all, q)
		}
	}
	for i := range all {
		j := i + n.pick(len(all)-i)
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// spawn starts up to so many claimers of a queue. The caller holds mu.
func (n *Node) spawn(q *queueState, claimers int) {
	for ; claimers > 0 && n.room(q, 1); claimers-- {
		q.slots++
		n.slots++
		go n.slot(q, nil)
	}
}

// room says whether a queue may have more slots. The caller holds mu.
func (n *Node) room(q *queueState, more int) bool {
	return !n.halted && !q.drained && n.within(q, more) && (q.slots+more <= q.share || q.turn > 0)
}

// within says whether more tasks of a queue keep its limit and the node's. The caller
// holds mu.
func (n *Node) within(q *queueState, more int) bool {
	return q.slots+q.others+more <= q.queue.Limit &&
		(n.view.limit == disbatch.NoLimit || n.slots+n.view.foreign+more <= n.view.limit)
}

// slot claims tasks and has them run, one after the other, while there is room; the first
// may be one that is claimed already. Where the node has a limit of its own, it ends with
// each task, so that all queues get a turn.
func (n *Node) slot(q *queueState, claimed *disbatch.Task) {
	for again := true; again; claimed = nil {
		a, err := n.next(q, claimed)
		if err == nil {
			n.do(a)
		}
		n.mu.Lock()
		limited := n.view.limit != disbatch.NoLimit
		if again = err == nil && !limited; !again {
			q.slots--
			n.slots--
		}
		if limited && (err == nil || err == errNoTask) { // else the database does not answer: the next tick tries again
			for _, other := range n.shuffled() {
				n.spawn(other, 1)
			}
		}
		n.mu.Unlock()
	}
}

// errNoTask means that a queue has no task for a slot, or no room for one.
var errNoTask = errors.New("no task for this slot")

// next claims a task for a slot, or takes the one that is claimed already; an error ends the
// slot, and is errNoTask unless the claim failed.
func (n *Node) next(q *queueState, claimed *disbatch.Task) (*assignment, error) {
	n.mu.Lock()
	if n.halted || claimed == nil && !n.room(q, 0) {
		n.mu.Unlock()
		return nil, errNoTask
	}
	beyond := q.slots > q.share
	if beyond {
		q.turn--
	}
	n.claims.Add(1)
	queue := q.queue
	a := &assignment{Plugin: q.plugin, Schema: queue.Schema, GFS: n.o.Config.GFS}
	n.mu.Unlock()
	defer n.claims.Done()
	t, err := n.claim(&queue, claimed)
	for wait := lastMeeting; err == errOverLimit && !beyond && claimed == nil && wait < n.o.Interval && n.wait(wait/2+time.Duration(n.pick(int(wait)))); wait *= 2 {
		t, err = n.claim(&queue, claimed) // others have more than their share, until their tasks end
	}
	n.claimed(&queue, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == errOverLimit && beyond:
		q.turn, q.rest = 0, n.pick(maxRest+1)
		return nil, errNoTask
	case err == errOverLimit, errors.Is(err, disbatch.ErrNotFound):
		q.drained = true
		return nil, errNoTask
	case err != nil:
		q.drained = true
		return nil, err
	}
	if n.local[t.ID] || n.halted {
		return nil, errNoTask // a tick was faster, or the task is about to be given back
	}
	a.Task = t.Raw
	n.local[t.ID] = true
	if a.Plugin.Kind == config.KindFunction {
		n.waits.Add(1)
	}
	n.spawn(q, 1)
	return a, nil
}

// claimed says whether a claim failed, once until that changes.
func (n *Node) claimed(q *disbatch.Queue, err error) {
	if err == nil || err == errOverLimit || errors.Is(err, disbatch.ErrNotFound) {
		n.say("claims of queue "+q.Name, "")
		return
	}
	n.tally.errors.Add(1)
	n.say("claims of queue "+q.Name, err.Error())
	if disbatch.TooLarge(err) {
		if t, err := n.store.nextFull(n.calls, q); err == nil && n.failBare(n.calls, q.Schema, &t) == nil {
			n.log.Error("a task's document has no room for its claim, it failed", "task", t.ID.Hex())
		}
	}
}

// claim claims a task of a queue, unless one is claimed already, and settles it.
func (n *Node) claim(q *disbatch.Queue, claimed *disbatch.Task) (t disbatch.Task, err error) {
	if claimed != nil {
		t = *claimed
	} else if t, err = n.store.claim(n.calls, q, n.o.Name, n.clock()); err != nil {
		return t, err
	} else {
		n.tally.claimed.Add(1)
	}
	if q.Schema == disbatch.Schema2018 {
		err = n.settle(q, &t)
	}
	return t, err
}

// settle keeps a claim if the queue, whose limit is over all nodes, is within it; else it
// gives the task back. Every node counts after its claim, so of claims that meet the last
// one sees all others: more than the limit never begin. Those that are too many by the
// order of the queue, which is the same at all nodes, give back at once; the others wait for
// that. So as many are kept as there is room for, whatever claims meet.
func (n *Node) settle(q *disbatch.Queue, t *disbatch.Task) error {
	end := time.Now().Add(meetingPatience)
	for wait := firstMeeting; ; wait = min(2*wait, lastMeeting) {
		count, err := n.store.occupying(n.calls, q)
		if err != nil || count <= int64(q.Limit) {
			return err
		}
		before, err := n.store.ahead(n.calls, q, t)
		if err != nil {
			return err
		}
		if before >= int64(q.Limit) || time.Now().After(end) || !n.wait(wait) {
			if _, err := n.giveBack(n.calls, []disbatch.Queue{*q}, t.ID); err != nil {
				return err
			}
			return errOverLimit
		}
	}
}

// wait waits, and says whether the node goes on.
func (n *Node) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-n.stopping:
		return false
	case <-timer.C:
		return true
	}
}

// adopt gives a slot to a task that was claimed by this node and is not this process's yet,
// and says whether it did: the limits, which it counts against already, may have changed.
func (n *Node) adopt(q *queueState, t *disbatch.Task) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	q.others--
	n.view.foreign--
	if !n.within(q, 1) {
		return false
	}
	q.slots++
	n.slots++
	go n.slot(q, t)
	return true
}

// do has a task run and returns when it is over.
func (n *Node) do(a *assignment) {
	t := disbatch.DecodeTask(a.Task)
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.local, t.ID)
	}()
	if a.Plugin.Kind == config.KindFunction {
		defer n.waits.Done()
		if err := n.function(a); err != nil && err != errNotMine {
			n.log.Error("a task is not finished", "task", t.ID.Hex(), "error", err.Error())
		}
		return
	}
	err := n.runner.run(t.ID, a)
	switch {
	case err == nil:
		return
	case !errors.Is(err, errRunnerEnded):
		n.log.Error("a task is not finished", "task", t.ID.Hex(), "error", err.Error())
		n.wait(n.o.Interval) // it stays claimed, and is tried again
		return
	}
	n.log.Error("the task's runner ended", "task", t.ID.Hex(), "error", err.Error())
	if a.Plugin.Kind != config.KindRunner { // whose program may still begin it
		given := int64(0)
		gerr := n.retry.Do(n.calls, "giving back task "+t.ID.Hex(), func() (err error) {
			given, err = n.giveBack(n.calls, []disbatch.Queue{{ID: t.Queue, Schema: a.Schema}}, t.ID)
			return err
		})
		if gerr != nil || given > 0 {
			n.wait(n.o.Interval)
			return
		}
	}
	if err := n.crash(n.calls, a, &t, ended(unableToComplete, err)); err != nil && !errors.Is(err, context.Canceled) {
		n.log.Error("a task stays running", "task", t.ID.Hex(), "error", err.Error())
	}
}
