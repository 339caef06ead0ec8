package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// snapshot is the state of the database that a tick has read.
type snapshot struct {
	settings *config.File
	queues   []store.Queue
	busy     map[primitive.ObjectID]map[string]int // claimed and running tasks, by queue and node
	nodes    []store.Node
	foreign  []store.Task // see Node.readForeign
}

// tick reads the database once and does the periodic work of a node.
func (n *Node) tick(ctx context.Context) error {
	s, err := n.readSnapshot(ctx)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.ticks++
	n.mu.Unlock()
	n.adjust(s)
	n.setCondition("journal", n.journalWarning())
	n.tally.ticked.Store(time.Now().UnixMilli())
	err = errors.Join(
		n.resumeForeign(ctx, s.queues, s.foreign),
		n.reclaimOwn(ctx, s.foreign),
		n.recount(ctx, s.queues),
		n.reclaimOthers(ctx, s.nodes),
	)
	if ctx.Err() == nil { // no claims after a tick that was cut off
		n.fill()
	}
	return err
}

// readSnapshot reads the database. It writes the entry of this node, and orphans old claims, before it reads the
// foreign tasks.
func (n *Node) readSnapshot(ctx context.Context) (s *snapshot, err error) {
	s = new(snapshot)
	value, err := n.store.ActiveSettings(ctx)
	if err != nil {
		return nil, err
	}
	s.settings, err = n.o.Config.Overlay(value)
	n.setCondition("collection config", reason(err))
	if s.queues, err = n.store.Queues(ctx); err != nil {
		return nil, err
	}
	if s.busy, err = n.store.Occupation(ctx); err != nil {
		return nil, err
	}
	if s.nodes, err = n.store.Nodes(ctx); err != nil {
		return nil, err
	}
	n.noteHeartbeats(s.nodes)
	if err := n.report(ctx, s); err != nil {
		return nil, err
	}
	if err := n.orphanOldClaims(ctx); err != nil {
		return nil, err
	}
	s.foreign, err = n.readForeign(ctx)
	return s, err
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

// entry returns the document of this node, or a zero one if the node has none.
func (n *Node) entry(ctx context.Context) (store.Node, error) {
	e, err := n.store.Node(ctx, n.o.Name)
	if errors.Is(err, store.ErrNotFound) {
		return store.Node{}, nil
	}
	return e, err
}

// noteHeartbeats records the changes of all entries, and the faults of the entry of this node.
func (n *Node) noteHeartbeats(nodes []store.Node) {
	now, heartbeats := time.Now(), make(map[string]store.Heartbeat, len(nodes))
	for _, e := range nodes {
		heartbeats[e.Name] = n.heartbeats[e.Name].Next(e.Timestamp, now)
		if e.Name != n.o.Name {
			continue
		}
		n.setCondition("node "+e.Name, e.Problem)
		switch {
		case len(n.ownHeartbeats) > 0 && !slices.Contains(n.ownHeartbeats, e.Timestamp.UnixMilli()):
			n.duplicateTick = n.ticks
			n.setCondition("name of the node", errDuplicate.Error())
		case n.ticks-n.duplicateTick >= ownTimestamps: // sooner, the other process may still run and write less often
			n.setCondition("name of the node", "")
		}
	}
	n.heartbeats = heartbeats
}

// report writes the entry of this node.
func (n *Node) report(ctx context.Context, s *snapshot) error {
	now := n.clock()
	// Record the timestamp before the write: its reply may be lost.
	n.ownHeartbeats = append(n.ownHeartbeats, now.UnixMilli())
	if len(n.ownHeartbeats) > ownTimestamps {
		n.ownHeartbeats = n.ownHeartbeats[1:]
	}
	return n.store.ReportNode(ctx, n.o.Name, now, queueReports(s))
}

// queueReports returns the fields about 2016 queues that the original's design document wants in the entry of a node.
func queueReports(s *snapshot) (reports bson.A) {
	for i := range s.queues {
		q := &s.queues[i]
		if q.Schema != store.Schema2016 {
			continue
		}
		doing := int64(0)
		for _, tasks := range s.busy[q.ID] {
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
		reports = append(reports, bson.D{
			{Key: "name", Value: q.Name}, {Key: "id", Value: q.ID.Hex()}, {Key: "constructor", Value: q.Plugin}, {Key: "maxthreads", Value: limit},
			{Key: "tasks_todo", Value: max(q.Todo-doing, 0)}, {Key: "tasks_doing", Value: doing}, {Key: "tasks_done", Value: done},
			{Key: "preemptive", Value: int32(1)}, {Key: "tasks_backfill", Value: int32(0)},
		})
	}
	return reports
}

// ownTimestamps is the number of its own timestamps that a node recognises in its entry.
const ownTimestamps = 8

// adjust replaces the view and updates the states of all queues to it. It drops the conditions of absent queues.
func (n *Node) adjust(s *snapshot) {
	limit := store.NoLimit
	for _, e := range s.nodes {
		if e.Name == n.o.Name {
			limit = e.Limit
		}
	}
	present := map[primitive.ObjectID]bool{{}: true} // the faults of the node have no queue
	for i := range s.queues {
		present[s.queues[i].ID] = true
	}
	states, problems := n.newStates(s, n.countOthers(s))
	n.mu.Lock()
	n.mergeStates(states)
	n.queues, n.view, n.limit, n.foreign = states, s, limit, len(s.foreign)
	maps.DeleteFunc(n.conditions, func(of subject, _ string) bool { return !present[of.queue] })
	n.mu.Unlock()
	for _, p := range problems {
		n.setQueueCondition("queue", p.queue, p.reason)
	}
}

// countOthers returns how many tasks of other processes count against the limit of each queue: those of all nodes for a
// 2018 queue, and the foreign ones.
func (n *Node) countOthers(s *snapshot) map[primitive.ObjectID]int {
	others := make(map[primitive.ObjectID]int)
	for queue, byNode := range s.busy {
		for node, tasks := range byNode {
			if node != n.o.Name {
				others[queue] += tasks
			}
		}
	}
	for i := range s.queues {
		if s.queues[i].Schema == store.Schema2016 {
			others[s.queues[i].ID] = 0
		}
	}
	for _, t := range s.foreign {
		others[t.Queue]++
	}
	return others
}

// queueProblem is why this node cannot serve a queue. An empty reason means that it can.
type queueProblem struct {
	queue  *store.Queue
	reason string
}

// newStates returns the states of the queues that this node serves, without slots, and the problems of all queues. A
// queue with a pending look-up of its plugin has neither.
func (n *Node) newStates(s *snapshot, others map[primitive.ObjectID]int) (map[primitive.ObjectID]*queueState, []queueProblem) {
	states := make(map[primitive.ObjectID]*queueState)
	var problems []queueProblem
	n.plugins.forget(s.queues)
	for i := range s.queues {
		q := &s.queues[i]
		plugin, err := n.serves(s.settings, q)
		if errors.Is(err, errLookupPending) {
			continue
		}
		problems = append(problems, queueProblem{q, reason(err)})
		if err != nil || !wanted(s.settings, q, n.o.Name) {
			continue
		}
		share := n.share(s, q)
		states[q.ID] = &queueState{queue: *q, plugin: plugin, others: others[q.ID], share: share, extra: q.Limit - share}
	}
	return states, problems
}

// mergeStates puts the slots and the back-off of the present states into the new ones. A slot holds a pointer to its
// state, so the present ones stay, with the content of the new ones. The caller holds mu.
func (n *Node) mergeStates(states map[primitive.ObjectID]*queueState) {
	for id, old := range n.queues {
		state := states[id]
		if state == nil && old.slots > 0 {
			// The node no longer serves the queue. Its tasks still run: keep it with a limit of 0.
			state = &queueState{queue: old.queue, plugin: old.plugin}
			state.queue.Limit = 0
		}
		if state == nil {
			continue
		}
		state.slots, state.backoff = old.slots, max(old.backoff-1, 0)
		if old.backoff > 0 {
			state.extra = 0
		}
		*old = *state
		states[id] = old
	}
}

// aliveTicks is the number of intervals that a node counts as alive after its last heartbeat.
const aliveTicks = 10

// share returns the number of slots of a queue that this node refills at once. It is an even part of a limit that all
// nodes have together. A node that refilled every slot at once would leave none to an original node, which claims once
// a second. Slots beyond the shares go to the node with the next tick.
func (n *Node) share(s *snapshot, q *store.Queue) int {
	if q.Schema != store.Schema2018 {
		return q.Limit
	}
	nodes := 1
	for _, e := range s.nodes {
		alive := time.Since(n.heartbeats[e.Name].Since) <= aliveTicks*n.o.Interval
		if e.Name != n.o.Name && e.Name != "" && e.Limit != 0 && alive && pinned(q, e.Name) {
			nodes++
		}
	}
	return q.Limit / nodes
}

// serves returns the plugin of a queue, or why this node cannot serve the queue: errLookupPending while it is not
// known.
func (n *Node) serves(c *config.File, q *store.Queue) (config.Plugin, error) {
	if q.Problem != "" {
		return config.Plugin{}, errors.New(q.Problem)
	}
	plugin, err := pluginOf(c, q.Plugin, q.Schema, func(taskRunner, plugin string, schema store.Schema) (string, error) {
		return n.plugins.result(n.callsCtx, lookupKey{taskRunner, plugin, schema})
	})
	switch {
	case err != nil:
		return plugin, err
	case plugin.Kind == config.KindFunction && n.o.Functions == nil:
		return plugin, fmt.Errorf("the plugin %s is of the kind function: that is served by treadle serve --disbatch", q.Plugin)
	case plugin.Kind != config.KindFunction && n.o.Executor == nil:
		return plugin, fmt.Errorf("the plugin %s needs a task runner", q.Plugin)
	}
	return plugin, nil
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
