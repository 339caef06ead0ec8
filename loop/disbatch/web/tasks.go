package web

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

const (
	// searchLimit is the largest result of a search: the original's limit.
	searchLimit = 100
	// maxReplyOutput bounds the outputs from GridFS in one reply. Further outputs, like unreadable ones, appear as the
	// id of their file.
	maxReplyOutput = 64 << 20
	// insertBlock is how many tasks from a query are in memory at once, as long as they have at most insertBytes.
	insertBlock = 10000
	insertBytes = 16 << 20
)

// query is a search for tasks.
type query struct {
	filter     bson.D
	options    store.SearchOptions
	omitOutput bool // replace text outputs by the word terse
}

// searchQuery reads the filter and options of a search.
func searchQuery(p params) (q query, refusal *requestError) {
	refuse := func(format string, args ...any) (query, *requestError) { return query{}, badRequest(format, args...) }
	filter, isFilter := p.optionalObject("filter")
	options, areOptions := p.optionalObject("options")
	if !isFilter || !areOptions {
		return refuse("filter and options must be name/value objects")
	}
	if err := refuseCode(bson.A{filter, options}); err != nil {
		return refuse("%v", err)
	}
	var err error
	if q.filter, err = convertFilter(filter); err != nil {
		return refuse("%v", err)
	}
	q.options.Limit = searchLimit
	for _, o := range options {
		if o.Value == nil { // like a missing option
			continue
		}
		switch o.Key {
		case range40.limit, range40.skip:
			if err := range40.set(&q.options, o.Key, o.Value); err != nil {
				return refuse("%v", err)
			}
		case "sort", "projection":
			doc, ok := documentOf(o.Value)
			if !ok {
				return refuse("%s must be a name/value object, or an array of names and values", o.Key)
			}
			if o.Key == "sort" {
				q.options.Sort = doc
			} else {
				q.options.Projection = doc
			}
		case "batchSize", "comment", "maxTimeMS", "noCursorTimeout", "allowPartialResults", "cursorType":
			// it selects how documents are fetched, not which
		default:
			return refuse("unknown option: %s", o.Key)
		}
	}
	return q, nil
}

// documentOf returns an object as it is, and an array of alternating names and values as an object. The original's
// driver accepts both for the options sort and projection.
func documentOf(v any) (bson.D, bool) {
	array, ok := v.(bson.A)
	if !ok {
		doc, ok := v.(bson.D)
		return doc, ok
	}
	var out bson.D
	for i := 0; i < len(array); i += 2 {
		name, ok := array[i].(string)
		if !ok || i+1 == len(array) {
			return nil, false
		}
		out = append(out, bson.E{Key: name, Value: array[i+1]})
	}
	return out, true
}

// convertFilter converts the ids and times of a task filter to the database's types.
func convertFilter(filter bson.D) (bson.D, error) {
	rest, times := bson.D{}, bson.A{}
	for _, e := range filter {
		var err error
		switch text, isText := e.Value.(string); {
		case e.Key == "queue" && isText:
			e.Value, err = objectID(text)
		default:
			e.Value, err = convertIDs(e.Value)
		}
		if err != nil {
			return nil, err
		}
		if e.Key == "ctime" || e.Key == "mtime" {
			if both, ok := timeFilter(e.Key, e.Value); ok {
				times = append(times, bson.D{both})
				continue
			}
		}
		rest = append(rest, e)
	}
	if len(times) == 0 {
		return rest, nil
	}
	return bson.D{{Key: "$and", Value: append(times, rest)}}, nil
}

