package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// Tasks whose process is gone keep their status and count against the limits. Each tick recovers them in four ways:
//
//   - orphanOldClaims: tasks of this node that were claimed long ago and have not begun.
//   - resumeInherited: claimed tasks from an earlier process of this node, or from a claim without a reply. They start.
//   - reclaimOwn: running tasks of an earlier process of this node, after a power failure for example.
//   - reclaimOthers: running tasks of other nodes without a heartbeat.

// reclaimTicks is the number of ticks between checks for processes of tasks of earlier instances.
const reclaimTicks = 10

// orphanOldClaims orphans the claimed tasks of this node that this process does not hold and that have not begun within orphanAge.
func (n *Node) orphanOldClaims(ctx context.Context) error {
	n.mu.Lock()
	local := slices.SortedFunc(maps.Keys(n.local), func(a, b primitive.ObjectID) int { return bytes.Compare(a[:], b[:]) })
	n.mu.Unlock()
	marked, err := n.store.OrphanClaimed(ctx, n.o.Name, n.clock().Add(-orphanAge), local)
	if marked > 0 {
		n.tally.orphaned.Add(uint64(marked))
		n.log.Warn("marked orphaned tasks", "tasks", marked)
	}
	return err
}

// inherited returns the claimed and running tasks in the name of this node that this process has not held for two ticks. They belong
// to an earlier process, or the reply to their claim was lost.
func (n *Node) inherited(ctx context.Context) (out []store.Task, err error) {
	tasks, err := n.store.HeldBy(ctx, n.o.Name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	known := make(map[primitive.ObjectID]bool)
	for _, t := range tasks {
		if n.local[t.ID] {
			continue
		}
		known[t.ID] = true
		if n.known[t.ID] || n.ticks == 0 {
			out = append(out, t)
		}
	}
	n.known = known
	n.ticks++
	return out, nil
}

// resumeInherited starts the claimed tasks among the inherited ones. It orphans running tasks of functions, since their jobs ended
// with the server of the earlier process.
func (n *Node) resumeInherited(ctx context.Context, queues []store.Queue, inherited []store.Task) error {
	for _, t := range inherited {
		n.mu.Lock()
		state := n.queues[t.Queue]
		n.mu.Unlock()
		switch {
		case t.Status == store.StatusClaimed:
			if err := n.resume(ctx, queues, state, t.ID); err != nil {
				return err
			}
		case state != nil && state.plugin.Kind == config.KindFunction && !n.isLocal(t.ID):
			if _, err := n.store.OrphanRunning(ctx, n.o.Name, t.ID); err != nil {
				return err
			}
			n.tally.orphaned.Add(1)
			n.log.Warn("orphaned a task: the server that had it is gone", "task", t.ID.Hex())
		}
	}
	return nil
}

// resume starts an inherited task that is claimed. It releases the task if the node no longer serves its queue or has no room.
func (n *Node) resume(ctx context.Context, queues []store.Queue, state *queueState, id primitive.ObjectID) error {
	t, err := n.store.Task(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	case t.Status != store.StatusClaimed || t.Node != n.o.Name || n.isLocal(id):
		return nil
	case state != nil && n.adopt(state, &t):
		return nil
	}
	_, err = n.release(ctx, queues, id)
	return err
}

// isLocal reports whether this process holds a task.
func (n *Node) isLocal(id primitive.ObjectID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.local[id]
}

// reclaimOwn orphans running tasks of earlier instances of this node that no process of this host runs. A task that runs elsewhere
// still ends with its own status.
func (n *Node) reclaimOwn(ctx context.Context, inherited []store.Task) error {
	if n.left == nil {
		n.left = make(map[primitive.ObjectID]bool)
		for _, t := range inherited {
			n.left[t.ID] = t.Status == store.StatusRunning
		}
	} else if n.ticks%reclaimTicks != 0 {
		return nil
	}
	var left []store.Task
	n.mu.Lock()
	for _, t := range inherited {
		state := n.queues[t.Queue]
		if t.Status == store.StatusRunning && n.left[t.ID] && (state == nil || state.plugin.Kind != config.KindFunction) { // see resumeInherited
			left = append(left, t)
		}
	}
	n.mu.Unlock()
	if own := n.o.Config.Node.ReclaimOwn; len(left) == 0 || own != nil && !bool(*own) {
		return nil
	}
	running, err := runningTasks(n.instance)
	if err != nil {
		n.setCondition("running tasks of an earlier life", fmt.Sprintf("they stay, it cannot be seen what runs here: %v", err))
		return nil
	}
	if running.runner {
		return nil // it may run any of the tasks
	}
	for _, t := range left {
		if running.tasks[t.ID.Hex()] {
			continue
		}
		marked, err := n.store.OrphanRunning(ctx, n.o.Name, t.ID)
		if err != nil {
			return err
		}
		if marked == 0 { // the task has ended
			continue
		}
		n.tally.orphaned.Add(1)
		n.log.Warn("orphaned a task: nothing on this host runs it any more", "task", t.ID.Hex())
	}
	return nil
}

// reclaimOthers orphans the running tasks of nodes without a heartbeat for reclaim_after.
func (n *Node) reclaimOthers(ctx context.Context, nodes []store.Node) error {
	limit := n.o.Config.Node.ReclaimAfter.Duration()
	if limit == 0 {
		return nil
	}
	for _, e := range nodes {
		if e.Name == n.o.Name || e.Name == "" || time.Since(n.heartbeats[e.Name].at) <= limit {
			continue
		}
		marked, err := n.store.OrphanRunning(ctx, e.Name)
		if err != nil {
			return err
		}
		if marked > 0 {
			n.tally.orphaned.Add(uint64(marked))
			n.log.Warn("orphaned the running tasks of a node that is gone", "node", e.Name, "tasks", marked)
		}
	}
	return nil
}
