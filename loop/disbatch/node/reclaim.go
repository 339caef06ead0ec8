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
//   - resumeForeign: claimed tasks from an earlier process of this node, or from a claim without a reply. They start.
//   - reclaimOwn: running tasks of an earlier process of this node, after a power failure for example.
//   - reclaimOthers: running tasks of other nodes without a heartbeat.

// reclaimTicks is the number of ticks between checks for processes of tasks of earlier processes of the node.
const reclaimTicks = 10

// orphanOldClaims orphans the claimed tasks of this node that this process does not hold and that have not begun within
// orphanAge.
func (n *Node) orphanOldClaims(ctx context.Context) error {
	n.mu.Lock()
	own := slices.SortedFunc(maps.Keys(n.own), func(a, b primitive.ObjectID) int { return bytes.Compare(a[:], b[:]) })
	n.mu.Unlock()
	marked, err := n.store.OrphanClaimed(ctx, n.o.Name, n.clock().Add(-orphanAge), own)
	if marked > 0 {
		n.tally.orphaned.Add(uint64(marked))
		n.log.Warn("marked orphaned tasks", "tasks", marked)
	}
	return err
}

// readForeign returns the foreign tasks: those that are claimed or running in the name of this node and were not held
// by this process at two ticks. They belong to an earlier process, or the reply to their claim was lost. At the first
// tick no task can be new.
func (n *Node) readForeign(ctx context.Context) (out []store.Task, err error) {
	tasks, err := n.store.HeldBy(ctx, n.o.Name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	notOwn := make(map[primitive.ObjectID]bool)
	for _, t := range tasks {
		if n.own[t.ID] {
			continue
		}
		notOwn[t.ID] = true
		if n.foreignLastTick[t.ID] || n.ticks == 0 {
			out = append(out, t)
		}
	}
	n.foreignLastTick = notOwn
	return out, nil
}

// resumeForeign starts the claimed tasks among the foreign ones. It orphans running tasks of functions, since their
// jobs ended with the server of the earlier process.
func (n *Node) resumeForeign(ctx context.Context, queues []store.Queue, foreign []store.Task) error {
	for _, t := range foreign {
		n.mu.Lock()
		state := n.queues[t.Queue]
		n.mu.Unlock()
		switch {
		case t.Status == store.StatusClaimed:
			if err := n.resume(ctx, queues, state, t.ID); err != nil {
				return err
			}
		case state != nil && state.plugin.Kind == config.KindFunction && !n.isOwn(t.ID):
			orphaned, err := n.orphanTask(ctx, t.ID)
			if err != nil {
				return err
			}
			if orphaned {
				n.log.Warn("orphaned a task: the server that had it is gone", "task", t.ID.Hex())
			}
		}
	}
	return nil
}

// orphanTask orphans a running task of this node and counts it. It returns false if the task has ended meanwhile.
func (n *Node) orphanTask(ctx context.Context, id primitive.ObjectID) (bool, error) {
	orphaned, err := n.store.OrphanTask(ctx, n.o.Name, id)
	if orphaned {
		n.tally.orphaned.Add(1)
	}
	return orphaned, err
}

// resume starts a foreign task that is claimed. It releases the task if the node no longer serves its queue or has no
// room.
func (n *Node) resume(ctx context.Context, queues []store.Queue, state *queueState, id primitive.ObjectID) error {
	t, err := n.store.Task(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	case t.Status != store.StatusClaimed || t.Node != n.o.Name || n.isOwn(id):
		return nil
	case state != nil && n.adopt(state, &t):
		return nil
	}
	_, err = n.releaseTask(ctx, queues, id)
	return err
}

// isOwn reports whether this process holds a task.
func (n *Node) isOwn(id primitive.ObjectID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.own[id]
}

// reclaimOwn orphans running tasks of earlier processes of this node that no process of this host runs. It looks at the
// first tick and then every reclaimTicks. A task that runs elsewhere still ends with its own status.
func (n *Node) reclaimOwn(ctx context.Context, foreign []store.Task) error {
	first := n.runningAtStart == nil
	if first {
		n.runningAtStart = make(map[primitive.ObjectID]bool)
		for _, t := range foreign {
			n.runningAtStart[t.ID] = t.Status == store.StatusRunning
		}
	}
	enabled := n.o.Config.Node.ReclaimOwn == nil || bool(*n.o.Config.Node.ReclaimOwn)
	due := first || n.ticks%reclaimTicks == 0
	if !enabled || !due {
		return nil
	}
	for _, t := range n.unattended(foreign) {
		orphaned, err := n.orphanTask(ctx, t.ID)
		if err != nil {
			return err
		}
		if orphaned {
			n.log.Warn("orphaned a task: nothing on this host runs it any more", "task", t.ID.Hex())
		}
	}
	return nil
}

// unattended returns the foreign tasks that ran when this process started and that no process of this host runs. It
// leaves out tasks of functions, see resumeForeign. It returns none when it cannot tell.
func (n *Node) unattended(foreign []store.Task) []store.Task {
	var tasks []store.Task
	n.mu.Lock()
	for _, t := range foreign {
		state := n.queues[t.Queue]
		if t.Status == store.StatusRunning && n.runningAtStart[t.ID] && (state == nil || state.plugin.Kind != config.KindFunction) {
			tasks = append(tasks, t)
		}
	}
	n.mu.Unlock()
	const about = "running tasks of an earlier process"
	if len(tasks) == 0 {
		n.setCondition(about, "")
		return nil
	}
	running, err := runningTasks(n.instance)
	if err != nil {
		n.setCondition(about, fmt.Sprintf("they stay, it cannot be seen what runs here: %v", err))
		return nil
	}
	n.setCondition(about, "")
	if running.otherExecutor {
		return nil // it may run any of the tasks
	}
	return slices.DeleteFunc(tasks, func(t store.Task) bool { return running.tasks[t.ID.Hex()] })
}

// reclaimOthers orphans the running tasks of nodes without a heartbeat for reclaim_after.
func (n *Node) reclaimOthers(ctx context.Context, nodes []store.Node) error {
	silence := n.o.Config.Node.ReclaimAfter.Duration()
	if silence == 0 {
		return nil
	}
	for _, e := range nodes {
		if e.Name == n.o.Name || e.Name == "" || time.Since(n.heartbeats[e.Name].Since) <= silence {
			continue
		}
		marked, err := n.store.OrphanAllRunning(ctx, e.Name)
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