// postSearch searches tasks.
func (c *commandInterface) postSearch(r *http.Request, p params) reply {
	if p.value != nil && p.fields == nil {
		return badRequest("filter and options must be name/value objects").reply()
	}
	q, refusal := searchQuery(p)
	if refusal != nil {
		return refusal.reply()
	}
	if perlTrue(get(p.fields, "count")) {
		n, err := c.store.CountTasks(r.Context(), q.filter)
		if err != nil {
			return c.databaseError("count tasks", err).reply()
		}
		return success(object{"count": n})
	}
	short := get(p.fields, "terse")
	q.omitOutput = short == nil || perlTrue(short)
	tasks, err := c.find(r.Context(), &q)
	if err != nil {
		return c.databaseError("find tasks", err).reply()
	}
	room := maxReplyOutput
	a := success(tasksArray(tasks, func(t *store.Task) object {
		replace := timesOf(t, epoch)
		if !q.omitOutput {
			c.readOutput(r.Context(), t, &room, replace)
		}
		return replace
	}))
	a.pretty = perlTrue(get(p.fields, "pretty"))
	return a
}

// tasksArray returns a JSON array of tasks. replace returns the values that replace and extend a task's fields.
func tasksArray(tasks []store.Task, replace func(*store.Task) object) json.RawMessage {
	out := []byte{'['}
	for i := range tasks {
		out = append(appendDocument(out, tasks[i].Raw, replace(&tasks[i])), ',')
	}
	return append(bytes.TrimSuffix(out, []byte(",")), "]\n"...)
}

// timesOf returns a task's ctime and mtime in a form. It leaves out a time that is not a date.
func timesOf(t *store.Task, form func(time.Time) any) object {
	out := object{}
	for _, name := range []string{"ctime", "mtime"} {
		if at := t.Raw.Lookup(name); at.Type == bson.TypeDateTime {
			out[name] = form(at.Time())
		}
	}
	return out
}

// readOutput replaces the file ids of a task's outputs by the files' text while room lasts.
func (c *commandInterface) readOutput(ctx context.Context, t *store.Task, room *int, replace object) {
	for _, name := range []string{store.FileStdout, store.FileStderr} {
		id, ok := t.Raw.Lookup(name).ObjectIDOK()
		if !ok {
			continue
		}
		size, err := c.store.FileLength(ctx, id)
		if err != nil || size > int64(*room) || maxReplyOutput-*room+int(size) > largeBody && takeLargeTurn(ctx) != nil {
			continue
		}
		text, err := c.store.ReadFile(ctx, id)
		if err != nil {
			continue
		}
		*room -= len(text)
		replace[name] = text
	}
}

// postTasks creates a task for each parameter object of an array.
func (c *commandInterface) postTasks(r *http.Request, p params) reply {
	list, wrong := filledParams(p.value)
	if wrong != "" {
		return badRequest("params %s", wrong).reply()
	}
	ids, refusal := c.insertTasks(r.Context(), r.PathValue("queue"), list)
	return answer(insertManyResult(ids), refusal)
}

// taskParams returns a non-empty array of objects.
func taskParams(v any) (list []any, ok bool) {
	list, ok = v.(bson.A)
	return list, ok && len(list) > 0 && !slices.ContainsFunc(list, func(p any) bool { _, isObject := p.(bson.D); return !isObject })
}

// filledParams returns a non-empty array of objects that are not empty, or what is wrong with another value.
func filledParams(v any) (list []any, wrong string) {
	list, ok := taskParams(v)
	switch {
	case !ok:
		return nil, "must be a JSON array of task params objects"
	case slices.ContainsFunc(list, func(p any) bool { return len(p.(bson.D)) == 0 }):
		return nil, "must be a JSON array of task params objects with key/value pairs"
	}
	return list, ""
}

// insertTasks creates tasks in a queue and returns their ids.
func (c *commandInterface) insertTasks(ctx context.Context, name string, params []any) ([]primitive.ObjectID, *requestError) {
	queue, err := c.store.Queue(ctx, name)
	if err != nil {
		return nil, c.lookupError("queue", "create tasks", err, nil)
	}
	return c.insertMore(ctx, &queue, nil, params)
}

