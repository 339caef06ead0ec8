package node

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// The life of a slot. A slot is a goroutine that claims and runs tasks of one queue, one after the other. It counts in
// queueState.slots from the start of its first claim to the end of its last task.
//
//  1. A tick reads the limits and the tasks of all nodes (adjust). It sets others, the tasks of other processes that
//     count against the limit; share, the slots that this node refills as soon as they are free; and extra, the claims
//     beyond share that may start before the next tick.
//  2. fill, at the end of a tick, and each claim that succeeds start further slots while the queue has room (spawn,
//     hasRoom). So the slots of a queue grow by one claim at a time.
//  3. A slot claims a task (claimNext, claim). A claim beyond share uses up one of extra.
//  4. The limit of a 2018 queue holds over all nodes, which claim at the same time. So settle counts the claims of all
//     nodes after its own, and keeps or releases its claim. A released claim within share is repeated (claimAgain). One
//     beyond share ends its slot, and backoff keeps extra at 0 for some ticks, so that nodes do not compete at each
//     one.
//  5. A queue without a task, or without room, is empty until the next tick: no slot claims from it.
//  6. runTask runs the task in the executor or at a worker. Then the slot claims the next one. If the node has a
//     limit of its own, the slot ends and the queues get one slot each in random order.
//  7. A claimed task of an earlier process gets a slot without a claim (adopt).

// maxClaimers bounds the concurrent claims of a queue. It covers the round trip to the database without flooding it.
const maxClaimers = 8

// Bounds of claims that exceed a limit together, see settle.
const (
	// settleFirst and settleLast are the first and the longest wait between two counts of a claim that has room.
	settleFirst = 2 * time.Millisecond
	settleLast  = 20 * time.Millisecond
	// settleTimeout bounds all waits of a claim: the node of another claim may be gone.
	settleTimeout = 3 * time.Second
	// maxBackoff is the largest number of ticks without extra claims after a release.
	maxBackoff = 4
)

// errOverLimit reports that the node has released a claim, since claims before it fill the limit.
var errOverLimit = errors.New("the queue is at its limit over all nodes")

// fill starts claims for all queues with room. A 2018 queue gets one, since other nodes may claim at the same time; a
// claim that succeeds starts the next.
func (n *Node) fill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.shuffled() {
		claimers := maxClaimers
		if q.queue.Schema == store.Schema2018 {
			claimers = 1
		}
		n.spawn(q, claimers)
	}
}

// shuffled returns the served queues in random order, so that no queue is always first. The caller holds mu.
func (n *Node) shuffled() (queues []*queueState) {
	for i := range n.view.queues {
		if q := n.queues[n.view.queues[i].ID]; q != nil {
			queues = append(queues, q)
		}
	}
	for i := range queues {
		j := i + n.randomBelow(len(queues)-i)
		queues[i], queues[j] = queues[j], queues[i]
	}
	return queues
}

// spawn starts up to the given number of claims of a queue. The caller holds mu.
func (n *Node) spawn(q *queueState, claimers int) {
	for ; claimers > 0 && n.hasRoom(q, 1); claimers-- {
		q.slots++
		n.slots++
		go n.runSlot(q, nil)
	}
}

// hasRoom reports whether a queue may have more slots: 1 for a new slot, 0 for one that counts already. The caller
// holds mu.
func (n *Node) hasRoom(q *queueState, more int) bool {
	return !n.halted && !q.exhausted && n.fitsLimits(q, more) && (q.slots+more <= q.share || q.extra > 0)
}

// fitsLimits reports whether more tasks stay within the limits of the queue and of the node. The caller holds mu.
func (n *Node) fitsLimits(q *queueState, more int) bool {
	return q.slots+q.others+more <= q.queue.Limit &&
		(n.limit == store.NoLimit || n.slots+n.foreign+more <= n.limit)
}

// runSlot claims and runs tasks one after the other while there is room. It begins with the resumed task, unless that
// is nil. With a limit of the node, slot ends after one task, so that every queue gets a slot in turn.
func (n *Node) runSlot(q *queueState, resumed *store.Task) {
	for again := true; again; resumed = nil {
		a, err := n.claimNext(q, resumed)
		if err == nil {
			n.runTask(a)
		}
		n.mu.Lock()
		limited := n.limit != store.NoLimit
		databaseAnswers := err == nil || errors.Is(err, errNoTask) // otherwise the next tick starts claims
		if again = err == nil && !limited; !again {
			q.slots--
			n.slots--
		}
		if limited && databaseAnswers {
			for _, other := range n.shuffled() {
				n.spawn(other, 1)
			}
		}
		n.mu.Unlock()
	}
}

