package page

import (
	"cmp"
	"net/http"
	"strings"

	codec "treadle/codec/admin"
)

// connection is a connection as a list has it.
type connection struct {
	codec.Connection
	Key string
}

func newConnection(c *codec.Connection) connection { return connection{*c, fragmentKey(c.ID)} }

type connectionsData struct {
	Open        []codec.ProtocolConnections
	Rows        []connection
	Protocol    string
	Next, First string
}

// connections lists the connections of clients and workers.
func (s *Pages) connections(r *http.Request) (*view, error) {
	q := r.URL.Query()
	d := &connectionsData{Protocol: q.Get("protocol")}
	o, err := s.currentOverview(r)
	if err != nil {
		return nil, err
	}
	d.Open = o.Connections
	var page codec.Connections
	if err := s.api.get(r, &page, "/connections", "protocol", d.Protocol, "after", q.Get("after"), "limit", "100"); err != nil {
		return nil, err
	}
	for i := range page.Connections {
		d.Rows = append(d.Rows, newConnection(&page.Connections[i]))
	}
	d.Next, d.First = pageLinks(r, page.Next)
	return &view{name: "connections", title: "Connections", area: "/connections", data: d}, nil
}

// pageLinks returns the addresses of the next page, after its cursor, and of the first; empty: the page is that.
func pageLinks(r *http.Request, cursor string) (next, first string) {
	self := withQuery(r.URL.RequestURI(), "refresh", "", noticeParameter, "")
	if cursor != "" {
		next = withQuery(self, "after", cursor)
	}
	if r.URL.Query().Get("after") != "" {
		first = withQuery(self, "after", "")
	}
	return next, first
}

// workersOf returns workers of a queue.
func (s *Pages) workersOf(r *http.Request, queue string) (all []connection, err error) {
	var page codec.Connections
	if err := s.api.get(r, &page, "/connections", "queue", queue, "limit", "20"); err != nil {
		return nil, err
	}
	for i := range page.Connections {
		all = append(all, newConnection(&page.Connections[i]))
	}
	return all, nil
}

// cause is a group of failed jobs as the page has it.
type cause struct {
	codec.FailureCause
	Name   string // of the queue: its bytes
	Filter string // finds its jobs
	Exact  bool   // and no others
}

type failedData struct {
	*codec.FailureCauses
	Rows []cause
}

// failed shows the failed jobs by queue and cause.
func (s *Pages) failed(r *http.Request) (*view, error) {
	d := &failedData{FailureCauses: new(codec.FailureCauses)}
	if err := s.api.get(r, d.FailureCauses, "/jobs/causes"); err != nil {
		return nil, err
	}
	for _, c := range d.Causes {
		row := cause{FailureCause: c, Name: c.Queue + string(c.QueueBytes)}
		row.Exact = isExactName(row.Name)
		if row.Filter = "queue:" + quote(row.Name) + " state:failed"; c.Common != "" {
			row.Filter += " text:" + quote(c.Common)
		}
		d.Rows = append(d.Rows, row)
	}
	return &view{name: "failed", title: "Failed jobs", area: "/failed", data: d}, nil
}

type cronData struct {
	Rows []codec.CronStatus
	One  bool
}

// maxTimes is how many times to come the page of a cron entry shows.
const maxTimes = "5"

// cron lists the cron entries, or shows one.
func (s *Pages) cron(r *http.Request) (*view, error) {
	entry := r.URL.Query().Get("entry")
	var all codec.CronEntries
	d, next := &cronData{One: entry != ""}, ""
	if d.One {
		next = maxTimes
	}
	if err := s.api.get(r, &all, "/cron", "entry", entry, "next", next); err != nil {
		return nil, err
	}
	d.Rows = all.Entries
	return &view{name: "cron", title: cmp.Or(plain(entry), "Cron"), area: "/cron", data: d}, nil
}

// auditEntry is a record of the audit as the page has it.
type auditEntry struct {
	codec.AuditRecord
	Did string // the request in words
}

