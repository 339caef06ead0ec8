package page

import (
	"net/http"
	"strconv"

	codec "treadle/codec/admin"
)

// The pages of Disbatch do not change while they are shown: to count all tasks each second would be too much for a
// large site.

type siteData struct {
	codec.DisbatchSite
	Wrong string // why the site cannot be read; empty: it can
}

// site shows the queues and nodes of the Disbatch site.
func (s *Pages) site(r *http.Request) (*view, error) {
	d := new(siteData)
	v := &view{name: "site", title: "Disbatch", area: "/disbatch", data: d, static: true}
	err := s.api.get(r, &d.DisbatchSite, "/disbatch")
	if err != nil && statusOf(err) == http.StatusNotFound {
		return nil, err
	}
	v.explain(err, &d.Wrong)
	return v, nil
}

// explain sets why a page lacks what the site has, as when its database does not answer.
func (v *view) explain(err error, why *string) {
	if err != nil {
		v.status, *why = statusOf(err), sentence(err.Error())
	}
}

// taskStates are the states of tasks that people look for, and their glyphs.
var taskStates = map[string]string{
	"queued": "ready", "claimed": "waiting", "running": "running", "succeeded": "done", "failed": "failed", "orphaned": "bad",
	"terminated": "cancelled", "blocked": "locked", "cancelled": "cancelled", "completed": "done",
}

// taskState writes a state of a task by shape and word. A status of the plugin's own is a number.
func taskState(t codec.DisbatchTask) siteState {
	state := siteState{taskStates[t.State], t.State}
	if t.State == "completed" {
		state.Word = "status " + strconv.Itoa(t.Status)
	}
	return state
}

type siteState struct{ Glyph, Word string }

type siteTasksData struct {
	codec.DisbatchSite
	Rows                        []codec.DisbatchTask
	Queue, Status, Node, Filter string
	Statuses                    []string
	Wrong                       string
	Next, First                 string
}

// shownStates are the states that the form of the search offers, in order.
var shownStates = []string{"queued", "claimed", "running", "succeeded", "failed", "orphaned", "terminated", "blocked", "cancelled"}

// siteTasks searches the tasks of the site.
func (s *Pages) siteTasks(r *http.Request) (*view, error) {
	q := r.URL.Query()
	d := &siteTasksData{Queue: q.Get("queue"), Status: q.Get("status"), Node: q.Get("node"), Filter: q.Get("filter"), Statuses: shownStates}
	v := &view{name: "site-tasks", title: "Tasks", area: "/disbatch", data: d, static: true}
	var page codec.DisbatchTasks
	err := s.api.get(r, &page, "/disbatch/tasks", "queue", d.Queue, "status", d.Status, "node", d.Node, "filter", d.Filter, "after", q.Get("after"))
	d.Rows = page.Tasks
	d.Next, d.First = pageLinks(r, page.Next)
	v.explain(err, &d.Wrong)
	return v, nil
}

type siteTaskData struct {
	codec.DisbatchTask
	Parts []*payload
	Wrong string
}

// siteTask shows a task of the site.
func (s *Pages) siteTask(r *http.Request) (*view, error) {
	q := r.URL.Query()
	d := new(siteTaskData)
	v := &view{name: "site-task", title: "Task " + plain(q.Get("id")), area: "/disbatch", data: d, static: true}
	if err := s.api.get(r, &d.DisbatchTask, "/disbatch/task", "id", q.Get("id")); err != nil {
		if statusOf(err) == http.StatusNotFound {
			return nil, err
		}
		v.explain(err, &d.Wrong)
		return v, nil
	}
	for _, part := range []struct {
		name, title string
		text        *codec.DisbatchText
	}{{"params", "Parameters", d.Params}, {"stdout", "Standard output", d.Stdout}, {"stderr", "Standard error", d.Stderr}} {
		if part.text != nil {
			p := s.siteText(r, part.name, part.text)
			p.Title = part.title
			d.Parts = append(d.Parts, p)
		}
	}
	return v, nil
}

// mostPart bounds a payload or an output of a task on its page, in bytes of HTML: escapes make some texts many times as
// long.
const mostPart = 48 << 10

// siteText returns the beginning of a payload or an output.
func (s *Pages) siteText(r *http.Request, part string, text *codec.DisbatchText) *payload {
	if text.Error != "" {
		return &payload{Part: part, Size: int(text.Size), Why: sentence(text.Error)}
	}
	first := append([]byte(text.Text), text.Bytes...) // one of them is empty
	q, whole := r.URL.Query(), len(first)
	for {
		p := newPayload(part, part, q.Get(part), r.URL.RequestURI(), first, int(text.Size), text.Cut || len(first) < whole, &s.secrecy)
		if len(p.Text) <= mostPart {
			if s.secrecy.showsAll() {
				p.Raw = s.url("/disbatch/text", "id", q.Get("id"), "name", part)
			}
			return p
		}
		first = first[:len(first)/2]
	}
}

// downloadText sends the payload or an output of a task of the site, as bytes.
func (s *Pages) downloadText(w http.ResponseWriter, r *http.Request) {
	s.sendBytes(w, r, "/disbatch/text")
}