// errNoTask reports that a queue has no task for a slot, or no room for one.
var errNoTask = errors.New("no task for this slot")

// slotClaim is the claim of one slot, with the queue and the plugin at its beginning.
type slotClaim struct {
	queue  store.Queue
	plugin config.Plugin
	beyond bool // the claim used up one of queueState.extra
}

// claimNext claims a task for a slot, or takes the resumed one. An error ends the slot; it is errNoTask unless the
// claim has failed.
func (n *Node) claimNext(q *queueState, resumed *store.Task) (*assignment, error) {
	c, ok := n.beginClaim(q, resumed != nil)
	if !ok {
		return nil, errNoTask
	}
	defer n.claiming.Done()
	t, err := n.claimSettled(c, resumed)
	n.noteClaim(&c.queue, err)
	return n.acceptClaim(q, c, &t, err)
}

// beginClaim counts a claim in claiming. It returns false if the node is halted, or if the queue has no room for the
// slot of a claim; a resumed task has its room already.
func (n *Node) beginClaim(q *queueState, resumed bool) (*slotClaim, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.halted || !resumed && !n.hasRoom(q, 0) {
		return nil, false
	}
	c := &slotClaim{queue: q.queue, plugin: q.plugin, beyond: q.slots > q.share}
	if c.beyond {
		q.extra--
	}
	n.claiming.Add(1)
	return c, true
}

// claimSettled is claim, repeated if a claim within the share was over the limit.
func (n *Node) claimSettled(c *slotClaim, resumed *store.Task) (store.Task, error) {
	t, err := n.claim(&c.queue, resumed)
	if errors.Is(err, errOverLimit) && !c.beyond && resumed == nil {
		return n.claimAgain(&c.queue)
	}
	return t, err
}

// acceptClaim makes a claimed task one of this process and starts the next claim. It applies the error of a claim to
// the queue.
func (n *Node) acceptClaim(q *queueState, c *slotClaim, t *store.Task, err error) (*assignment, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case errors.Is(err, errOverLimit) && c.beyond:
		q.extra, q.backoff = 0, n.randomBelow(maxBackoff+1)
		return nil, errNoTask
	case errors.Is(err, errOverLimit), errors.Is(err, store.ErrNotFound):
		q.exhausted = true
		return nil, errNoTask
	case err != nil:
		q.exhausted = true
		return nil, err
	}
	if n.own[t.ID] || n.halted {
		return nil, errNoTask // a tick has resumed the task, or stop is about to release it
	}
	n.own[t.ID] = true
	if c.plugin.Kind == config.KindFunction {
		n.functionTasks.Add(1)
	}
	n.spawn(q, 1)
	return &assignment{Task: t.Raw, Plugin: c.plugin, Schema: c.queue.Schema, GFS: n.o.Config.GFS}, nil
}

// noteClaim logs the result of a claim once per change. It fails the task if its document has no room for a claim.
func (n *Node) noteClaim(q *store.Queue, err error) {
	if err == nil || errors.Is(err, errOverLimit) || errors.Is(err, store.ErrNotFound) {
		n.setQueueCondition("claims of queue", q, "")
		return
	}
	n.tally.errors.Add(1)
	n.setQueueCondition("claims of queue", q, err.Error())
	if store.TooLarge(err) {
		if t, err := n.store.NextWithoutRoom(n.callsCtx, q); err == nil && n.failWithoutOutput(n.callsCtx, q.Schema, &t) == nil {
			n.log.Error("a task's document has no room for its claim, it failed", "task", t.ID.Hex())
		}
	}
}

// claimAgain repeats a claim within the share of this node that was over the limit: other nodes exceed their shares
// until their tasks end. Its waits double, with jitter, up to an interval.
func (n *Node) claimAgain(q *store.Queue) (t store.Task, err error) {
	err = errOverLimit
	for wait := settleLast; errors.Is(err, errOverLimit) && wait < n.o.Interval; wait *= 2 {
		if !n.wait(wait/2 + time.Duration(n.randomBelow(int(wait)))) {
			break
		}
		t, err = n.claim(q, nil)
	}
	return t, err
}

