package web

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/store"
)

// The routes from before version 4, which scripts still use. Most of their replies are arrays that begin with 1 for
// success and 0 for failure.

// legacySearchLimit bounds the memory of a search of 4.1 and before version 4. The original has no limit.
const legacySearchLimit = 10000

// legacyFailure is a reply that begins with 0. The original sends most of them with status 200.
func legacyFailure(status int, why any) reply { return reply{status: status, body: []any{0, why}} }

// legacyReply returns the reply to a request that is not done.
func (e *requestError) legacyReply() reply { return legacyFailure(e.status, e.why) }

// legacyDatabaseFailure is the reply to a failure of the database. Its status is 200, unless the request exceeds a
// limit.
func (c *commandInterface) legacyDatabaseFailure(what string, err error) reply {
	e := c.databaseError(what, err)
	if e.status == http.StatusBadRequest && !errors.Is(err, errLongResult) {
		e.status = http.StatusOK
	}
	return e.legacyReply()
}

// withSuccess returns an object with the member success too.
func withSuccess(members object, success int) object {
	out := object{"success": success}
	maps.Copy(out, members)
	return out
}

// legacyResult returns the status, the first member and the last member of a reply with a result or an error.
func legacyResult(result object, refusal *requestError) (status, success int, members object) {
	if refusal != nil {
		return refusal.status, 0, withSuccess(refusal.members(), 0)
	}
	return http.StatusOK, 1, withSuccess(result, 1)
}

// legacySetQueueAttr changes a queue's threads.
func (c *commandInterface) legacySetQueueAttr(r *http.Request, p params) reply {
	refuse := func(why string) reply { return badRequest("%s", why).with(object{"success": 0}).reply() }
	value := get(p.fields, "value")
	switch {
	case get(p.fields, "attr") != "threads":
		return refuse("Invalid attr")
	case value == nil:
		return refuse("You must supply a value")
	case get(p.fields, "queueid") == nil:
		return refuse("You must supply a queueid")
	}
	result, refusal := c.updateQueue(r.Context(), p.text("queueid"), bson.D{{Key: "threads", Value: value}})
	status, _, members := legacyResult(updateResult(result), refusal)
	return reply{status: status, body: members}
}

// legacyStartQueue creates a queue.
func (c *commandInterface) legacyStartQueue(r *http.Request, p params) reply {
	kind, name := p.text("type"), p.text("name")
	if kind == "" || name == "" {
		return legacyFailure(http.StatusBadRequest, "type and name required")
	}
	known, err := c.knownPlugins(r.Context())
	if err != nil {
		return c.legacyDatabaseFailure("get current plugins", err)
	}
	if !slices.Contains(known, kind) {
		return legacyFailure(http.StatusBadRequest, "unknown type")
	}
	id, refusal := c.insertQueue(r.Context(), name, kind)
	status, success, members := legacyResult(insertOneResult(id), refusal)
	if refusal != nil {
		delete(members, "id") // a reply of 4.0 has it
		return reply{status: status, body: []any{success, nil, members}}
	}
	return reply{status: status, body: []any{success, oid(id), members}}
}

