package web

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch"
)

// The pages for people: rendered here, so that they work without JavaScript. Their forms
// post to addresses of their own and come back to the page.

//go:embed page
var pageFiles embed.FS

var pageTemplates = template.Must(template.ParseFS(pageFiles, "page/page.html"))

// lateAfter is when a node that reports every second is worth a look.
const lateAfter = time.Minute

// pages adds the pages and what belongs to them.
func (c *dci) pages(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { c.home(w, r, reply{status: http.StatusOK}) })
	mux.HandleFunc("GET /search", c.searchPage)
	for _, file := range []string{"style.css", "script.js"} {
		mux.HandleFunc("GET /page/"+file, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, pageFiles, "page/"+file)
		})
	}
	mux.HandleFunc("POST /page/balance", c.formBalance)
	mux.HandleFunc("POST /page/queues", c.form(func(r *http.Request, params bson.D) reply { return c.createQueue(r.Context(), params) }))
	mux.HandleFunc("POST /page/queues/{id}", c.form(func(r *http.Request, params bson.D) reply {
		return c.updateQueue(r.Context(), r.PathValue("id"), params)
	}))
	mux.HandleFunc("POST /page/nodes/{id}", c.form(func(r *http.Request, params bson.D) reply {
		for i := range params {
			if params[i].Value == "" { // the form's way to say no limit
				params[i].Value = nil
			}
		}
		return c.updateNode(r.Context(), r.PathValue("id"), params)
	}))
}

// form does what a form asks for and goes back to the page, which says what went wrong.
func (c *dci) form(do func(*http.Request, bson.D) reply) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		params, err := readParams(r)
		given, _ := params.(bson.D)
		a := bad("%v", err)
		if err == nil {
			a = do(r, given)
		}
		if a.status == http.StatusOK {
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		c.home(w, r, a)
	}
}

// shared is what every page has.
type shared struct {
	Title, Database, Notice, Now, Self string
	Most                               int // largest limit
}

func (c *dci) shared(title, self string) shared {
	return shared{Title: title, Database: c.config.Database, Now: time.Now().UTC().Format(time.DateTime), Self: self, Most: disbatch.MaxLimit}
}

type queueRow struct {
	ID, Name, Plugin, Threads, Problem string
	PerNode                            bool
	Counts                             disbatch.Counts
}

type nodeRow struct {
	ID, Name, Limit, Seen, Problem string
	Late                           bool
}

// home is the page with the queues and nodes, and with what a form's reply says.
func (c *dci) home(w http.ResponseWriter, r *http.Request, after reply) {
	page := struct {
		shared
		Queues  []queueRow
		Nodes   []nodeRow
		Plugins []string
		NewName string
	}{shared: c.shared("Queues and nodes", "/"), Plugins: c.plugins(r.Context())}
	if body, ok := after.body.(object); ok {
		page.Notice = fmt.Sprint(body["error"])
	}
	queues, counts, err := c.queues(r.Context())
	for i := range queues {
		page.Queues = append(page.Queues, newQueueRow(&queues[i], counts))
	}
	var nodes []disbatch.Node
	if err == nil {
		nodes, err = c.store.Nodes(r.Context())
	}
	if err != nil {
		after = c.failed("read queues and nodes", err)
		after.status = http.StatusServiceUnavailable
		page.Notice = after.body.(object)["error"].(string)
	}
	now := time.Now()
	for i := range nodes {
		page.Nodes = append(page.Nodes, newNodeRow(&nodes[i], now, c.late(&nodes[i], now)))
	}
	render(w, after.status, "home", page)
}

func newQueueRow(q *disbatch.Queue, counts map[primitive.ObjectID]disbatch.Counts) queueRow {
	row := queueRow{ID: q.ID.Hex(), Name: q.Name, Plugin: q.Plugin, Problem: q.Problem, PerNode: q.Schema == disbatch.Schema2016, Counts: counts[q.ID]}
	if n, ok := disbatch.Integer(q.Raw.Lookup(q.Schema.LimitField())); ok {
		row.Threads = strconv.FormatInt(n, 10)
	}
	return row
}

// look is what this process knew of a node when it last looked, by its own clock.
type look struct {
	timestamp time.Time // of the node's entry, by the node's clock
	since     time.Time // when this timestamp was first seen
	at        time.Time // of the look
	alive     bool      // the timestamp came less than lateAfter before since
}

// late says whether a node has given no sign for some time: by whether its entry changes,
// once this process has looked for that long, and until then by its time, although clocks
// of hosts may differ.
func (c *dci) late(n *disbatch.Node, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.seen[n.Name]
	l := look{timestamp: n.Timestamp, since: now, at: now}
	switch {
	case known && last.timestamp.Equal(n.Timestamp):
		l.since, l.alive = last.since, last.alive
	case known:
		l.alive = now.Sub(last.at) <= lateAfter
	}
	if c.seen == nil {
		c.seen = make(map[string]look)
	}
	c.seen[n.Name] = l
	switch {
	case now.Sub(l.since) > lateAfter:
		return true
	case l.alive:
		return false
	}
	return now.Sub(n.Timestamp).Abs() > lateAfter
}

func newNodeRow(n *disbatch.Node, now time.Time, late bool) nodeRow {
	row := nodeRow{ID: n.ID.Hex(), Name: n.Name, Problem: n.Problem, Seen: "never"}
	if n.Limit != disbatch.NoLimit {
		row.Limit = strconv.Itoa(n.Limit)
	}
	if !n.Timestamp.IsZero() {
		row.Late = late
		ago, direction := now.Sub(n.Timestamp), "ago"
		if ago < -lateAfter { // less may be the clocks'
			ago, direction = -ago, "ahead"
		}
		row.Seen = n.Timestamp.UTC().Format(time.DateTime) + " (" + max(ago, 0).Truncate(time.Second).String() + " " + direction + ")"
	}
	return row
}

// render sends a page. It may hold nothing that is not from here.
func render(w http.ResponseWriter, status int, name string, page any) {
	var b bytes.Buffer
	if err := pageTemplates.ExecuteTemplate(&b, name, page); err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD"))) // a browser that is gone needs no page
}

// names are the names of queues by their ids.
func names(queues []disbatch.Queue) map[primitive.ObjectID]string {
	out := make(map[primitive.ObjectID]string, len(queues))
	for i := range queues {
		out[queues[i].ID] = queues[i].Name
	}
	return out
}

// outputOf is an output as the page shows it: its text up to a length, and what it is not.
func (c *dci) outputOf(ctx context.Context, t *disbatch.Task, name string) (out shownOutput, ok bool) {
	v := t.Raw.Lookup(name)
	out.Name = name
	switch id, isFile := v.ObjectIDOK(); {
	case isFile:
		size, err := c.store.FileLength(ctx, id)
		if err == nil && size > maxShownFile {
			out.Note = fmt.Sprintf("the file %s of %d bytes", id.Hex(), size)
			return out, true
		}
		if out.Text, err = c.store.ReadFile(ctx, id); err != nil {
			out.Note = fmt.Sprintf("the file %s: %v", id.Hex(), err)
			return out, true
		}
	case disbatch.Text(v) == "":
		return out, false
	default:
		out.Text = disbatch.Text(v)
	}
	if cut := disbatch.CutAfter(out.Text, maxShown); cut < len(out.Text) {
		out.Note = fmt.Sprintf("the first %d of %d bytes", cut, len(out.Text))
		out.Text = strings.Clone(out.Text[:cut])
	}
	return out, true
}