type activityData struct {
	Operations  []codec.Operation
	Rows        []auditEntry
	Next, First string
}

// activity shows the last changes.
func (s *Pages) activity(r *http.Request) (*view, error) {
	d := new(activityData)
	var operations codec.Operations
	if err := s.api.get(r, &operations, "/operations"); err != nil {
		return nil, err
	}
	d.Operations = operations.Operations
	var audit codec.Audit
	if err := s.api.get(r, &audit, "/audit", "after", r.URL.Query().Get("after")); err != nil {
		return nil, err
	}
	for i := range audit.Records {
		d.Rows = append(d.Rows, auditEntry{audit.Records[i], describeRequest(audit.Records[i].Request)})
	}
	d.Next, d.First = pageLinks(r, audit.Next)
	return &view{name: "activity", title: "Activity", area: "/activity", data: d}, nil
}

// describeRequest returns a request of the API in words: POST /api/v1/queues/pause is "pause queue".
func describeRequest(request string) string {
	method, path, _ := strings.Cut(request, " ")
	path = strings.TrimPrefix(path, apiRoot+"/")
	area, verb, found := strings.Cut(path, "/")
	switch {
	case strings.HasPrefix(request, "operation "):
		return "end operation"
	case found:
		return verb + " " + strings.TrimSuffix(area, "s")
	case method == http.MethodPatch:
		return "set " + area
	}
	return "add " + strings.TrimSuffix(area, "s")
}

type settingsData struct {
	Rows  []codec.Setting
	Wrong string
	Rules []codec.Rule
}

// settings shows the settings of the server and the rules for queues.
func (s *Pages) settings(r *http.Request) (*view, error) {
	d := new(settingsData)
	var all codec.Settings
	switch err := s.api.get(r, &all, "/settings"); {
	case err != nil && statusOf(err) == http.StatusBadRequest: // a server within another program has none
		d.Wrong = err.Error()
	case err != nil:
		return nil, err
	}
	d.Rows = all.Settings
	var table codec.Table
	if err := s.api.get(r, &table, "/policies"); err != nil {
		return nil, err
	}
	d.Rules = table.Rules
	return &view{name: "settings", title: "Settings", area: "/settings", data: d, static: true}, nil
}

// project is a project of simulations as the page has it.
type project struct {
	codec.Project
	Part int // of its steps, in hundredths
}

type simulation struct {
	codec.ProjectJob
	Part int
}

type projectsData struct {
	Project     string // empty: all are shown
	Rows        []project
	Jobs        []simulation
	Next, First string
}

// projects lists the projects of kts46, or the simulations of one.
func (s *Pages) projects(r *http.Request) (*view, error) {
	d := &projectsData{Project: r.URL.Query().Get("project")}
	var all codec.Projects
	if err := s.api.get(r, &all, "/projects", "project", d.Project, "after", r.URL.Query().Get("after")); err != nil {
		return nil, err
	}
	for _, p := range all.Projects {
		d.Rows = append(d.Rows, project{p, newMeter(float64(p.Done), float64(p.Total)).Part})
	}
	for _, j := range all.Jobs {
		d.Jobs = append(d.Jobs, simulation{j, newMeter(float64(j.Done), float64(j.Total)).Part})
	}
	d.Next, d.First = pageLinks(r, all.Next)
	return &view{name: "projects", title: cmp.Or(plain(d.Project), "kts46 projects"), area: "/kts46", data: d}, nil
}

// tasks shows the queue of dwork tasks.
func (s *Pages) tasks(r *http.Request) (*view, error) {
	v, err := s.queueOf(r, tasksQueue)
	if statusOf(err) == http.StatusNotFound && err != nil {
		return &view{name: "no-tasks", title: "dwork", area: "/dwork"}, nil
	}
	if v != nil {
		v.area = "/dwork"
	}
	return v, err
}

// tasksQueue is the queue of dwork tasks.
const tasksQueue = "dwork"
