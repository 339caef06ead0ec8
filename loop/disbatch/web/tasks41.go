package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// The routes for tasks of 4.1: GET /tasks, GET /tasks/:id and POST /tasks.

// wantsPage reports whether a client prefers a page to JSON, with the original's reading of Accept: if it names pages
// with at least the weight of JSON.
func wantsPage(r *http.Request) bool {
	page, data := 0.0, 1.0
	for kind := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, weight, found := strings.Cut(strings.TrimSpace(kind), ";q=")
		q, err := strconv.ParseFloat(weight, 64)
		if !found || err != nil {
			q = 1
		}
		switch kind {
		case "text/html":
			page = q
		case "application/json":
			data = q
		}
	}
	return page >= data
}

// either serves a page to clients that prefer one and JSON to all others. A path with an invalid task id is not
// found.
func (c *dci) either(page http.HandlerFunc, data route) http.Handler {
	asJSON := c.json(data)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch id := r.PathValue("id"); {
		case id != "" && !hexTask.MatchString(id):
			void(w, r)
		case wantsPage(r):
			page(w, r)
		default:
			asJSON.ServeHTTP(w, r)
		}
	})
}

// hasParams reports whether a request has parameters: a POST, or a search of 4.1, whose clients send a body with GET.
func hasParams(r *http.Request) bool {
	return r.Method == http.MethodPost || r.Method == http.MethodGet && r.URL.Path == "/tasks"
}

// tasksPage redirects a browser to the search page.
func (c *dci) tasksPage(w http.ResponseWriter, r *http.Request) {
	query, form := r.URL.Query(), url.Values{}
	for name, as := range map[string]string{"queue": "queue", "status": "status", "node": "node", ".limit": "limit", ".skip": "skip"} {
		if v := query.Get(name); v != "" {
			form.Set(as, v)
		}
	}
	http.Redirect(w, r, "/search?"+form.Encode(), http.StatusSeeOther)
}

var hexTask = regexp.MustCompile(`\A[0-9a-f]{24}\z`)

// taskPage shows one task.
func (c *dci) taskPage(w http.ResponseWriter, r *http.Request) {
	one := r.Clone(r.Context())
	one.URL.RawQuery = url.Values{"filter": {`{"_id": {"$oid": "` + r.PathValue("id") + `"}}`}, "output": {"1"}}.Encode()
	c.search(w, one, http.StatusNotFound)
}

// getTask returns one task.
func (c *dci) getTask(r *http.Request, _ any) reply {
	id, err := objectID(r.PathValue("id"))
	if err != nil {
		return bad("%v", err).reply()
	}
	t, err := c.store.Task(r.Context(), id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return refused(http.StatusNotFound, "no task with id "+id.Hex()).reply()
	case err != nil:
		return c.failed("get task "+id.Hex(), err).reply()
	}
	a := success(documentJSON(t.Raw, timesOf(&t, false)))
	a.pretty = true
	return a
}

// timesOf returns a task's ctime and mtime in the form of 4.1, as text or in seconds.
func timesOf(t *store.Task, seconds bool) object {
	instead := object{}
	for name, at := range map[string]bson.RawValue{"ctime": t.Raw.Lookup("ctime"), "mtime": t.Raw.Lookup("mtime")} {
		switch {
		case at.Type != bson.TypeDateTime:
		case seconds:
			instead[name] = epoch(at.Time())
		default:
			instead[name] = at.Time().UTC().Format(oldTime)
		}
	}
	return instead
}

// taskQuery are the parameters of GET /tasks.
type taskQuery struct {
	query
	count, terse, full, epoch, pretty, one bool
}

