package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// heartbeat is the last change of a node's entry. Its age follows from the clock of this process, since clocks of hosts differ.
type heartbeat struct {
	timestamp time.Time // in the entry, by the clock of the node
	at        time.Time // when this process saw it, by its own clock
}

// tick reads the database once and does the periodic work of a node.
func (n *Node) tick(ctx context.Context) error {
	value, err := n.store.ActiveSettings(ctx)
	if err != nil {
		return err
	}
	config, err := n.o.Config.Overlay(value)
	n.setCondition("collection config", reason(err))
	queues, err := n.store.Queues(ctx)
	if err != nil {
		return err
	}
	busy, err := n.store.Occupation(ctx)
	if err != nil {
		return err
	}
	nodes, err := n.store.Nodes(ctx)
	if err != nil {
		return err
	}
	v := view{config: config, queues: queues, nodes: nodes, limit: n.noteHeartbeats(nodes)}
	if err := n.report(ctx, queues, busy); err != nil {
		return err
	}
	if err := n.orphanOldClaims(ctx); err != nil {
		return err
	}
	inherited, err := n.inherited(ctx)
	if err != nil {
		return err
	}
	v.inherited = len(inherited)
	n.adjust(&v, busy, inherited)
	n.setCondition("journal", n.journalWarning())
	n.tally.ticked.Store(time.Now().UnixMilli())
	err = errors.Join(n.resumeInherited(ctx, queues, inherited), n.reclaimOwn(ctx, inherited), n.recount(ctx, queues), n.reclaimOthers(ctx, nodes))
	if ctx.Err() == nil { // no claims after a tick that was cut off
		n.fill()
	}
	return err
}

// journalWarning returns a warning about a database without a journal, or an empty text.
func (p *performer) journalWarning() string {
	if !p.store.NoJournal() {
		return ""
	}
	return "the database keeps no journal: a loss of power may leave tasks running (0) that have ended"
}

// reason returns the text of an error, or an empty text for nil.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// entry returns the document of this node, or a zero one if there is none.
func (n *Node) entry(ctx context.Context) (store.Node, error) {
	e, err := n.store.Node(ctx, n.o.Name)
	if errors.Is(err, store.ErrNotFound) {
		return store.Node{}, nil
	}
	return e, err
}

// noteHeartbeats records the changes of all entries. It returns the limit in the entry of this node.
func (n *Node) noteHeartbeats(nodes []store.Node) (limit int) {
	limit = store.NoLimit
	now, heartbeats := time.Now(), make(map[string]heartbeat, len(nodes))
	for _, e := range nodes {
		last, known := n.heartbeats[e.Name]
		if !known || !last.timestamp.Equal(e.Timestamp) {
			last = heartbeat{e.Timestamp, now}
		}
		heartbeats[e.Name] = last
		if e.Name != n.o.Name {
			continue
		}
		limit = e.Limit
		n.setCondition("node "+e.Name, e.Problem)
		if len(n.written) > 0 && !slices.Contains(n.written, e.Timestamp.UnixMilli()) {
			n.setCondition("name of the node", errDuplicate.Error())
		}
	}
	n.heartbeats = heartbeats
	return limit
}

// report writes the entry of this node, with the fields that the design text wants about 2016 queues.
func (n *Node) report(ctx context.Context, queues []store.Queue, busy map[primitive.ObjectID]map[string]int) error {
	var of2016 bson.A
	for i := range queues {
		q := &queues[i]
		if q.Schema != store.Schema2016 {
			continue
		}
		doing := int64(0)
		for _, tasks := range busy[q.ID] {
			doing += int64(tasks)
		}
		var limit any // null if null in the queue
		if !store.Missing(q.Raw.Lookup(store.Schema2016.LimitField())) {
			limit = int32(q.Limit)
		}
		done := int64(0)
		if q.Todo >= 0 { // otherwise unknown
			done = max(q.Total-q.Todo, 0)
		}
		of2016 = append(of2016, bson.D{
			{Key: "name", Value: q.Name}, {Key: "id", Value: q.ID.Hex()}, {Key: "constructor", Value: q.Plugin}, {Key: "maxthreads", Value: limit},
			{Key: "tasks_todo", Value: max(q.Todo-doing, 0)}, {Key: "tasks_doing", Value: doing}, {Key: "tasks_done", Value: done},
			{Key: "preemptive", Value: int32(1)}, {Key: "tasks_backfill", Value: int32(0)},
		})
	}
	now := n.clock()
	// Record the timestamp before the write: its reply may be lost.
	n.written = append(n.written, now.UnixMilli())
	if len(n.written) > ownTimestamps {
		n.written = n.written[1:]
	}
	return n.store.ReportNode(ctx, n.o.Name, now, of2016)
}

