package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

const (
	// searchLimit is the largest result of a search: the original's limit.
	searchLimit = 100
	// maxReplyOutput bounds the outputs from GridFS in one reply. Further outputs, like unreadable ones, appear as
	// the id of their file.
	maxReplyOutput = 64 << 20
	// insertBlock is how many tasks from a query are in memory at once, as long as they have at most insertBytes.
	insertBlock = 10000
	insertBytes = 16 << 20
)

// query is a search for tasks.
type query struct {
	filter  bson.D
	options store.SearchOptions
	brief   bool // replace text outputs by the word terse
}

// searchQuery reads the filter and options of a search.
func searchQuery(given bson.D) (q query, fault *refusal) {
	refuse := func(format string, args ...any) (query, *refusal) { return query{}, bad(format, args...) }
	filter, ferr := structured(get(given, "filter"))
	wanted, oerr := structured(get(given, "options"))
	var options bson.D
	var ok [2]bool
	q.filter, ok[0] = filter.(bson.D)
	options, ok[1] = wanted.(bson.D)
	if ferr != nil || oerr != nil || filter != nil && !ok[0] || wanted != nil && !ok[1] {
		return refuse("filter and options must be name/value objects")
	}
	if err := withoutCode(bson.A{filter, options}); err != nil {
		return refuse("%v", err)
	}
	if q.filter == nil {
		q.filter = bson.D{}
	}
	var err error
	if q.filter, err = convertFilter(q.filter); err != nil {
		return refuse("%v", err)
	}
	q.options.Limit = searchLimit
	for _, o := range options {
		if o.Value == nil { // like a missing option
			continue
		}
		n, isNumber := whole(o.Value)
		doc, isDocument := ordered(o.Value)
		switch o.Key {
		case "limit":
			switch {
			case !isNumber:
				return refuse("limit must be a non-negative integer")
			case n > searchLimit:
				return refuse("limit cannot exceed %d", searchLimit)
			case n > 0:
				q.options.Limit = n
			}
		case "skip":
			if !isNumber {
				return refuse("skip must be a non-negative integer")
			}
			q.options.Skip = n
		case "sort", "projection":
			if !isDocument {
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

// ordered converts an object, or an array of alternating names and values, which the original's driver accepts for
// ordered options.
func ordered(v any) (bson.D, bool) {
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
			e.Value, err = withIDs(e.Value)
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
func (c *dci) postSearch(r *http.Request, params any) reply {
	given, ok := params.(bson.D)
	if !ok && params != nil {
		return bad("filter and options must be name/value objects").reply()
	}
	q, fault := searchQuery(given)
	if fault != nil {
		return fault.reply()
	}
	if perlTrue(get(given, "count")) {
		n, err := c.store.CountTasks(r.Context(), q.filter)
		if err != nil {
			return c.failed("count tasks", err).reply()
		}
		return success(object{"count": n})
	}
	short := get(given, "terse")
	q.brief = short == nil || perlTrue(short)
	tasks, err := c.find(r.Context(), &q)
	if err != nil {
		return c.failed("find tasks", err).reply()
	}
	out, room := []byte{'['}, maxReplyOutput
	for i := range tasks {
		t := &tasks[i]
		instead := object{}
		if !q.brief {
			c.readOutput(r.Context(), t, &room, instead)
		}
		for name, at := range map[string]any{"ctime": epoch(t.CTime), "mtime": epoch(t.MTime)} {
			if t.Raw.Lookup(name).Type == bson.TypeDateTime {
				instead[name] = at
			}
		}
		out = append(appendDocument(out, t.Raw, instead), ',')
	}
	a := success(closeArray(out))
	a.pretty = perlTrue(get(given, "pretty"))
	return a
}

// readOutput replaces the file ids of a task's outputs by the files' text while room lasts.
func (c *dci) readOutput(ctx context.Context, t *store.Task, room *int, instead object) {
	for _, name := range []string{store.FileStdout, store.FileStderr} {
		id, ok := t.Raw.Lookup(name).ObjectIDOK()
		if !ok {
			continue
		}
		size, err := c.store.FileLength(ctx, id)
		if err != nil || size > int64(*room) || maxReplyOutput-*room+int(size) > largeBody && enlarge(ctx) != nil {
			continue
		}
		text, err := c.store.ReadFile(ctx, id)
		if err != nil {
			continue
		}
		*room -= len(text)
		instead[name] = text
	}
}

// postTasks creates a task for each parameter object of an array.
func (c *dci) postTasks(r *http.Request, params any) reply {
	list, wrong := filledParams(params)
	if wrong != "" {
		return bad("params %s", wrong).reply()
	}
	ids, fault := c.insert(r.Context(), r.PathValue("queue"), list)
	return answer(insertManyResult(ids), fault)
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

// insert creates tasks in a queue and returns their ids.
func (c *dci) insert(ctx context.Context, name string, params []any) ([]primitive.ObjectID, *refusal) {
	queue, err := c.store.Queue(ctx, name)
	if err != nil {
		return nil, c.missing("queue", "create tasks", err, nil)
	}
	return c.insertInto(ctx, &queue, nil, params)
}

// insertInto creates tasks and returns their ids after the earlier ones. A refusal lists the tasks that exist.
func (c *dci) insertInto(ctx context.Context, q *store.Queue, before []primitive.ObjectID, params []any) ([]primitive.ObjectID, *refusal) {
	ids, err := c.store.InsertTasks(ctx, q, params)
	before = append(before, ids...)
	if err == nil {
		return before, nil
	}
	fault := c.failed("create tasks", err)
	if len(ids) == len(params) {
		return before, nil // all tasks exist; only the queue's counters failed
	}
	return before, fault.with(insertManyResult(before))
}

// postTasksFrom creates a task for every document that a filter finds in a collection.
func (c *dci) postTasksFrom(r *http.Request, params any) reply {
	given, _ := params.(bson.D)
	filter, ferr := structured(get(given, "filter"))
	template, perr := structured(get(given, "params"))
	where, ok := filter.(bson.D)
	pattern, ok2 := template.(bson.D)
	if ferr != nil || perr != nil || !ok || !ok2 {
		return bad("filter and params required and must be name/value objects").reply()
	}
	ids, fault := c.insertFrom(r.Context(), r.PathValue("queue"), r.PathValue("from"), where, pattern)
	return answer(insertManyResult(ids), fault)
}

// insertFrom creates a task with the parameters of a pattern for every document found. The value document.FIELD
// stands for that field of the document, or null.
func (c *dci) insertFrom(ctx context.Context, name, collection string, filter, pattern bson.D) (ids []primitive.ObjectID, fault *refusal) {
	if collection == "" || strings.HasPrefix(collection, "system.") || strings.ContainsAny(collection, "$\x00") {
		return nil, bad("%q is no name of a collection to read", collection)
	}
	if err := withoutCode(filter); err != nil {
		return nil, bad("%v", err)
	}
	if _, err := withIDs(filter); err != nil {
		return nil, bad("%v", err)
	}
	each, err := bson.Marshal(pattern)
	if err != nil {
		return nil, bad("params: %v", err)
	}
	queue, err := c.store.Queue(ctx, name)
	if err != nil {
		return nil, c.missing("queue", "create tasks", err, nil)
	}
	unreadable := func(err error) *refusal {
		fault := c.failed("iterate on collection "+collection, err)
		fault.unreadable = true
		return fault
	}
	docs, err := c.store.Documents(ctx, collection, filter)
	if err != nil {
		return nil, unreadable(err)
	}
	var block []any
	bytes := 0
	insert := func() {
		ids, fault = c.insertInto(ctx, &queue, ids, block)
		clear(block) // frees their memory
		block, bytes = block[:0], 0
	}
	var broken error
	for doc, err := range docs {
		if broken = err; err != nil {
			break
		}
		task, copied := fill(pattern, doc)
		block = append(block, task)
		if bytes += len(each) + copied; len(block) == insertBlock || bytes > insertBytes {
			if insert(); fault != nil {
				return ids, fault
			}
		}
	}
	if len(block) > 0 {
		if insert(); fault != nil {
			return ids, fault
		}
	}
	switch {
	case broken != nil:
		return ids, unreadable(broken).with(insertManyResult(ids))
	case len(ids) == 0:
		return nil, bad("Unknown error").with(insertManyResult(nil))
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
