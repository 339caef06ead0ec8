package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/config"
)

// sighting is when this process saw an entry of a node change, by its own clock: those of
// the nodes are not compared.
type sighting struct {
	timestamp time.Time
	at        time.Time
}

// tick reads the database once and does what is due: the document's "at a set interval".
func (n *Node) tick(ctx context.Context) error {
	config, err := n.store.Overlay(ctx, n.o.Config)
	if config == nil {
		return err
	}
	n.say("collection config", reason(err))
	queues, err := n.store.Queues(ctx)
	if err != nil {
		return err
	}
	busy, err := n.store.occupation(ctx)
	if err != nil {
		return err
	}
	nodes, err := n.store.Nodes(ctx)
	if err != nil {
		return err
	}
	v := view{config: config, queues: queues, nodes: nodes, limit: disbatch.NoLimit}
	n.watch(nodes, &v)
	if err := n.report(ctx, queues, busy); err != nil {
		return err
	}
	if err := n.clean(ctx); err != nil {
		return err
	}
	mine, err := n.foreign(ctx)
	if err != nil {
		return err
	}
	v.foreign = len(mine)
	n.adjust(&v, busy, mine)
	n.say("journal", n.store.risk())
	n.tally.ticked.Store(time.Now().UnixMilli())
	err = errors.Join(n.recover(ctx, mine), n.reclaimOwn(ctx, mine), n.recount(ctx, queues), n.reclaim(ctx, nodes))
	if ctx.Err() == nil { // a database that could not be read gets no claims either
		n.fill()
	}
	return err
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// entry is the document of this node, empty if there is none.
func (n *Node) entry(ctx context.Context) (disbatch.Node, error) {
	e, err := n.store.Node(ctx, n.o.Name)
	if errors.Is(err, disbatch.ErrNotFound) {
		return disbatch.Node{}, nil
	}
	return e, err
}

// watch notes when the nodes gave a sign, and what this one's entry says.
func (n *Node) watch(nodes []disbatch.Node, v *view) {
	now, seen := time.Now(), make(map[string]sighting, len(nodes))
	for _, e := range nodes {
		last, known := n.seen[e.Name]
		if !known || !last.timestamp.Equal(e.Timestamp) {
			last = sighting{e.Timestamp, now}
		}
		seen[e.Name] = last
		if e.Name != n.o.Name {
			continue
		}
		v.limit = e.Limit
		n.say("node "+e.Name, e.Problem)
		if len(n.written) > 0 && !slices.Contains(n.written, e.Timestamp.UnixMilli()) {
			n.say("name of the node", ErrDuplicate.Error())
		}
	}
	n.seen = seen
}

// report writes this node's entry, with what the document asks for of the queues of 2016.
func (n *Node) report(ctx context.Context, queues []disbatch.Queue, busy []occupied) error {
	var of2016 bson.A
	for i := range queues {
		q := &queues[i]
		if q.Schema != disbatch.Schema2016 {
			continue
		}
		doing := int64(0)
		for _, b := range busy {
			if b.queue == q.ID {
				doing += int64(b.tasks)
			}
		}
		var limit any // null where the queue's is
		if !disbatch.Missing(q.Raw.Lookup(disbatch.Schema2016.LimitField())) {
			limit = int32(q.Limit)
		}
		done := int64(0)
		if q.Todo >= 0 { // else it is yet to be counted
			done = max(q.Total-q.Todo, 0)
		}
		of2016 = append(of2016, bson.D{
			{Key: "name", Value: q.Name}, {Key: "id", Value: q.ID.Hex()}, {Key: "constructor", Value: q.Plugin}, {Key: "maxthreads", Value: limit},
			{Key: "tasks_todo", Value: max(q.Todo-doing, 0)}, {Key: "tasks_doing", Value: doing}, {Key: "tasks_done", Value: done},
			{Key: "preemptive", Value: int32(1)}, {Key: "tasks_backfill", Value: int32(0)},
		})
	}
	now := n.clock()
	// A reply may be lost: what was tried counts as written.
	n.written = append(n.written, now.UnixMilli())
	if len(n.written) > keptTimes {
		n.written = n.written[1:]
	}
	return n.store.report(ctx, n.o.Name, now, of2016)
}

// keptTimes is how many of its own times a node knows again in its entry.
const keptTimes = 8

// foreign returns the tasks that are claimed by this node or run there, and were not this
// process's at two ticks: those of an earlier life, and those whose claim's reply was lost.
func (n *Node) foreign(ctx context.Context) (out []disbatch.Task, err error) {
	tasks, err := n.store.heldBy(ctx, n.o.Name)
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

// adjust makes the queues' states those of a new view.
func (n *Node) adjust(v *view, busy []occupied, mine []disbatch.Task) {
	others := make(map[primitive.ObjectID]int)
	for _, b := range busy {
		if b.node != n.o.Name {
			others[b.queue] += b.tasks
		}
	}
	for i := range v.queues {
		if v.queues[i].Schema == disbatch.Schema2016 {
			others[v.queues[i].ID] = 0
		}
	}
	for _, t := range mine {
		others[t.Queue]++
	}
	states := make(map[primitive.ObjectID]*queueState)
	var faults []struct{ name, problem string }
	n.loader.forget(v.queues)
	for _, q := range v.queues {
		plugin, problem := n.serves(v.config, &q)
		if problem == errLoading.Error() {
			continue
		}
		faults = append(faults, struct{ name, problem string }{"queue " + q.Name + " " + q.ID.Hex(), problem})
		if problem != "" || !wanted(v.config, &q, n.o.Name) {
			continue
		}
		share := n.share(v, &q)
		states[q.ID] = &queueState{queue: q, plugin: plugin, others: others[q.ID], share: share, turn: q.Limit - share}
	}
	n.mu.Lock()
	for id, old := range n.queues {
		state := states[id]
		if state == nil && old.slots > 0 {
			// Its tasks still run: nothing more is claimed.
			state = &queueState{queue: old.queue, plugin: old.plugin}
			state.queue.Limit = 0
			states[id] = state
		}
		if state != nil {
			state.slots, state.rest = old.slots, max(old.rest-1, 0)
			if old.rest > 0 {
				state.turn = 0
			}
			*old = *state
			states[id] = old
		}
	}
	n.queues, n.view = states, *v
	n.mu.Unlock()
	for _, f := range faults {
		n.say(f.name, f.problem)
	}
}

// rivalTicks is for how many intervals a node that gives no sign counts as one that takes tasks.
const rivalTicks = 10

// share is how many tasks of a queue this node replaces at once when they end. Of a limit over all
// nodes that is an even part: a node that looks once a second, as the originals do, would never find
// room beside one that refills at once. What is beyond the shares goes to the node whose tick is next.
func (n *Node) share(v *view, q *disbatch.Queue) int {
	if q.Schema != disbatch.Schema2018 {
		return q.Limit
	}
	nodes := 1
	for _, e := range v.nodes {
		alive := time.Since(n.seen[e.Name].at) <= rivalTicks*n.o.Interval
		if e.Name != n.o.Name && e.Name != "" && e.Limit != 0 && alive && pinned(q, e.Name) {
			nodes++
		}
	}
	return q.Limit / nodes
}

// serves returns how a queue's plugin is run here, or why the queue is ignored.
func (n *Node) serves(c *config.File, q *disbatch.Queue) (config.Plugin, string) {
	if q.Problem != "" {
		return config.Plugin{}, q.Problem
	}
	plugin, err := pluginOf(c, q.Plugin, q.Schema, func(runner, plugin string, schema disbatch.Schema) (string, error) {
		return n.loader.load(n.calls, loadKey{runner, plugin, schema})
	})
	switch {
	case err != nil:
		return plugin, err.Error()
	case plugin.Kind == config.KindFunction && n.o.Functions == nil:
		return plugin, "the plugin " + q.Plugin + " is of the kind function: that is served by treadle serve --disbatch"
	case plugin.Kind != config.KindFunction && n.o.Runner == nil:
		return plugin, "the plugin " + q.Plugin + " needs a task runner"
	}
	return plugin, ""
}

// wanted says whether a node is to serve a queue.
func wanted(c *config.File, q *disbatch.Queue, node string) bool {
	id := q.ID.Hex()
	switch {
	case len(c.ActiveQueues) > 0 && !slices.Contains(c.ActiveQueues, id):
		return false
	case len(c.ActiveQueues) == 0 && slices.Contains(c.IgnoreQueues, id):
		return false
	}
	return pinned(q, node)
}

// pinned says whether a queue may be served by a node.
func pinned(q *disbatch.Queue, node string) bool {
	if len(q.Pin) > 0 {
		return slices.Contains(q.Pin, node)
	}
	return !slices.Contains(q.Ignore, node)
}

// clean marks orphans: tasks that were claimed long ago and never began.
func (n *Node) clean(ctx context.Context) error {
	n.mu.Lock()
	local := slices.SortedFunc(maps.Keys(n.local), func(a, b primitive.ObjectID) int { return bytes.Compare(a[:], b[:]) })
	n.mu.Unlock()
	marked, err := n.store.orphanClaimed(ctx, n.o.Name, n.clock().Add(-orphanAge), local)
	if marked > 0 {
		n.tally.orphaned.Add(uint64(marked))
		n.log.Warn("marked orphaned tasks", "tasks", marked)
	}
	return err
}

// recover starts the tasks that this node has claimed and does not know: the reply to the
// claim was lost, or the node was started again. Tasks that an earlier life had submitted
// to workers are lost with its server.
func (n *Node) recover(ctx context.Context, mine []disbatch.Task) error {
	for _, t := range mine {
		n.mu.Lock()
		state := n.queues[t.Queue]
		n.mu.Unlock()
		switch {
		case t.Status == disbatch.StatusClaimed:
			if err := n.resume(ctx, state, t.ID); err != nil {
				return err
			}
		case state != nil && state.plugin.Kind == config.KindFunction && !n.isLocal(t.ID):
			if _, err := n.store.orphanTask(ctx, &t); err != nil {
				return err
			}
			n.tally.orphaned.Add(1)
			n.log.Warn("orphaned a task: the server that had it is gone", "task", t.ID.Hex())
		}
	}
	return nil
}

// resume starts a task that this node has claimed and does not know, or gives it back if
// its queue is none of this node's any more or has no room.
func (n *Node) resume(ctx context.Context, state *queueState, id primitive.ObjectID) error {
	t, err := n.store.Task(ctx, id)
	switch {
	case errors.Is(err, disbatch.ErrNotFound):
		return nil
	case err != nil:
		return err
	case t.Status != disbatch.StatusClaimed || t.Node != n.o.Name || n.isLocal(id):
		return nil
	case state != nil && n.adopt(state, &t):
		return nil
	}
	_, err = n.giveBack(ctx, n.view.queues, id)
	return err
}

func (n *Node) isLocal(id primitive.ObjectID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.local[id]
}

// recountTicks is how often the counters of 2016 are compared with what is there: a lost
// reply can put them off by one.
const recountTicks = 60

// recount writes missing counters of 2016 at once, and wrong ones from time to time.
func (n *Node) recount(ctx context.Context, queues []disbatch.Queue) error {
	for _, q := range queues {
		if q.Schema == disbatch.Schema2016 && (q.Todo < 0 || q.Total < 0 || n.ticks%recountTicks == 0) {
			if err := n.store.recount(ctx, &q); err != nil {
				return fmt.Errorf("cannot count the tasks of queue %s: %w", q.Name, err)
			}
		}
	}
	return nil
}

// reclaim marks the running tasks of nodes that gave no sign for longer than the setting.
func (n *Node) reclaim(ctx context.Context, nodes []disbatch.Node) error {
	limit := n.o.Config.Node.ReclaimAfter.Duration()
	if limit == 0 {
		return nil
	}
	for _, e := range nodes {
		if e.Name == n.o.Name || e.Name == "" || time.Since(n.seen[e.Name].at) <= limit {
			continue
		}
		marked, err := n.store.orphanRunning(ctx, e.Name)
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