// getTasks searches tasks by indexed fields. The names of options begin with a dot.
func (c *dci) getTasks(r *http.Request, params any) reply {
	given, ok := params.(bson.D)
	if !ok && params != nil {
		return bad("the parameters must be a name/value object").reply()
	}
	var fields, options bson.D
	for _, e := range given {
		if strings.HasPrefix(e.Key, ".") {
			options = append(options, e)
		} else {
			fields = append(fields, e)
		}
	}
	indexes := c.taskIndexes(r.Context())
	refuse := func(why string, more object) reply {
		members := object{"title": "Disbatch Tasks Query", "path": "/tasks", "indexes": indexes}
		maps.Copy(members, more)
		return bad("%s", why).with(members).reply()
	}
	if unindexed := notIndexed(fields, indexes); len(unindexed) > 0 {
		return refuse("non-indexed params given", object{"invalid_params": unindexed})
	}
	q, err := newTaskQuery(fields, options)
	switch {
	case err != nil:
		return bad("%v", err).reply()
	case q.count:
		n, err := c.store.CountTasks(r.Context(), q.filter)
		if err != nil {
			return c.failed("count tasks", err).reply()
		}
		return success(object{"count": n})
	case len(q.filter) == 0 && q.options.Limit == 0:
		return refuse("refusing to return everything - include one or more indexed search restrictions", nil)
	}
	if q.options.Limit == 0 {
		q.options.Limit = oldSearchLimit
	}
	tasks, err := c.find(r.Context(), &q.query)
	if err != nil {
		return c.failed("find tasks", err).reply()
	}
	a := success(c.tasksJSON(r.Context(), tasks, &q))
	a.pretty = q.pretty
	return a
}

// tasksJSON returns an array of tasks, or the only task that was asked for, {} without one.
func (c *dci) tasksJSON(ctx context.Context, tasks []store.Task, q *taskQuery) any {
	if len(tasks) == 0 {
		return object{}
	}
	out, room := []byte{'['}, maxReplyOutput
	for i := range tasks {
		instead := timesOf(&tasks[i], q.epoch)
		if q.full {
			c.readOutput(ctx, &tasks[i], &room, instead)
		}
		if q.one {
			return documentJSON(tasks[i].Raw, instead)
		}
		out = append(appendDocument(out, tasks[i].Raw, instead), ',')
	}
	return closeArray(out)
}

// newTaskQuery reads the fields and options of GET /tasks.
func newTaskQuery(fields, options bson.D) (q taskQuery, err error) {
	if err := withoutCode(bson.A{fields, options}); err != nil {
		return q, err
	}
	filter := bson.D{}
	for _, e := range fields {
		if e.Value == "" {
			continue
		}
		isID := e.Key == "id" || e.Key == "queue"
		if e.Key == "id" {
			e.Key = "_id"
		}
		if e.Value, err = fieldValue(e.Value, isID); err != nil {
			return q, err
		}
		filter = append(filter, e)
	}
	if q.filter, err = convertFilter(filter); err != nil {
		return q, err
	}
	for name, into := range map[string]*bool{".count": &q.count, ".terse": &q.terse, ".full": &q.full, ".epoch": &q.epoch, ".pretty": &q.pretty} {
		*into = perlTrue(get(options, name))
	}
	for name, into := range map[string]*int64{".limit": &q.options.Limit, ".skip": &q.options.Skip} {
		if v := get(options, name); perlTrue(v) {
			n, ok := whole(v)
			if !ok || name == ".limit" && n > oldSearchLimit {
				return q, fmt.Errorf("%s must be a non-negative integer, .limit at most %d", name, oldSearchLimit)
			}
			*into = n
		}
	}
	q.one, q.brief = q.options.Limit == 1, q.terse
	q.full = q.full && !q.terse
	q.options.Projection, err = projectionOf(get(options, ".fields"))
	return q, err
}

// numeric matches text that the original treats as a number.
var numeric = regexp.MustCompile(`\A-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?\z`)

// fieldValue converts a field's value: forms and addresses have text for numbers and ids.
func fieldValue(v any, isID bool) (any, error) {
	switch v := v.(type) {
	case bson.A:
		several := make(bson.A, len(v))
		for i := range v {
			var err error
			if several[i], err = fieldValue(v[i], isID); err != nil {
				return nil, err
			}
		}
		return bson.D{{Key: "$in", Value: several}}, nil
	case string:
		switch {
		case isID:
			return objectID(v)
		case numeric.MatchString(v):
			return parseJSON(v)
		}
	}
	return v, nil
}