// claim claims a task of a queue, or takes the resumed one, and settles it.
func (n *Node) claim(q *store.Queue, resumed *store.Task) (t store.Task, err error) {
	if resumed != nil {
		t = *resumed
	} else if t, err = n.store.Claim(n.callsCtx, q, n.o.Name, n.clock()); err != nil {
		return t, err
	} else {
		n.tally.claimed.Add(1)
	}
	if q.Schema == store.Schema2018 {
		err = n.settle(q, &t)
	}
	return t, err
}

// releaseTask queues a claimed task of this node again, and returns the number of tasks: 1 or 0.
func (n *Node) releaseTask(ctx context.Context, queues []store.Queue, id primitive.ObjectID) (int64, error) {
	released, err := n.store.ReleaseTask(ctx, n.o.Name, queues, id)
	n.tally.released.Add(uint64(released))
	return released, err
}

// settle keeps a claim within the limit of the queue over all nodes, and releases any other with errOverLimit.
//
// Every node counts after its claim, so the last of several concurrent claims counts all of them: tasks beyond the
// limit never begin. All nodes have the same order of the tasks. A claim beyond the limit in that order is released at
// once. Any other claim waits until the count is within the limit. So concurrent claims always fill the limit.
func (n *Node) settle(q *store.Queue, t *store.Task) error {
	end := time.Now().Add(settleTimeout)
	for wait := settleFirst; ; wait = min(2*wait, settleLast) {
		place, err := n.store.Place(n.callsCtx, q, t)
		if err != nil || place == store.Within {
			return err
		}
		if place == store.Beyond || time.Now().After(end) || !n.wait(wait) {
			if _, err := n.releaseTask(n.callsCtx, []store.Queue{*q}, t.ID); err != nil {
				return err
			}
			return errOverLimit
		}
	}
}

// wait pauses. It returns false at once when the node stops.
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

// adopt gives a slot to a foreign task that is claimed. The task counts in slots instead of in others and foreign from
// then on. adopt returns false if a limit has become smaller. The task then counts nowhere, since the caller releases
// it.
func (n *Node) adopt(q *queueState, t *store.Task) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	q.others--
	n.foreign--
	if !n.fitsLimits(q, 1) {
		return false
	}
	q.slots++
	n.slots++
	go n.runSlot(q, t)
	return true
}

// runTask runs a task and returns when it has ended.
func (n *Node) runTask(a *assignment) {
	t := store.DecodeTask(a.Task)
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.own, t.ID)
	}()
	if a.Plugin.Kind == config.KindFunction {
		defer n.functionTasks.Done()
		if err := n.runFunction(a); err != nil && !errors.Is(err, errNotMine) {
			n.log.Error("a task is not finished", "task", t.ID.Hex(), "error", err.Error())
		}
		return
	}
	err := n.executor.run(t.ID, a)
	switch {
	case err == nil, err == errDetached: // stop has released a task that comes after detach
	case errors.Is(err, errExecutorEnded):
		n.log.Error("the task's runner ended", "task", t.ID.Hex(), "error", err.Error())
		n.recoverTask(a, &t, err)
	default:
		n.log.Error("a task is not finished", "task", t.ID.Hex(), "error", err.Error())
		n.wait(n.o.Interval) // the task stays claimed, and a tick resumes it
	}
}

// recoverTask releases a task of a process that has ended, or ends the task for that reason if it has begun.
func (n *Node) recoverTask(a *assignment, t *store.Task, reason error) {
	if a.Plugin.Kind != config.KindTaskRunner { // a task runner may still begin its task
		released := int64(0)
		err := n.retry.Do(n.callsCtx, "releasing task "+t.ID.Hex(), func() (err error) {
			released, err = n.releaseTask(n.callsCtx, []store.Queue{{ID: t.Queue, Schema: a.Schema}}, t.ID)
			return err
		})
		if err != nil || released > 0 {
			n.wait(n.o.Interval)
			return
		}
	}
	if err := n.endAbandoned(n.callsCtx, a, t, failedOutcome(unableToComplete, reason)); err != nil && !errors.Is(err, context.Canceled) {
		n.log.Error("a task stays running", "task", t.ID.Hex(), "error", err.Error())
	}
}