// ownTimestamps is the number of its own timestamps that a node recognises in its entry.
const ownTimestamps = 8

// adjust replaces the view and updates the states of all queues to it.
func (n *Node) adjust(v *view, busy map[primitive.ObjectID]map[string]int, inherited []store.Task) {
	others := make(map[primitive.ObjectID]int)
	for queue, byNode := range busy {
		for node, tasks := range byNode {
			if node != n.o.Name {
				others[queue] += tasks
			}
		}
	}
	for i := range v.queues {
		if v.queues[i].Schema == store.Schema2016 {
			others[v.queues[i].ID] = 0
		}
	}
	for _, t := range inherited {
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
		states[q.ID] = &queueState{queue: q, plugin: plugin, others: others[q.ID], share: share, extra: q.Limit - share}
	}
	n.mu.Lock()
	for id, old := range n.queues {
		state := states[id]
		if state == nil && old.slots > 0 {
			// The node no longer serves the queue. Its tasks still run: keep it with a limit of 0.
			state = &queueState{queue: old.queue, plugin: old.plugin}
			state.queue.Limit = 0
			states[id] = state
		}
		if state != nil {
			state.slots, state.backoff = old.slots, max(old.backoff-1, 0)
			if old.backoff > 0 {
				state.extra = 0
			}
			*old = *state
			states[id] = old
		}
	}
	n.queues, n.view = states, *v
	n.mu.Unlock()
	for _, f := range faults {
		n.setCondition(f.name, f.problem)
	}
}

// aliveTicks is the number of intervals that a node counts as alive after its last heartbeat.
const aliveTicks = 10

// share returns the number of slots of a queue that this node refills at once. It is an even part of a limit over all nodes: beside
// a node that refills all slots at once, a node that claims once per second, as the original does, would never find room. Slots
// beyond the shares go to the node with the next tick.
func (n *Node) share(v *view, q *store.Queue) int {
	if q.Schema != store.Schema2018 {
		return q.Limit
	}
	nodes := 1
	for _, e := range v.nodes {
		alive := time.Since(n.heartbeats[e.Name].at) <= aliveTicks*n.o.Interval
		if e.Name != n.o.Name && e.Name != "" && e.Limit != 0 && alive && pinned(q, e.Name) {
			nodes++
		}
	}
	return q.Limit / nodes
}

// serves returns the plugin of a queue, or the reason why this node cannot serve the queue.
func (n *Node) serves(c *config.File, q *store.Queue) (config.Plugin, string) {
	if q.Problem != "" {
		return config.Plugin{}, q.Problem
	}
	plugin, err := pluginOf(c, q.Plugin, q.Schema, func(runner, plugin string, schema store.Schema) (string, error) {
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

// wanted reports whether the configuration and the queue select a node.
func wanted(c *config.File, q *store.Queue, node string) bool {
	id := q.ID.Hex()
	switch {
	case len(c.ActiveQueues) > 0 && !slices.Contains(c.ActiveQueues, id):
		return false
	case len(c.ActiveQueues) == 0 && slices.Contains(c.IgnoreQueues, id):
		return false
	}
	return pinned(q, node)
}

// pinned reports whether nodes_pin and nodes_ignore of a queue allow a node.
func pinned(q *store.Queue, node string) bool {
	if len(q.Pin) > 0 {
		return slices.Contains(q.Pin, node)
	}
	return !slices.Contains(q.Ignore, node)
}

// recountTicks is the number of ticks between recounts of 2016 queues. A lost reply can make a counter wrong by one.
const recountTicks = 60

// recount writes the counters of 2016 queues: missing ones at once, all every recountTicks.
func (n *Node) recount(ctx context.Context, queues []store.Queue) error {
	for _, q := range queues {
		if q.Schema == store.Schema2016 && (q.Todo < 0 || q.Total < 0 || n.ticks%recountTicks == 0) {
			if err := n.store.Recount(ctx, &q); err != nil {
				return fmt.Errorf("cannot count the tasks of queue %s: %w", q.Name, err)
			}
		}
	}
	return nil
}