// knownPlugins returns the plugins that are configured or used by queues.
func (c *commandInterface) knownPlugins(ctx context.Context) ([]string, error) {
	queues, err := c.store.Queues(ctx)
	known := c.plugins(ctx)
	for i := range queues {
		if name := queues[i].Plugin; name != "" && !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	return known, err
}

// legacyPrototypes returns an object of the known plugins, each under its own name.
func (c *commandInterface) legacyPrototypes(r *http.Request, _ params) reply {
	known, err := c.knownPlugins(r.Context())
	if err != nil {
		return c.databaseError("get current plugins", err).reply()
	}
	out := object{}
	for _, name := range known {
		out[name] = name
	}
	return success(out)
}

// legacyDeleteQueue deletes a queue.
func (c *commandInterface) legacyDeleteQueue(r *http.Request, p params) reply {
	id := p.text("id")
	if id == "" {
		return legacyFailure(http.StatusBadRequest, "id required")
	}
	deleted, refusal := c.removeQueue(r.Context(), id)
	status, success, members := legacyResult(deleteResult(deleted), refusal)
	return reply{status: status, body: []any{success, members}}
}

// legacyCreateTasks creates a task for each parameter object of an array.
func (c *commandInterface) legacyCreateTasks(r *http.Request, p params) reply {
	queue := p.text("queueid")
	if queue == "" || get(p.fields, "object") == nil {
		return legacyFailure(http.StatusBadRequest, "queueid and object required")
	}
	tasks, err := p.json("object")
	if err != nil {
		return legacyFailure(http.StatusOK, "object param must be a JSON array: "+err.Error())
	}
	list, ok := taskParams(tasks)
	if !ok {
		return legacyFailure(http.StatusOK, "object param must be a JSON array")
	}
	ids, refusal := c.insertTasks(r.Context(), queue, list)
	if refusal != nil {
		return creationFailure(refusal)
	}
	return success(append(append([]any{1, len(ids)}, inserted(ids)...), withSuccess(insertManyResult(ids), 1)))
}

// creationFailure is the reply to tasks that were not created. Its status is 200 if the queue is missing or the
// collection unreadable.
func creationFailure(e *requestError) reply {
	switch {
	case e.status == http.StatusNotFound:
		return legacyFailure(http.StatusOK, "Queue not found")
	case e.unreadable:
		return legacyFailure(http.StatusOK, e.why)
	}
	return e.legacyReply()
}

// legacyCreateTasksFrom creates a task for every document that a filter finds.
func (c *commandInterface) legacyCreateTasksFrom(r *http.Request, p params) reply {
	queue, collection, template := p.text("queueid"), p.text("collection"), "params"
	if get(p.fields, template) == nil {
		template = "parameters" // the name in 2016
	}
	if queue == "" || collection == "" || get(p.fields, "jsonfilter") == nil || get(p.fields, template) == nil {
		return legacyFailure(http.StatusBadRequest, "queueid, collection, jsonfilter, and params required")
	}
	filter, isFilter := p.object("jsonfilter")
	pattern, isPattern := p.object(template)
	if !isFilter || !isPattern {
		return legacyFailure(http.StatusOK, "jsonfilter and params must be JSON objects")
	}
	ids, refusal := c.insertFrom(r.Context(), queue, collection, filter, pattern)
	if refusal != nil {
		return creationFailure(refusal)
	}
	return success([]any{1, len(ids)})
}

// legacySearch searches tasks.
func (c *commandInterface) legacySearch(r *http.Request, p params) reply {
	q, refusal := newLegacyQuery(p)
	if refusal != nil {
		return refusal.legacyReply()
	}
	if perlTrue(get(p.fields, "count")) {
		n, err := c.store.CountTasks(r.Context(), q.filter)
		if err != nil {
			return c.legacyDatabaseFailure("count tasks", err)
		}
		return success([]any{1, n})
	}
	q.omitOutput = perlTrue(get(p.fields, "terse"))
	tasks, err := c.find(r.Context(), &q)
	if err != nil {
		return c.legacyDatabaseFailure("find tasks", err)
	}
	room := maxReplyOutput
	return success(tasksArray(tasks, func(t *store.Task) object {
		replace := object{}
		if q.omitOutput {
			for _, name := range []string{store.FileStdout, store.FileStderr} {
				if t.Raw.Lookup(name).Type != bson.TypeObjectID {
					replace[name] = terse
				}
			}
		} else {
			c.readOutput(r.Context(), t, &room, replace)
		}
		if !t.CTime.IsZero() {
			replace["ctime"], replace["ctime_str"] = t.CTime.Unix(), t.CTime.UTC().Format(timeLayout)
		}
		if !t.MTime.IsZero() {
			replace["mtime"], replace["mtime_str"] = t.MTime.Unix(), t.MTime.UTC().Format(timeLayout)
		}
		return replace
	}))
}

// timeLayout is the layout of ctime_str and mtime_str.
const timeLayout = "2006-01-02T15:04:05"

// newLegacyQuery reads the parameters of a search.
func newLegacyQuery(p params) (q query, refusal *requestError) {
	refuse := func(status int, why string) (query, *requestError) { return query{}, newRequestError(status, why) }
	filter, ok := p.optionalObject("filter")
	if !ok {
		return refuse(http.StatusOK, "JSON object required for filter")
	}
	if err := refuseCode(filter); err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	q.filter, q.options.Limit = filter, legacySearchLimit
	err := legacyRange.read(p.fields, &q.options)
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	if q.filter == nil {
		q.filter = bson.D{}
	}
	for i := range q.filter {
		switch e := &q.filter[i]; e.Key {
		case "id":
			if e.Key = "_id"; scalar(e.Value) != "" {
				e.Value = bson.D{{Key: "$oid", Value: e.Value}}
			}
		case "status":
			if text, ok := e.Value.(string); ok {
				n, err := parseJSON(text)
				if err != nil {
					return refuse(http.StatusBadRequest, "status must be an integer")
				}
				e.Value = n
			}
		}
	}
	if queue := get(p.fields, "queue"); perlTrue(queue) {
		q.filter = append(slices.DeleteFunc(q.filter, func(e bson.E) bool { return e.Key == "queue" }), bson.E{Key: "queue", Value: scalar(queue)})
	}
	if q.filter, err = convertFilter(q.filter); err != nil {
		return refuse(http.StatusOK, err.Error())
	}
	return q, nil
}
