package web

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/store"
)

// The routes from before version 4, which scripts still use. Most of their replies are arrays that begin with 1 for
// success and 0 for failure.

// oldSearchLimit bounds the memory of a search. The original has no limit.
const oldSearchLimit = 10000

// failure is a reply that begins with 0. The original sends most of them with status 200.
func failure(status int, why any) reply { return reply{status: status, body: []any{0, why}} }

// oldReply converts an error of the new interface to an old reply.
func oldReply(a *reply) reply {
	body, _ := a.body.(object)
	return failure(a.status, body["error"])
}

// oldFailure is the old reply to a failure of the database. Its status is 200, unless the request exceeds a limit.
func (c *dci) oldFailure(what string, err error) reply {
	a := c.failed(what, err)
	if a.status == http.StatusBadRequest && !errors.Is(err, errFound) {
		a.status = http.StatusOK
	}
	return oldReply(&a)
}

// withSuccess adds the success flag to a reply's body of the new interface.
func withSuccess(a reply) object {
	body := maps.Clone(a.body.(object))
	body["success"] = 0
	if a.status == http.StatusOK {
		body["success"] = 1
	}
	return body
}

// setQueueAttr changes a queue's threads.
func (c *dci) setQueueAttr(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	refuse := func(why string) reply {
		return reply{status: http.StatusBadRequest, body: object{"success": 0, "error": why}}
	}
	switch {
	case get(given, "attr") != "threads":
		return refuse("Invalid attr")
	case get(given, "value") == nil:
		return refuse("You must supply a value")
	case get(given, "queueid") == nil:
		return refuse("You must supply a queueid")
	}
	a := c.updateQueue(r.Context(), scalar(get(given, "queueid")), bson.D{{Key: "threads", Value: get(given, "value")}})
	a.body = withSuccess(a)
	return a
}

// startQueue creates a queue.
func (c *dci) startQueue(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	kind, name := scalar(get(given, "type")), scalar(get(given, "name"))
	if kind == "" || name == "" {
		return failure(http.StatusBadRequest, "type and name required")
	}
	known, err := c.knownPlugins(r)
	if err != nil {
		return c.oldFailure("get current plugins", err)
	}
	if !slices.Contains(known, kind) {
		return failure(http.StatusBadRequest, "unknown type")
	}
	a := c.insertQueue(r.Context(), name, kind)
	body := withSuccess(a)
	id := body["id"]
	delete(body, "id")
	a.body = []any{body["success"], id, body}
	return a
}

