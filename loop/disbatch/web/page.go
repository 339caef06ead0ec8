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

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// The pages are rendered on the server, so that they work without JavaScript. Their forms post to their own addresses
// and return to the page.

//go:embed page
var pageFiles embed.FS

var pageTemplates = template.Must(template.ParseFS(pageFiles, "page/page.html"))

// lateAfter is the silence after which a node, which reports every second, is shown as late.
const lateAfter = time.Minute

// pages adds the pages, their files and their forms.
func (c *commandInterface) pages(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { c.home(w, r, nil) })
	mux.HandleFunc("GET /search", c.searchPage)
	for _, file := range []string{"style.css", "script.js"} {
		mux.HandleFunc("GET /page/"+file, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, pageFiles, "page/"+file)
		})
	}
	mux.HandleFunc("POST /page/balance", c.formBalance)
	mux.HandleFunc("POST /page/queues", c.form(func(r *http.Request, p params) *requestError {
		_, refusal := c.createQueue(r.Context(), p)
		return refusal
	}))
	mux.HandleFunc("POST /page/queues/{id}", c.form(func(r *http.Request, p params) *requestError {
		_, refusal := c.updateQueue(r.Context(), r.PathValue("id"), p.fields)
		return refusal
	}))
	mux.HandleFunc("POST /page/nodes/{id}", c.form(func(r *http.Request, p params) *requestError {
		for i := range p.fields {
			if p.fields[i].Value == "" { // an empty field means no limit
				p.fields[i].Value = nil
			}
		}
		_, refusal := c.updateNode(r.Context(), r.PathValue("id"), p.fields)
		return refusal
	}))
}

// form carries out a form and returns to the page, which shows the error if there is one.
func (c *commandInterface) form(do func(*http.Request, params) *requestError) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := readParams(r)
		var refusal *requestError
		if err != nil {
			refusal = badRequest("%v", err)
		} else {
			refusal = do(r, p)
		}
		if refusal == nil {
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		c.home(w, r, refusal)
	}
}

// pageData are the fields of every page.
type pageData struct {
	Title, Database, Notice, Now, Self string
	Most                               int // the largest limit
}

func (c *commandInterface) pageData(title, self string) pageData {
	return pageData{Title: title, Database: c.config.Database, Now: time.Now().UTC().Format(time.DateTime), Self: self, Most: store.MaxLimit}
}

// show shows a refusal, unless it is nil, and returns the status of the page.
func (p *pageData) show(refusal *requestError) (status int) {
	if refusal == nil {
		return http.StatusOK
	}
	p.Notice = refusal.why
	return refusal.status
}

type queueRow struct {
	ID, Name, Plugin, Threads, Problem string
	PerNode                            bool
	Counts                             store.Counts
}

type nodeRow struct {
	ID, Name, Limit, Seen, Problem string
	Late                           bool
}

// home is the page with the queues and nodes, and the refusal of a form, unless that is nil.
func (c *commandInterface) home(w http.ResponseWriter, r *http.Request, refusal *requestError) {
	page := struct {
		pageData
		Queues  []queueRow
		Nodes   []nodeRow
		Plugins []string
		NewName string
	}{pageData: c.pageData("Queues and nodes", "/"), Plugins: c.plugins(r.Context())}
	queues, counts, err := c.queues(r.Context())
	for i := range queues {
		page.Queues = append(page.Queues, newQueueRow(&queues[i], counts))
	}
	var nodes []store.Node
	if err == nil {
		nodes, err = c.store.Nodes(r.Context())
	}
	if err != nil {
		refusal = c.pageError("read queues and nodes", err)
	}
	now := time.Now()
	for i := range nodes {
		page.Nodes = append(page.Nodes, newNodeRow(&nodes[i], now, c.late(&nodes[i], now)))
	}
	render(w, page.show(refusal), "home", page)
}

// newQueueRow returns a queue in the form of the page, with the counts of its tasks.
func newQueueRow(q *store.Queue, counts map[primitive.ObjectID]store.Counts) queueRow {
	row := queueRow{ID: q.ID.Hex(), Name: q.Name, Plugin: q.Plugin, Problem: q.Problem, PerNode: q.Schema == store.Schema2016, Counts: counts[q.ID]}
	if n, ok := store.Integer(q.Raw.Lookup(q.Schema.LimitField())); ok {
		row.Threads = strconv.FormatInt(n, 10)
	}
	return row
}

// sighting is what this process has seen of a node's entry.
type sighting struct {
	store.Heartbeat
	lastLook time.Time
	alive    bool // the entry changed within lateAfter
}

// late reports whether a node has been silent for lateAfter. It decides by changes of the node's entry as soon as this
// process has watched that long. Until then it compares the entry's time with its own clock, although clocks of hosts
// may differ.
func (c *commandInterface) late(n *store.Node, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.seen[n.Name]
	s := sighting{Heartbeat: last.Next(n.Timestamp, now), lastLook: now, alive: last.alive}
	if s.Since != last.Since {
		s.alive = last.Known() && now.Sub(last.lastLook) <= lateAfter
	}
	if c.seen == nil {
		c.seen = make(map[string]sighting)
	}
	c.seen[n.Name] = s
	switch {
	case now.Sub(s.Since) > lateAfter:
		return true
	case s.alive:
		return false
	}
	return now.Sub(n.Timestamp).Abs() > lateAfter
}

// newNodeRow returns a node in the form of the page.
func newNodeRow(n *store.Node, now time.Time, late bool) nodeRow {
	row := nodeRow{ID: n.ID.Hex(), Name: n.Name, Problem: n.Problem, Seen: "never"}
	if n.Limit != store.NoLimit {
		row.Limit = strconv.Itoa(n.Limit)
	}
	if !n.Timestamp.IsZero() {
		row.Late = late
		ago, direction := now.Sub(n.Timestamp), "ago"
		if ago < -lateAfter { // a smaller difference may come from the clocks
			ago, direction = -ago, "ahead"
		}
		row.Seen = n.Timestamp.UTC().Format(time.DateTime) + " (" + max(ago, 0).Truncate(time.Second).String() + " " + direction + ")"
	}
	return row
}

// render sends a page. Its security policy forbids content from other hosts.
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
	_, _ = w.Write(bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD"))) // a client that is gone needs no page
}

// names returns the names of queues by their ids.
func names(queues []store.Queue) map[primitive.ObjectID]string {
	out := make(map[primitive.ObjectID]string, len(queues))
	for i := range queues {
		out[queues[i].ID] = queues[i].Name
	}
	return out
}

// outputOf returns an output in the form of the page: the beginning of its text, and a note if that is incomplete. It
// returns false if there is no output.
func (c *commandInterface) outputOf(ctx context.Context, t *store.Task, name string) (out shownOutput, ok bool) {
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
	case store.Text(v) == "":
		return out, false
	default:
		out.Text = store.Text(v)
	}
	if cut := store.CutAfter(out.Text, maxShown); cut < len(out.Text) {
		out.Note = fmt.Sprintf("the first %d of %d bytes", cut, len(out.Text))
		out.Text = strings.Clone(out.Text[:cut])
	}
	return out, true
}
