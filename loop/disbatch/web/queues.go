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
func (c *commandInterface) getPlugins(r *http.Request, _ params) reply {
	return success(c.plugins(r.Context()))
}

// plugins returns the configured plugins, or those of the collection config if the file names none. The collection may
// be missing.
func (c *commandInterface) plugins(ctx context.Context) []string {
	config := c.config
	value, err := c.store.ActiveSettings(ctx)
	if err == nil {
		config, err = config.Overlay(value)
	}
	if err != nil {
		c.databaseError("read the collection config", err)
		return c.config.PluginNames()
	}
	return config.PluginNames()
}

// getQueues returns all queues with the counts of their tasks.
func (c *commandInterface) getQueues(r *http.Request, _ params) reply {
	queues, counts, err := c.queues(r.Context())
	if err != nil {
		return c.databaseError("get current queues", err).reply()
	}
	out := make([]any, 0, len(queues))
	for i := range queues {
		out = append(out, queueJSON(&queues[i], counts[queues[i].ID]))
	}
	return success(out)
}

// queues returns all queues, and the counts of their tasks by queue.
func (c *commandInterface) queues(ctx context.Context) ([]store.Queue, map[primitive.ObjectID]store.Counts, error) {
	queues, err := c.store.Queues(ctx)
	if err != nil {
		return nil, nil, err
	}
	counts, err := c.store.Counts(ctx)
	return queues, counts, err
}

// getQueue returns one queue.
func (c *commandInterface) getQueue(r *http.Request, _ params) reply {
	name := r.PathValue("queue")
	queue, err := c.store.Queue(r.Context(), name)
	if err != nil {
		return c.lookupError("queue", "get queue "+name, err, nil).reply()
	}
	counts, err := c.store.Counts(r.Context(), queue.ID)
	if err != nil {
		return c.databaseError("get queue "+name, err).reply()
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
func (c *commandInterface) postQueues(r *http.Request, p params) reply {
	id, refusal := c.createQueue(r.Context(), p)
	body := insertOneResult(id)
	body["id"] = oid(id)
	return answer(body, refusal)
}

// createQueue creates a queue with the name and one of the known plugins that the parameters say.
func (c *commandInterface) createQueue(ctx context.Context, p params) (id primitive.ObjectID, refusal *requestError) {
	name, plugin := p.text("name"), p.text("plugin")
	if name == "" || plugin == "" {
		return id, badRequest("name and plugin required")
	}
	if name, ok := unknown(p.fields, "name", "plugin"); ok {
		return id, badRequest("Invalid param").with(object{"param": name})
	}
	if !slices.Contains(c.plugins(ctx), plugin) {
		return id, badRequest("Unknown plugin").with(object{"plugin": plugin})
	}
	return c.insertQueue(ctx, name, plugin)
}

// insertQueue writes a new queue. It returns the error of 4.0 for a name that another queue has.
func (c *commandInterface) insertQueue(ctx context.Context, name, plugin string) (id primitive.ObjectID, refusal *requestError) {
	id, err := c.store.InsertQueue(ctx, name, plugin)
	var other *store.DuplicateError
	switch {
	case errors.As(err, &other):
		return id, duplicate(other, "MongoDB::InsertOneResult", object{"name": name, "plugin": plugin}, object{"id": nil})
	case err != nil:
		return id, c.databaseError("create queue "+name, err)
	}
	return id, nil
}

// postQueue changes a queue.
func (c *commandInterface) postQueue(r *http.Request, p params) reply {
	result, refusal := c.updateQueue(r.Context(), r.PathValue("queue"), p.fields)
	return answer(updateResult(result), refusal)
}

// updateQueue changes the given fields of a queue: threads, name, plugin and sort. It changes nothing if one of them is
// unknown or invalid.
func (c *commandInterface) updateQueue(ctx context.Context, name string, given bson.D) (updated store.Updated, refusal *requestError) {
	if len(given) == 0 {
		return updated, badRequest("no params")
	}
	if name, ok := unknown(given, "threads", "name", "plugin", "sort"); ok {
		return updated, badRequest("unknown param").with(object{"param": name})
	}
	var change store.QueueChange
	for _, e := range given {
		text := scalar(e.Value)
		switch e.Key {
		case "threads":
			n, ok := threadLimit(e.Value)
			if !ok {
				return updated, badRequest("threads must be a non-negative integer%s", overLimit(e.Value))
			}
			change.Limit = &n
		case "name":
			if text == "" {
				return updated, badRequest("name must be a string")
			}
			change.Name = &text
		case "plugin":
			if !slices.Contains(c.plugins(ctx), text) {
				return updated, badRequest("unknown plugin").with(object{"plugin": json.RawMessage(appendParam(nil, e.Value))})
			}
			change.Plugin = &text
		case "sort":
			if !change.SetSort(text) {
				return updated, badRequest("sort must be fifo, lifo or default")
			}
		}
	}
	queue, err := c.store.Queue(ctx, name)
	if err != nil {
		return updated, c.lookupError("queue", "update queue "+name, err, updateResult(updated))
	}
	updated, err = c.store.UpdateQueue(ctx, &queue, change)
	return updated, c.updateFault("queue", name, updated, err)
}

// deleteQueue deletes a queue but not its tasks.
func (c *commandInterface) deleteQueue(r *http.Request, _ params) reply {
	deleted, refusal := c.removeQueue(r.Context(), r.PathValue("queue"))
	return answer(deleteResult(deleted), refusal)
}

// removeQueue deletes a queue but not its tasks, and returns the number of deleted queues.
func (c *commandInterface) removeQueue(ctx context.Context, name string) (deleted int64, refusal *requestError) {
	queue, err := c.store.Queue(ctx, name)
	if err != nil {
		return 0, c.lookupError("queue", "delete queue "+name, err, deleteResult(0))
	}
	deleted, err = c.store.DeleteQueue(ctx, queue.ID)
	switch {
	case err != nil:
		return 0, c.databaseError("delete queue "+name, err)
	case deleted == 0:
		return 0, c.lookupError("queue", "", store.ErrNotFound, deleteResult(0))
	}
	return deleted, nil
}