// knownPlugins returns the plugins that are configured or used by queues.
func (c *dci) knownPlugins(r *http.Request) ([]string, error) {
	queues, err := c.store.Queues(r.Context())
	known := c.plugins(r.Context())
	for i := range queues {
		if name := queues[i].Plugin; name != "" && !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	return known, err
}

// prototypes returns an object of the known plugins, each under its own name.
func (c *dci) prototypes(r *http.Request, _ any) reply {
	known, err := c.knownPlugins(r)
	if err != nil {
		return c.failed("get current plugins", err)
	}
	out := object{}
	for _, name := range known {
		out[name] = name
	}
	return success(out)
}

// deleteQueueOld deletes a queue.
func (c *dci) deleteQueueOld(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	id := scalar(get(given, "id"))
	if id == "" {
		return failure(http.StatusBadRequest, "id required")
	}
	a := c.removeQueue(r.Context(), id)
	body := withSuccess(a)
	a.body = []any{body["success"], body}
	return a
}

// createTasks creates a task for each parameter object of an array.
func (c *dci) createTasks(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	queue := scalar(get(given, "queueid"))
	if queue == "" || get(given, "object") == nil {
		return failure(http.StatusBadRequest, "queueid and object required")
	}
	tasks, err := structured(get(given, "object"))
	if err != nil {
		return failure(http.StatusOK, "object param must be a JSON array: "+err.Error())
	}
	list, fault := taskParams(tasks)
	if fault != "" {
		return failure(http.StatusOK, "object param must be a JSON array")
	}
	ids, refused := c.insert(r.Context(), queue, list)
	if refused != nil {
		return notFound(refused)
	}
	body := insertManyResult(ids)
	body["success"] = 1
	return success(append(append([]any{1, len(ids)}, inserted(ids)...), body))
}

// notFound is the old reply to an error about a queue or collection. The status is 200 if that is missing or
// unreadable.
func notFound(a *reply) reply {
	if a.status == http.StatusNotFound {
		return failure(http.StatusOK, "Queue not found")
	}
	o := oldReply(a)
	if why, _ := a.body.(object)["error"].(string); a.status == http.StatusBadRequest && strings.HasPrefix(why, "Could not iterate") {
		o.status = http.StatusOK
	}
	return o
}

// createTasksFrom creates a task for every document that a filter finds.
func (c *dci) createTasksFrom(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	queue, collection := scalar(get(given, "queueid")), scalar(get(given, "collection"))
	template := get(given, "params")
	if template == nil {
		template = get(given, "parameters") // the name in 2016
	}
	if queue == "" || collection == "" || get(given, "jsonfilter") == nil || template == nil {
		return failure(http.StatusBadRequest, "queueid, collection, jsonfilter, and params required")
	}
	filter, ferr := structured(get(given, "jsonfilter"))
	pattern, perr := structured(template)
	where, ok := filter.(bson.D)
	task, ok2 := pattern.(bson.D)
	if ferr != nil || perr != nil || !ok || !ok2 {
		return failure(http.StatusOK, "jsonfilter and params must be JSON objects")
	}
	ids, refused := c.insertFrom(r.Context(), queue, collection, where, task)
	if refused != nil {
		return notFound(refused)
	}
	return success([]any{1, len(ids)})
}

// searchOld searches tasks.
func (c *dci) searchOld(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	q, fault := oldQuery(given)
	if fault != nil {
		return *fault
	}
	if perlTrue(get(given, "count")) {
		n, err := c.store.CountTasks(r.Context(), q.filter)
		if err != nil {
			return c.oldFailure("count tasks", err)
		}
		return success([]any{1, n})
	}
	q.brief = perlTrue(get(given, "terse"))
	tasks, err := c.find(r.Context(), &q)
	if err != nil {
		return c.oldFailure("find tasks", err)
	}
	out, room := []byte{'['}, maxReplyOutput
	for i := range tasks {
		t := &tasks[i]
		instead := object{}
		if q.brief {
			for _, name := range []string{store.FileStdout, store.FileStderr} {
				if t.Raw.Lookup(name).Type != bson.TypeObjectID {
					instead[name] = terse
				}
			}
		} else {
			c.readOutput(r.Context(), t, &room, instead)
		}
		if !t.CTime.IsZero() {
			instead["ctime"], instead["ctime_str"] = t.CTime.Unix(), t.CTime.UTC().Format(oldTime)
		}
		if !t.MTime.IsZero() {
			instead["mtime"], instead["mtime_str"] = t.MTime.Unix(), t.MTime.UTC().Format(oldTime)
		}
		out = append(appendDocument(out, t.Raw, instead), ',')
	}
	return success(closeArray(out))
}

// oldTime is the layout of ctime_str and mtime_str.
const oldTime = "2006-01-02T15:04:05"

// oldQuery reads the parameters of an old search.
func oldQuery(given bson.D) (q query, fault *reply) {
	refuse := func(status int, why string) (query, *reply) {
		a := failure(status, why)
		return query{}, &a
	}
	filter, err := structured(get(given, "filter"))
	var ok bool
	if q.filter, ok = filter.(bson.D); err != nil || filter != nil && !ok {
		return refuse(http.StatusOK, "JSON object required for filter")
	}
	if err := withoutCode(filter); err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	q.options.Limit = oldSearchLimit
	for name, into := range map[string]*int64{"limit": &q.options.Limit, "skip": &q.options.Skip} {
		if v := get(given, name); perlTrue(v) {
			n, ok := whole(v)
			if !ok || name == "limit" && n > oldSearchLimit {
				return refuse(http.StatusBadRequest, name+" must be a non-negative integer, a limit at most 10000")
			}
			*into = n
		}
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
	if queue := get(given, "queue"); perlTrue(queue) {
		q.filter = append(slices.DeleteFunc(q.filter, func(e bson.E) bool { return e.Key == "queue" }), bson.E{Key: "queue", Value: scalar(queue)})
	}
	if q.filter, err = convertFilter(q.filter); err != nil {
		return refuse(http.StatusOK, err.Error())
	}
	return q, nil
}