// projectionOf reads the wanted fields: an array of names, an object, or the JSON text of either.
func projectionOf(v any) (bson.D, error) {
	if !perlTrue(v) {
		return nil, nil
	}
	wanted, err := structured(v)
	var out bson.D
	switch wanted := wanted.(type) {
	case bson.D:
		out = wanted
	case bson.A:
		for _, name := range wanted {
			out = append(out, bson.E{Key: scalar(name), Value: int32(1)})
		}
	default:
		return nil, errors.New(".fields must be an array of names, or an object")
	}
	return out, err
}

// taskIndexes returns the fields of each index of tasks, without prefixes of other indexes. If the user may not list
// the indexes, it returns those of every site.
func (c *dci) taskIndexes(ctx context.Context) [][]string {
	all := [][]string{{"id"}, {"node", "status", "queue", "id"}, {"queue", "status"}}
	indexes, err := c.store.TaskIndexes(ctx)
	if err != nil {
		return all
	}
	for _, fields := range indexes {
		if i := slices.Index(fields, "_id"); i >= 0 {
			fields[i] = "id"
		}
		all = append(all, fields)
	}
	slices.SortFunc(all, slices.Compare)
	all = slices.CompactFunc(all, slices.Equal)
	var out [][]string
	for _, fields := range all {
		begins := func(other []string) bool {
			return len(other) > len(fields) && slices.Equal(other[:len(fields)], fields)
		}
		if len(fields) > 0 && !slices.ContainsFunc(all, begins) {
			out = append(out, fields)
		}
	}
	return out
}

// notIndexed returns the fields that no index covers: an index covers a field if all fields before it are given too.
func notIndexed(fields bson.D, indexes [][]string) (out []string) {
	given := func(name string) bool {
		return slices.ContainsFunc(fields, func(e bson.E) bool { return e.Key == name })
	}
	for _, e := range fields {
		helps := func(index []string) bool {
			at := slices.Index(index, e.Key)
			return at >= 0 && !slices.ContainsFunc(index[:at], func(before string) bool { return !given(before) })
		}
		if !slices.ContainsFunc(indexes, helps) {
			out = append(out, e.Key)
		}
	}
	return out
}

// createTasks41 creates tasks: one for each parameter object, or one for each document that a filter finds in a
// collection.
func (c *dci) createTasks41(r *http.Request, params any) reply {
	given, ok := params.(bson.D)
	if list, isArray := params.(bson.A); isArray { // the queue is in the path
		given, ok = bson.D{{Key: "params", Value: list}}, true
		for _, name := range []string{"queue", "collection"} {
			if v := r.URL.Query().Get(name); v != "" {
				given = append(given, bson.E{Key: name, Value: v})
			}
		}
	}
	var names []string
	for _, e := range given {
		names = append(names, e.Key)
	}
	slices.Sort(names)
	queue := scalar(get(given, "queue"))
	if queue == "" {
		return refused(http.StatusNotFound, "queue not found").reply()
	}
	wanted, perr := structured(get(given, "params"))
	single, isOne := wanted.(bson.D)
	var ids []primitive.ObjectID
	var fault *refusal
	switch {
	case ok && perr == nil && slices.Equal(names, []string{"params", "queue"}):
		if isOne {
			wanted = bson.A{single}
		}
		list, wrong := filledParams(wanted)
		if wrong != "" {
			return bad("'params' %s", wrong).reply()
		}
		ids, fault = c.insert(r.Context(), queue, list)
	case ok && isOne && slices.Equal(names, []string{"collection", "filter", "params", "queue"}):
		filter, err := structured(get(given, "filter"))
		where, isObject := filter.(bson.D)
		if err != nil || !isObject {
			return bad("'filter' must be a JSON object").reply()
		}
		collection := scalar(get(given, "collection"))
		if collection == "" {
			return bad("'collection' required and must be a scalar (string)").reply()
		}
		ids, fault = c.insertFrom(r.Context(), queue, collection, where, single)
	default:
		return bad("invalid parameters passed").reply()
	}
	return answer(insertManyResult(ids), fault)
}
