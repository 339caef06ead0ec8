package page

import (
	"cmp"
	"html/template"
	"net/http"
	"strings"

	codec "treadle/codec/admin"
)

// queueRow is a queue in a list.
type queueRow struct {
	codec.Queue
	Name  string // its bytes
	Key   string
	Spark template.HTML
}

func (s *Pages) queueRow(r *http.Request, q *codec.Queue) queueRow {
	raw := q.Queue + string(q.QueueBytes)
	return queueRow{*q, raw, fragmentKey(raw), s.sparkOf(r, raw)}
}

// Idle returns the workers that do no job of the queue.
func (q *queueRow) Idle() int { return max(q.Workers-q.Busy, 0) }

// IsPaused reports whether the queue hands out or takes no jobs.
func (q *queueRow) IsPaused() bool { return q.Paused != "" && q.Paused != "no" }

// queueColumn is a column of the queues by which they can be sorted.
type queueColumn struct {
	Sort, Text, Class, URL string
	Here                   bool
}

type queuesData struct {
	Rows           []queueRow
	Of             int
	Columns        []queueColumn
	Contains, Sort string
	Next, First    string // addresses; empty: none
}

// queues lists the queues.
func (s *Pages) queues(r *http.Request) (*view, error) {
	q := r.URL.Query()
	d := &queuesData{Contains: q.Get("contains"), Sort: cmp.Or(q.Get("sort"), "ready")}
	var page codec.Queues
	if err := s.api.get(r, &page, "/queues", "limit", "100", "sort", d.Sort, "contains", d.Contains, "after", q.Get("after")); err != nil {
		return nil, err
	}
	d.Of = page.Of
	for i := range page.Queues {
		d.Rows = append(d.Rows, s.queueRow(r, &page.Queues[i]))
	}
	self := withQuery(r.URL.RequestURI(), "refresh", "", noticeParameter, "")
	for _, c := range []queueColumn{
		{Sort: "name", Text: "Queue"}, {Sort: "ready", Text: "Ready", Class: "n"}, {Sort: "running", Text: "Running", Class: "n"},
		{Sort: "delayed", Text: "Delayed", Class: "n p2"}, {Sort: "failed", Text: "Failed", Class: "n"}, {Sort: "oldest", Text: "Oldest", Class: "n p1"},
		{Sort: "submitted", Text: "In /s", Class: "n p2"}, {Sort: "finished", Text: "Done /s", Class: "n p1"}, {Text: "5 min", Class: "p2"},
		{Sort: "workers", Text: "Workers", Class: "n p1"},
	} {
		c.Here = c.Sort == d.Sort
		if c.Sort != "" {
			c.URL = withQuery(self, "sort", c.Sort, "after", "")
		}
		d.Columns = append(d.Columns, c)
	}
	d.Next, d.First = pageLinks(r, page.Next)
	return &view{name: "queues", title: "Queues", area: "/queues", data: d}, nil
}

type queueData struct {
	queueRow
	Exact  bool // a request can name it
	By     string
	Policy []codec.Value
	Chart  *chart
	Peers  []connection
	Jobs   []stateJobs
}

// stateJobs are the first jobs of a queue in a state.
type stateJobs struct {
	State string
	Count int
	Rows  []jobRow
	All   string // the address of all of them

	Select, InQueue bool // what the list has beside its jobs, as in jobsData
}

// firstJobs is how many jobs of each state the page of a queue has.
const firstJobs = "5"

// queue shows one queue.
func (s *Pages) queue(r *http.Request) (*view, error) {
	return s.queueOf(r, r.URL.Query().Get("queue"))
}

// queueOf shows the queue of a name, in bytes.
func (s *Pages) queueOf(r *http.Request, raw string) (*view, error) {
	var page codec.Queues
	if err := s.api.get(r, &page, "/queues", "queue", raw); err != nil {
		return nil, err
	}
	d := &queueData{queueRow: s.queueRow(r, &page.Queues[0]), Exact: isExactName(raw), By: nameOf(r)}
	var table codec.Table
	if err := s.api.get(r, &table, "/policies", "queue", raw); err != nil {
		return nil, err
	}
	for _, v := range table.Values {
		if !strings.HasPrefix(v.Key, "paused") {
			d.Policy = append(d.Policy, v)
		}
	}
	var err error
	if d.Chart, err = s.chartOf(r, raw); err != nil {
		return nil, err
	}
	if d.Peers, err = s.workersOf(r, raw); err != nil {
		return nil, err
	}
	q := &d.Queue
	for _, st := range []struct {
		state string
		n     int
	}{{"running", q.Running}, {"ready", q.Ready}, {"delayed", q.Delayed}, {"locked", q.Locked}, {"waiting", q.Waiting}, {"failed", q.Failed}, {"done", q.Done}} {
		if st.n == 0 {
			continue
		}
		filter := "queue:" + quote(raw) + " state:" + st.state
		jobs := stateJobs{InQueue: true, State: st.state, Count: st.n, All: s.url("/jobs", "filter", filter)}
		var page codec.Jobs
		if err := s.api.get(r, &page, "/jobs", "filter", filter, "limit", firstJobs, "time", "10ms"); err != nil {
			return nil, err
		}
		for i := range page.Jobs {
			jobs.Rows = append(jobs.Rows, newJobRow(&page.Jobs[i]))
		}
		d.Jobs = append(d.Jobs, jobs)
	}
	return &view{name: "queue", title: plain(raw), area: "/queues", data: d}, nil
}

// quote writes a value of a filter.
func quote(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}
