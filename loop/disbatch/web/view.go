package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	codec "treadle/codec/admin"
	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// Limits of a View.
const (
	// viewTimeout bounds an answer: a person waits for it.
	viewTimeout = 5 * time.Second
	// countTimeout bounds the count of all tasks, which a large site may need longer for.
	countTimeout = 3 * time.Second
	// maxViews bounds the answers that are made at once. Each may hold a document of the database, of 16 MiB.
	maxViews = 4
	// maxViewed bounds the shown part of a payload or an output, in bytes.
	maxViewed = 32 << 10
	// textTimeout bounds the reading of a whole output, which may be a file of maxReplyOutput.
	textTimeout = 30 * time.Second
)

// View reads a site for the HTTP API of a server that is a node of it. It searches as the command interface does, and
// changes nothing. Its methods are safe for concurrent use. They return within viewTimeout, Text within textTimeout,
// and their errors are ViewErrors.
type View struct {
	commandInterface
	turns chan struct{} // a semaphore: maxViews

	opening sync.Mutex // guards the fields below, and the field store until it is open
	closed  bool
}

// ViewError is why a View does not answer.
type ViewError struct{ *requestError }

// Error implements error.
func (e ViewError) Error() string { return e.why }

// HTTPStatus returns the status of the answer to the request.
func (e ViewError) HTTPStatus() int { return e.status }

// NewView makes a View. It connects to the database when it is first asked.
func NewView(c *config.File, log *slog.Logger) *View {
	return &View{commandInterface: commandInterface{config: c, log: log}, turns: make(chan struct{}, maxViews)}
}

// Close closes the connections to the database.
func (v *View) Close() {
	v.opening.Lock()
	defer v.opening.Unlock()
	if v.closed = true; v.store != nil {
		v.store.Close()
	}
}

// use opens the database if it is not open.
func (v *View) use() error {
	v.opening.Lock()
	defer v.opening.Unlock()
	if v.closed {
		return errors.New("the server stops")
	}
	if v.store != nil {
		return nil
	}
	component := config.ComponentWeb
	if _, ok := v.config.Auth[component]; !ok {
		component = config.ComponentNode
	}
	site, err := store.Open(v.config.Connection(component))
	if err == nil {
		v.store = site
	}
	return err
}

// ask waits for a turn and reads, both within a time. what names the reading in errors.
func (v *View) ask(ctx context.Context, within time.Duration, what string, read func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case v.turns <- struct{}{}:
		defer func() { <-v.turns }()
	case <-ctx.Done():
		return ViewError{newRequestError(http.StatusServiceUnavailable, errBusy.Error())}
	}
	err := v.use()
	if err == nil {
		err = read(ctx)
	}
	var refused ViewError
	switch {
	case err == nil || errors.As(err, &refused):
		return err
	case errors.Is(err, store.ErrNotFound):
		return ViewError{newRequestError(http.StatusNotFound, "there is nothing of that id")}
	}
	return ViewError{v.pageError(what, err)}
}

// Site returns the queues and nodes.
func (v *View) Site(ctx context.Context) (*codec.DisbatchSite, error) {
	all := &codec.DisbatchSite{Database: v.config.Database, Queues: []codec.DisbatchQueue{}, Nodes: []codec.DisbatchNode{}}
	return all, v.ask(ctx, viewTimeout, "read queues and nodes", func(ctx context.Context) error {
		queues, err := v.store.Queues(ctx)
		if err != nil {
			return err
		}
		nodes, err := v.store.Nodes(ctx)
		if err != nil {
			return err
		}
		counting, cancel := context.WithTimeout(ctx, countTimeout)
		defer cancel()
		counts, err := v.store.Counts(counting)
		if err != nil {
			all.Uncounted = v.databaseError("count tasks", err).why
		}
		for i := range queues {
			q, n := &queues[i], counts[queues[i].ID]
			all.Queues = append(all.Queues, codec.DisbatchQueue{
				ID: q.ID.Hex(), Queue: q.Name, Plugin: q.Plugin, Limit: q.Limit, PerNode: q.Schema == store.Schema2016, Problem: q.Problem,
				Queued: n.Queued, Running: n.Running, Completed: n.Completed,
			})
		}
		now := time.Now()
		for i := range nodes {
			all.Nodes = append(all.Nodes, v.viewNode(&nodes[i], now))
		}
		return nil
	})
}

func (v *View) viewNode(n *store.Node, now time.Time) codec.DisbatchNode {
	one := codec.DisbatchNode{Node: n.Name, Problem: n.Problem, Seen: milliseconds(n.Timestamp), Late: v.late(n, now)}
	if n.Limit != store.NoLimit {
		one.Limit = &n.Limit
	}
	return one
}

func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Tasks searches tasks, the newest first. The values are queue (an id or a name), status (a number or its word), node,
// filter (the JSON of the command interface), limit, and after, the id of the last task of the page before.
func (v *View) Tasks(ctx context.Context, values url.Values) (*codec.DisbatchTasks, error) {
	page := &codec.DisbatchTasks{Tasks: []codec.DisbatchTask{}}
	return page, v.ask(ctx, viewTimeout, "find tasks", func(ctx context.Context) error {
		queues, err := v.store.Queues(ctx)
		if err != nil {
			return err
		}
		q, refusal := viewQuery(values, queues)
		if refusal != nil {
			return ViewError{refusal}
		}
		known, limit := names(queues), int(q.options.Limit)
		for _, field := range []string{"queue", "status", "node", "ctime", "mtime"} {
			q.options.Projection = append(q.options.Projection, bson.E{Key: field, Value: 1})
		}
		q.options.Limit++ // to know whether there are more
		tasks, err := v.store.Search(ctx, q.filter, q.options)
		if err != nil {
			return err
		}
		if len(tasks) > limit {
			tasks = tasks[:limit]
			page.Next = tasks[limit-1].ID.Hex()
		}
		for i := range tasks {
			page.Tasks = append(page.Tasks, viewTask(&tasks[i], known))
		}
		return nil
	})
}

