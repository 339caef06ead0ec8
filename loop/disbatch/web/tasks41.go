package web

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// The routes for tasks of 4.1: GET /tasks, GET /tasks/:id and POST /tasks. negotiate41.go has their pages, query41.go
// the parameters of a search.

// getTask41 returns one task.
func (c *commandInterface) getTask41(r *http.Request, _ params) reply {
	id, err := objectID(r.PathValue("id"))
	if err != nil {
		return badRequest("%v", err).reply()
	}
	t, err := c.store.Task(r.Context(), id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return newRequestError(http.StatusNotFound, "no task with id "+id.Hex()).reply()
	case err != nil:
		return c.databaseError("get task "+id.Hex(), err).reply()
	}
	a := success(documentJSON(t.Raw, timesOf(&t, textTime)))
	a.pretty = true
	return a
}

// textTime returns a time as text, the form of 4.1.
func textTime(t time.Time) any { return t.UTC().Format(timeLayout) }

// getTasks41 searches tasks by indexed fields. The names of options begin with a dot.
func (c *commandInterface) getTasks41(r *http.Request, p params) reply {
	if p.value != nil && p.fields == nil {
		return badRequest("the parameters must be a name/value object").reply()
	}
	var fields, options bson.D
	for _, e := range p.fields {
		if strings.HasPrefix(e.Key, ".") {
			options = append(options, e)
		} else {
			fields = append(fields, e)
		}
	}
	indexes := c.taskIndexes(r.Context())
	refuse := func(why string, body object) reply {
		members := object{"title": "Disbatch Tasks Query", "path": "/tasks", "indexes": indexes}
		maps.Copy(members, body)
		return badRequest("%s", why).with(members).reply()
	}
	if unindexed := notIndexed(fields, indexes); len(unindexed) > 0 {
		return refuse("non-indexed params given", object{"invalid_params": unindexed})
	}
	q, err := newQuery41(fields, options)
	switch {
	case err != nil:
		return badRequest("%v", err).reply()
	case q.count:
		n, err := c.store.CountTasks(r.Context(), q.filter)
		if err != nil {
			return c.databaseError("count tasks", err).reply()
		}
		return success(object{"count": n})
	case len(q.filter) == 0 && q.options.Limit == 0:
		return refuse("refusing to return everything - include one or more indexed search restrictions", nil)
	}
	if q.options.Limit == 0 {
		q.options.Limit = legacySearchLimit
	}
	tasks, err := c.find(r.Context(), &q.query)
	if err != nil {
		return c.databaseError("find tasks", err).reply()
	}
	a := success(c.tasksJSON(r.Context(), tasks, &q))
	a.pretty = q.pretty
	return a
}

// tasksJSON returns an array of tasks, {} without one, or the only task if q.single.
func (c *commandInterface) tasksJSON(ctx context.Context, tasks []store.Task, q *query41) any {
	if len(tasks) == 0 {
		return object{}
	}
	form, room := textTime, maxReplyOutput
	if q.epoch {
		form = epoch
	}
	replace := func(t *store.Task) object {
		out := timesOf(t, form)
		if q.allOutput {
			c.readOutput(ctx, t, &room, out)
		}
		return out
	}
	if q.single {
		return documentJSON(tasks[0].Raw, replace(&tasks[0]))
	}
	return tasksArray(tasks, replace)
}

// postTasks41 creates tasks: one for each parameter object, or one for each document that a filter finds in a
// collection.
func (c *commandInterface) postTasks41(r *http.Request, p params) reply {
	p = queueInPath(r, p)
	queue := p.text("queue")
	if queue == "" {
		return newRequestError(http.StatusNotFound, "queue not found").reply()
	}
	var names []string
	for _, e := range p.fields {
		names = append(names, e.Key)
	}
	slices.Sort(names)
	pattern, isObject := p.object("params")
	var ids []primitive.ObjectID
	var refusal *requestError
	switch wanted, err := p.json("params"); {
	case err == nil && slices.Equal(names, []string{"params", "queue"}):
		if isObject {
			wanted = bson.A{pattern}
		}
		list, wrong := filledParams(wanted)
		if wrong != "" {
			return badRequest("'params' %s", wrong).reply()
		}
		ids, refusal = c.insertTasks(r.Context(), queue, list)
	case isObject && slices.Equal(names, []string{"collection", "filter", "params", "queue"}):
		filter, ok := p.object("filter")
		if !ok {
			return badRequest("'filter' must be a JSON object").reply()
		}
		collection := p.text("collection")
		if collection == "" {
			return badRequest("'collection' required and must be a scalar (string)").reply()
		}
		ids, refusal = c.insertFrom(r.Context(), queue, collection, filter, pattern)
	default:
		return badRequest("invalid parameters passed").reply()
	}
	return answer(insertManyResult(ids), refusal)
}

// queueInPath returns the parameters of a POST /tasks. If its body is an array, that is the parameter params, and the
// query of the address has the others.
func queueInPath(r *http.Request, p params) params {
	list, ok := p.value.(bson.A)
	if !ok {
		return p
	}
	fields := bson.D{{Key: "params", Value: list}}
	for _, name := range []string{"queue", "collection"} {
		if v := r.URL.Query().Get(name); v != "" {
			fields = append(fields, bson.E{Key: name, Value: v})
		}
	}
	return params{fields, fields}
}
