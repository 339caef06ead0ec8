package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"

	"treadle/loop/disbatch/store"
)

// getNodes returns all nodes.
func (c *dci) getNodes(r *http.Request, _ any) reply {
	nodes, err := c.store.Nodes(r.Context())
	if err != nil {
		return c.failed("get current nodes", err)
	}
	out := make([]any, 0, len(nodes))
	for i := range nodes {
		out = append(out, nodeJSON(&nodes[i]))
	}
	return success(out)
}

// getNode returns one node.
func (c *dci) getNode(r *http.Request, _ any) reply {
	name := r.PathValue("node")
	node, err := c.store.Node(r.Context(), name)
	if err != nil {
		return c.missing("node", "get node "+name, err, nil)
	}
	return success(nodeJSON(&node))
}

// nodeJSON returns a node's document with its id as text and its time in milliseconds.
func nodeJSON(n *store.Node) any {
	instead := object{"id": n.ID.Hex()}
	if !n.Timestamp.IsZero() {
		instead["timestamp"] = n.Timestamp.UnixMilli()
	}
	return documentJSON(n.Raw, instead)
}

// missing is the reply when a queue or node does not exist or could not be read. extra is added in the first case.
func (c *dci) missing(kind, doing string, err error, extra object) reply {
	if !errors.Is(err, store.ErrNotFound) {
		return c.failed(doing, err)
	}
	body := object{"error": kind + " not found"}
	for name, value := range extra {
		body[name] = value
	}
	return reply{status: http.StatusNotFound, body: body}
}

// postNode changes the limit of a node.
func (c *dci) postNode(r *http.Request, params any) reply {
	return c.updateNode(r.Context(), r.PathValue("node"), params)
}

func (c *dci) updateNode(ctx context.Context, name string, params any) reply {
	given, ok := params.(bson.D)
	if !ok || len(given) == 0 {
		return bad("No params")
	}
	if name, ok := unknown(given, "maxthreads"); ok {
		return reply{status: http.StatusBadRequest, body: object{"error": "Invalid param", "param": name}}
	}
	most := store.NoLimit
	if value := get(given, "maxthreads"); value != nil {
		if most, ok = limit(value); !ok {
			return bad("maxthreads must be a non-negative integer or null%s", overLimit(value))
		}
	}
	node, err := c.store.Node(ctx, name)
	if err != nil {
		return c.missing("node", "update node "+name, err, updateResult(nil))
	}
	result, err := c.store.SetNodeLimit(ctx, node.ID, most)
	return c.updated("node", name, result, err)
}

// overLimit returns the error for a limit of digits only.
func overLimit(v any) string {
	if digits.MatchString(scalar(v)) {
		return ", and at most " + strconv.Itoa(store.MaxLimit)
	}
	return ""
}

// updated returns the reply to an update.
func (c *dci) updated(kind, name string, result *mongo.UpdateResult, err error) reply {
	switch {
	case mongo.IsDuplicateKeyError(err):
		return duplicate(err, "MongoDB::UpdateResult", object{kind: name}, nil)
	case err != nil:
		return c.failed("update "+kind+" "+name, err)
	case result.MatchedCount != 1:
		return c.missing(kind, "", store.ErrNotFound, updateResult(result))
	}
	return success(updateResult(result))
}

// getPlugins returns the plugins that a queue may have.
func (c *dci) getPlugins(r *http.Request, _ any) reply { return success(c.plugins(r.Context())) }

// plugins returns the configured plugins, or those of the collection config if the file names none. The collection
// may be missing.
func (c *dci) plugins(ctx context.Context) []string {
	config := c.config
	value, err := c.store.ActiveSettings(ctx)
	if err == nil {
		config, err = config.Overlay(value)
	}
	if err != nil {
		c.failed("read the collection config", err)
		return c.config.PluginNames()
	}
	return config.PluginNames()
}

// getQueues returns all queues with the counts of their tasks.
func (c *dci) getQueues(r *http.Request, _ any) reply {
	queues, counts, err := c.queues(r.Context())
	if err != nil {
		return c.failed("get current queues", err)
	}
	out := make([]any, 0, len(queues))
	for i := range queues {
		out = append(out, queueJSON(&queues[i], counts[queues[i].ID]))
	}
	return success(out)
}

func (c *dci) queues(ctx context.Context) ([]store.Queue, map[primitive.ObjectID]store.Counts, error) {
	queues, err := c.store.Queues(ctx)
	if err != nil {
		return nil, nil, err
	}
	counts, err := c.store.Counts(ctx)
	return queues, counts, err
}

