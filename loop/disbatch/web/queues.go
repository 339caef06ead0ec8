package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

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
		return c.failed("get current queues", err).reply()
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
		return c.missing("queue", "get queue "+name, err, nil).reply()
	}
	counts, err := c.store.Counts(r.Context(), queue.ID)
	if err != nil {
		return c.failed("get queue "+name, err).reply()
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
	id, fault := c.createQueue(r.Context(), params)
	body := insertOneResult(id)
	body["id"] = oid(id)
	return answer(body, fault)
}

func (c *dci) createQueue(ctx context.Context, params any) (id primitive.ObjectID, fault *refusal) {
	given, _ := params.(bson.D)
	name, plugin := scalar(get(given, "name")), scalar(get(given, "plugin"))
	if name == "" || plugin == "" {
		return id, bad("name and plugin required")
	}
	if name, ok := unknown(given, "name", "plugin"); ok {
		return id, bad("Invalid param").with(object{"param": name})
	}
	if !slices.Contains(c.plugins(ctx), plugin) {
		return id, bad("Unknown plugin").with(object{"plugin": plugin})
	}
	return c.insertQueue(ctx, name, plugin)
}

func (c *dci) insertQueue(ctx context.Context, name, plugin string) (id primitive.ObjectID, fault *refusal) {
	id, err := c.store.InsertQueue(ctx, name, plugin)
	var other *store.DuplicateError
	switch {
	case errors.As(err, &other):
		return id, duplicate(other, "MongoDB::InsertOneResult", object{"name": name, "plugin": plugin}, object{"id": nil})
	case err != nil:
		return id, c.failed("create queue "+name, err)
	}
	return id, nil
}

// postQueue changes a queue.
func (c *dci) postQueue(r *http.Request, params any) reply {
	result, fault := c.updateQueue(r.Context(), r.PathValue("queue"), params)
	return answer(updateResult(result), fault)
}

func (c *dci) updateQueue(ctx context.Context, name string, params any) (updated store.Updated, fault *refusal) {
	given, ok := params.(bson.D)
	if !ok || len(given) == 0 {
		return updated, bad("no params")
	}
	if name, ok := unknown(given, "threads", "name", "plugin", "sort"); ok {
		return updated, bad("unknown param").with(object{"param": name})
	}
	var change store.QueueChange
	for _, e := range given {
		text := scalar(e.Value)
		switch e.Key {
		case "threads":
			n, ok := limit(e.Value)
			if !ok {
				return updated, bad("threads must be a non-negative integer%s", overLimit(e.Value))
			}
			change.Limit = &n
		case "name":
			if text == "" {
				return updated, bad("name must be a string")
			}
			change.Name = &text
		case "plugin":
			if !slices.Contains(c.plugins(ctx), text) {
				return updated, bad("unknown plugin").with(object{"plugin": json.RawMessage(appendParam(nil, e.Value))})
			}
			change.Plugin = &text
		case "sort":
			if !change.SetSort(text) {
				return updated, bad("sort must be fifo, lifo or default")
			}
		}
	}
	queue, err := c.store.Queue(ctx, name)
	if err != nil {
		return updated, c.missing("queue", "update queue "+name, err, updateResult(updated))
	}
	updated, err = c.store.UpdateQueue(ctx, &queue, change)
	return updated, c.updateFault("queue", name, updated, err)
}

// deleteQueue deletes a queue but not its tasks.
func (c *dci) deleteQueue(r *http.Request, _ any) reply {
	deleted, fault := c.removeQueue(r.Context(), r.PathValue("queue"))
	return answer(deleteResult(deleted), fault)
}

func (c *dci) removeQueue(ctx context.Context, name string) (deleted int64, fault *refusal) {
	queue, err := c.store.Queue(ctx, name)
	if err != nil {
		return 0, c.missing("queue", "delete queue "+name, err, deleteResult(0))
	}
	deleted, err = c.store.DeleteQueue(ctx, queue.ID)
	switch {
	case err != nil:
		return 0, c.failed("delete queue "+name, err)
	case deleted == 0:
		return 0, c.missing("queue", "", store.ErrNotFound, deleteResult(0))
	}
	return deleted, nil
}
