package web

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/store"
)

// The routes from before version 4, which scripts still use. Most of their replies are arrays that begin with 1 for
// success and 0 for failure.

// oldSearchLimit bounds the memory of a search. The original has no limit.
const oldSearchLimit = 10000

// failure is a reply that begins with 0. The original sends most of them with status 200.
func failure(status int, why any) reply { return reply{status: status, body: []any{0, why}} }

// oldReply returns the old reply to a refused request.
func (f *refusal) oldReply() reply { return failure(f.status, f.why) }

// oldFailure is the old reply to a failure of the database. Its status is 200, unless the request exceeds a limit.
func (c *dci) oldFailure(what string, err error) reply {
	f := c.failed(what, err)
	if f.status == http.StatusBadRequest && !errors.Is(err, errLongResult) {
		f.status = http.StatusOK
	}
	return f.oldReply()
}

// flagged returns the status of a reply, its flag of success, and its members, the result or those of a refusal, with
// the flag.
func flagged(result object, fault *refusal) (status, success int, members object) {
	status, success, members = http.StatusOK, 1, result
	if fault != nil {
		status, success, members = fault.status, 0, fault.members()
	}
	members["success"] = success
	return status, success, members
}

// setQueueAttr changes a queue's threads.
func (c *dci) setQueueAttr(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	refuse := func(why string) reply { return bad("%s", why).with(object{"success": 0}).reply() }
	switch {
	case get(given, "attr") != "threads":
		return refuse("Invalid attr")
	case get(given, "value") == nil:
		return refuse("You must supply a value")
	case get(given, "queueid") == nil:
		return refuse("You must supply a queueid")
	}
	result, fault := c.updateQueue(r.Context(), scalar(get(given, "queueid")), bson.D{{Key: "threads", Value: get(given, "value")}})
	status, _, members := flagged(updateResult(result), fault)
	return reply{status: status, body: members}
}

// startQueue creates a queue.
func (c *dci) startQueue(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	kind, name := scalar(get(given, "type")), scalar(get(given, "name"))
	if kind == "" || name == "" {
		return failure(http.StatusBadRequest, "type and name required")
	}
	known, err := c.knownPlugins(r.Context())
	if err != nil {
		return c.oldFailure("get current plugins", err)
	}
	if !slices.Contains(known, kind) {
		return failure(http.StatusBadRequest, "unknown type")
	}
	var shown any // null without a queue
	id, fault := c.insertQueue(r.Context(), name, kind)
	if fault == nil {
		shown = oid(id)
	}
	status, success, members := flagged(insertOneResult(id), fault)
	delete(members, "id") // of a refusal
	return reply{status: status, body: []any{success, shown, members}}
}

// knownPlugins returns the plugins that are configured or used by queues.
func (c *dci) knownPlugins(ctx context.Context) ([]string, error) {
	queues, err := c.store.Queues(ctx)
	known := c.plugins(ctx)
	for i := range queues {
		if name := queues[i].Plugin; name != "" && !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	return known, err
}

// prototypes returns an object of the known plugins, each under its own name.
func (c *dci) prototypes(r *http.Request, _ any) reply {
	known, err := c.knownPlugins(r.Context())
	if err != nil {
		return c.failed("get current plugins", err).reply()
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
	deleted, fault := c.removeQueue(r.Context(), id)
	status, success, members := flagged(deleteResult(deleted), fault)
	return reply{status: status, body: []any{success, members}}
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
	list, ok := taskParams(tasks)
	if !ok {
		return failure(http.StatusOK, "object param must be a JSON array")
	}
	ids, fault := c.insert(r.Context(), queue, list)
	if fault != nil {
		return notCreated(fault)
	}
	body := insertManyResult(ids)
	body["success"] = 1
	return success(append(append([]any{1, len(ids)}, inserted(ids)...), body))
}

// notCreated is the old reply to a refusal to create tasks. Its status is 200 if the queue is missing or the collection
// unreadable.
func notCreated(f *refusal) reply {
	switch {
	case f.status == http.StatusNotFound:
		return failure(http.StatusOK, "Queue not found")
	case f.unreadable:
		return failure(http.StatusOK, f.why)
	}
	return f.oldReply()
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
	ids, fault := c.insertFrom(r.Context(), queue, collection, where, task)
	if fault != nil {
		return notCreated(fault)
	}
	return success([]any{1, len(ids)})
}

// searchOld searches tasks.
func (c *dci) searchOld(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	q, fault := oldQuery(given)
	if fault != nil {
		return fault.oldReply()
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
func oldQuery(given bson.D) (q query, fault *refusal) {
	refuse := func(status int, why string) (query, *refusal) { return query{}, refused(status, why) }
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