// getQueue returns one queue.
func (c *dci) getQueue(r *http.Request, _ any) reply {
	name := r.PathValue("queue")
	queue, err := c.store.Queue(r.Context(), name)
	if err != nil {
		return c.missing("queue", "get queue "+name, err, nil)
	}
	counts, err := c.store.Counts(r.Context(), queue.ID)
	if err != nil {
		return c.failed("get queue "+name, err)
	}
	return success(queueJSON(&queue, counts[queue.ID]))
}

// queueJSON returns a queue of either dialect with the names of 2018. It shows a limit that is no number unchanged.
func queueJSON(q *store.Queue, n store.Counts) any {
	stored := q.Raw.Lookup(q.Schema.LimitField())
	threads := any(json.RawMessage(valueJSON(stored)))
	if number, ok := store.Integer(stored); ok {
		threads = number
	}
	return object{
		"id": q.ID.Hex(), "plugin": q.Plugin, "name": q.Name, "threads": threads,
		"queued": n.Queued, "running": n.Running, "completed": n.Completed,
	}
}

// postQueues creates a queue.
func (c *dci) postQueues(r *http.Request, params any) reply {
	return c.createQueue(r.Context(), params)
}

func (c *dci) createQueue(ctx context.Context, params any) reply {
	given, _ := params.(bson.D)
	name, plugin := scalar(get(given, "name")), scalar(get(given, "plugin"))
	if name == "" || plugin == "" {
		return bad("name and plugin required")
	}
	if name, ok := unknown(given, "name", "plugin"); ok {
		return reply{status: http.StatusBadRequest, body: object{"error": "Invalid param", "param": name}}
	}
	if !slices.Contains(c.plugins(ctx), plugin) {
		return reply{status: http.StatusBadRequest, body: object{"error": "Unknown plugin", "plugin": plugin}}
	}
	return c.insertQueue(ctx, name, plugin)
}

func (c *dci) insertQueue(ctx context.Context, name, plugin string) reply {
	result, err := c.store.InsertQueue(ctx, name, plugin)
	switch {
	case mongo.IsDuplicateKeyError(err):
		return duplicate(err, "MongoDB::InsertOneResult", object{"name": name, "plugin": plugin}, object{"id": nil})
	case err != nil:
		return c.failed("create queue "+name, err)
	}
	return success(object{"MongoDB::InsertOneResult": insertOneResult(result), "id": oid(result.InsertedID)})
}

// postQueue changes a queue.
func (c *dci) postQueue(r *http.Request, params any) reply {
	return c.updateQueue(r.Context(), r.PathValue("queue"), params)
}

func (c *dci) updateQueue(ctx context.Context, name string, params any) reply {
	given, ok := params.(bson.D)
	if !ok || len(given) == 0 {
		return bad("no params")
	}
	if name, ok := unknown(given, "threads", "name", "plugin", "sort"); ok {
		return reply{status: http.StatusBadRequest, body: object{"error": "unknown param", "param": name}}
	}
	var change store.QueueChange
	for _, e := range given {
		text := scalar(e.Value)
		switch e.Key {
		case "threads":
			n, ok := limit(e.Value)
			if !ok {
				return bad("threads must be a non-negative integer%s", overLimit(e.Value))
			}
			change.Limit = &n
		case "name":
			if text == "" {
				return bad("name must be a string")
			}
			change.Name = &text
		case "plugin":
			if !slices.Contains(c.plugins(ctx), text) {
				return reply{status: http.StatusBadRequest, body: object{"error": "unknown plugin", "plugin": json.RawMessage(appendParam(nil, e.Value))}}
			}
			change.Plugin = &text
		case "sort":
			if !change.SetSort(text) {
				return bad("sort must be fifo, lifo or default")
			}
		}
	}
	queue, err := c.store.Queue(ctx, name)
	if err != nil {
		return c.missing("queue", "update queue "+name, err, updateResult(nil))
	}
	result, err := c.store.UpdateQueue(ctx, &queue, change)
	return c.updated("queue", name, result, err)
}

// deleteQueue deletes a queue but not its tasks.
func (c *dci) deleteQueue(r *http.Request, _ any) reply {
	return c.removeQueue(r.Context(), r.PathValue("queue"))
}

func (c *dci) removeQueue(ctx context.Context, name string) reply {
	queue, err := c.store.Queue(ctx, name)
	if err != nil {
		return c.missing("queue", "delete queue "+name, err, deleteResult(0))
	}
	result, err := c.store.DeleteQueue(ctx, queue.ID)
	switch {
	case err != nil:
		return c.failed("delete queue "+name, err)
	case result.DeletedCount == 0:
		return c.missing("queue", "", store.ErrNotFound, deleteResult(0))
	}
	return success(deleteResult(result.DeletedCount))
}