// viewQuery reads the values of Tasks.
func viewQuery(values url.Values, queues []store.Queue) (query, *requestError) {
	form := searchForm{Queue: values.Get("queue"), Status: values.Get("status"), Node: values.Get("node"), Filter: values.Get("filter")}
	if form.Queue != "" {
		i := slices.IndexFunc(queues, func(q store.Queue) bool { return q.ID.Hex() == form.Queue || q.Name == form.Queue })
		if _, err := objectID(form.Queue); i < 0 && err != nil { // tasks of a queue that was deleted are found by its id
			return query{}, newRequestError(http.StatusNotFound, "there is no queue of that name")
		} else if i >= 0 {
			form.Queue = queues[i].ID.Hex()
		}
	}
	for _, s := range statusWords {
		if s.Word == form.Status {
			form.Status = s.Code
		}
	}
	q, refusal := pageQuery(url.Values{"limit": {values.Get("limit")}}, form)
	if after := values.Get("after"); refusal == nil && after != "" {
		id, err := objectID(after)
		if err != nil {
			return q, badRequest("%v", err)
		}
		q.filter = bson.D{{Key: "$and", Value: bson.A{q.filter, bson.D{{Key: "_id", Value: bson.D{{Key: "$lt", Value: id}}}}}}}
	}
	return q, refusal
}

// viewTask returns a task without its payload and outputs. known are the names of queues.
func viewTask(t *store.Task, known map[primitive.ObjectID]string) codec.DisbatchTask {
	one := codec.DisbatchTask{
		ID: t.ID.Hex(), QueueID: t.Queue.Hex(), Queue: cmp.Or(known[t.Queue], t.Queue.Hex()), Status: t.Status, State: "completed", Node: t.Node,
		Created: milliseconds(t.CTime), Changed: milliseconds(t.MTime),
	}
	for _, s := range statusWords {
		if s.Code == strconv.Itoa(t.Status) {
			one.State = s.Word
		}
	}
	return one
}

// Task returns a task with the beginnings of its payload and outputs.
func (v *View) Task(ctx context.Context, hex string) (*codec.DisbatchTask, error) {
	var one codec.DisbatchTask
	return &one, v.ask(ctx, viewTimeout, "read the task", func(ctx context.Context) error {
		t, err := v.task(ctx, hex)
		if err != nil {
			return err
		}
		known := make(map[primitive.ObjectID]string)
		if q, err := v.store.Queue(ctx, t.Queue.Hex()); err == nil { // without it the task has the id
			known[t.Queue] = q.Name
		}
		one = viewTask(&t, known)
		one.Params = beginning(string(valueJSON(t.Params())))
		one.Stdout, one.Stderr = v.viewOutput(ctx, &t, store.FileStdout), v.viewOutput(ctx, &t, store.FileStderr)
		return nil
	})
}

func (v *View) task(ctx context.Context, hex string) (store.Task, error) {
	id, err := objectID(hex)
	if err != nil {
		return store.Task{}, ViewError{badRequest("%v", err)}
	}
	return v.store.Task(ctx, id)
}

// beginning returns the beginning of a text.
func beginning(text string) *codec.DisbatchText {
	b := &codec.DisbatchText{Size: int64(len(text)), Cut: len(text) > maxViewed}
	b.Text, b.Bytes = codec.Name(text[:min(len(text), maxViewed)])
	return b
}

// viewOutput returns the beginning of an output, which may be a file.
func (v *View) viewOutput(ctx context.Context, t *store.Task, name string) *codec.DisbatchText {
	value := t.Raw.Lookup(name)
	id, isFile := value.ObjectIDOK()
	if !isFile {
		return beginning(store.Text(value))
	}
	size, err := v.store.FileLength(ctx, id)
	var text string
	if err == nil {
		text, err = v.store.FileBeginning(ctx, id, maxViewed+1)
	}
	if err != nil {
		return &codec.DisbatchText{Error: v.databaseError("read the output", err).why}
	}
	b := beginning(text)
	b.Size = max(b.Size, size)
	return b
}

// Text returns a whole payload or output: params, stdout or stderr.
func (v *View) Text(ctx context.Context, hex, name string) (text string, err error) {
	if name != "params" && name != store.FileStdout && name != store.FileStderr {
		return "", ViewError{badRequest("name must be params, stdout or stderr")}
	}
	err = v.ask(ctx, textTimeout, "read the output", func(ctx context.Context) error {
		t, err := v.task(ctx, hex)
		if err != nil {
			return err
		}
		value := t.Raw.Lookup(name)
		id, isFile := value.ObjectIDOK()
		switch {
		case name == "params":
			text = string(valueJSON(t.Params()))
		case isFile:
			text, err = v.readFile(ctx, id)
		default:
			text = store.Text(value)
		}
		return err
	})
	return text, err
}

// readFile reads a file of an output, which has maxReplyOutput at most.
func (v *View) readFile(ctx context.Context, id primitive.ObjectID) (string, error) {
	switch size, err := v.store.FileLength(ctx, id); {
	case err != nil:
		return "", err
	case size > maxReplyOutput:
		why := fmt.Sprintf("the file %s of the output is over %d MiB: read it from the database", id.Hex(), maxReplyOutput>>20)
		return "", ViewError{newRequestError(http.StatusRequestEntityTooLarge, why)}
	}
	return v.store.ReadFile(ctx, id)
}