// insertMore creates tasks and returns their ids after the earlier ones. A refusal lists the tasks that exist.
func (c *commandInterface) insertMore(ctx context.Context, q *store.Queue, before []primitive.ObjectID, params []any) ([]primitive.ObjectID, *requestError) {
	ids, err := c.store.InsertTasks(ctx, q, params)
	before = append(before, ids...)
	switch {
	case err == nil:
		return before, nil
	case len(ids) == len(params): // the counters failed, or the reply was lost
		c.logFailure("acknowledge or count new tasks", c.store.Explain(err))
		return before, nil
	}
	return before, c.databaseError("create tasks", err).with(insertManyResult(before))
}

// postTasksFrom creates a task for every document that a filter finds in a collection.
func (c *commandInterface) postTasksFrom(r *http.Request, p params) reply {
	filter, isFilter := p.object("filter")
	pattern, isPattern := p.object("params")
	if !isFilter || !isPattern {
		return badRequest("filter and params required and must be name/value objects").reply()
	}
	ids, refusal := c.insertFrom(r.Context(), r.PathValue("queue"), r.PathValue("from"), filter, pattern)
	return answer(insertManyResult(ids), refusal)
}

// insertFrom creates a task with the parameters of a pattern for every document found. The value document.FIELD stands
// for that field of the document, or null.
func (c *commandInterface) insertFrom(ctx context.Context, name, collection string, filter, pattern bson.D) (ids []primitive.ObjectID, refusal *requestError) {
	if collection == "" || strings.HasPrefix(collection, "system.") || strings.ContainsAny(collection, "$\x00") {
		return nil, badRequest("%q is no name of a collection to read", collection)
	}
	if err := refuseCode(filter); err != nil {
		return nil, badRequest("%v", err)
	}
	if _, err := convertIDs(filter); err != nil {
		return nil, badRequest("%v", err)
	}
	each, err := bson.Marshal(pattern)
	if err != nil {
		return nil, badRequest("params: %v", err)
	}
	queue, err := c.store.Queue(ctx, name)
	if err != nil {
		return nil, c.lookupError("queue", "create tasks", err, nil)
	}
	unreadable := func(err error) *requestError {
		refusal := c.databaseError("iterate on collection "+collection, err)
		refusal.unreadable = true
		return refusal
	}
	docs, err := c.store.Documents(ctx, collection, filter)
	if err != nil {
		return nil, unreadable(err)
	}
	var block []any
	size := 0
	insert := func() {
		ids, refusal = c.insertMore(ctx, &queue, ids, block)
		clear(block) // frees their memory
		block, size = block[:0], 0
	}
	var broken error
	for doc, err := range docs {
		if broken = err; err != nil {
			break
		}
		task, copied := fill(pattern, doc)
		block = append(block, task)
		if size += len(each) + copied; len(block) == insertBlock || size > insertBytes {
			if insert(); refusal != nil {
				return ids, refusal
			}
		}
	}
	if len(block) > 0 {
		if insert(); refusal != nil {
			return ids, refusal
		}
	}
	switch {
	case broken != nil:
		return ids, unreadable(broken).with(insertManyResult(ids))
	case len(ids) == 0:
		return nil, badRequest("Unknown error").with(insertManyResult(nil))
	}
	return ids, nil
}

// fill returns a pattern with the values of a document, and the bytes of these values.
func fill(pattern bson.D, doc bson.Raw) (out bson.D, copied int) {
	out = slices.Clone(pattern)
	for i := range out {
		text, _ := out[i].Value.(string)
		field, ok := strings.CutPrefix(text, "document.")
		if !ok {
			continue
		}
		value, err := doc.LookupErr(field)
		if err != nil {
			value, err = doc.LookupErr(strings.Split(field, ".")...)
		}
		out[i].Value = nil
		if err == nil {
			value.Value = slices.Clone(value.Value) // the cursor reuses its memory
			out[i].Value = value
			copied += len(value.Value)
		}
	}
	return out, copied
}
