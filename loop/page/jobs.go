package page

import (
	"net/http"
	"slices"
	"unicode/utf8"

	codec "treadle/codec/admin"
)

// jobRow is a job in a list.
type jobRow struct {
	codec.ListedJob
	Job   string // the bytes of its name
	Queue string // the jobs of its queue
	Key   string
}

func newJobRow(j *codec.ListedJob) jobRow {
	return jobRow{*j, j.Name + string(j.NameBytes), j.Queue + string(j.QueueBytes), fragmentKey(j.ID)}
}

// When returns the moment that matters in the state of the job, in Unix milliseconds.
func (j *jobRow) When() int64 {
	if j.Since != 0 {
		return j.Since
	}
	return j.Due
}

type jobsData struct {
	Filter      string
	Wrong       string // why the filter is invalid
	Rows        []jobRow
	Looked      int64
	Of          int
	Next, First string
	Select      bool // jobs can be selected
	All         bool // and all that match
	InQueue     bool // the jobs are all of one state and one queue
}

// pageTime is how long the search for one page may take.
const pageTime = "60ms"

// jobs searches jobs.
func (s *Pages) jobs(r *http.Request) (*view, error) {
	q := r.URL.Query()
	d := &jobsData{Filter: q.Get("filter"), Select: s.write}
	d.All = d.Select && d.Filter != "" && utf8.ValidString(d.Filter)
	v := &view{name: "jobs", title: "Jobs", area: "/jobs", data: d, static: true}
	limit := q.Get("limit")
	if limit == "" {
		limit = "50"
	}
	var page codec.Jobs
	err := s.api.get(r, &page, "/jobs", "filter", d.Filter, "after", q.Get("after"), "limit", limit, "time", pageTime)
	if statusOf(err) == http.StatusBadRequest && err != nil {
		d.Wrong, v.status = err.Error(), http.StatusBadRequest
		return v, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range page.Jobs {
		d.Rows = append(d.Rows, newJobRow(&page.Jobs[i]))
	}
	d.Looked, d.Of = page.Looked, page.Of
	d.Next, d.First = pageLinks(r, page.Next)
	return v, nil
}

type jobData struct {
	codec.JobDetails
	Job, Queue       string // bytes
	Self, Up         string // the addresses of the page and of its queue
	Pending          bool   // its priority, due time and queue can be changed
	Workload, Result *payload
	Around           *neighbourhood // nil: the job is no task of a graph
}

// job shows one job.
func (s *Pages) job(r *http.Request) (*view, error) {
	q := r.URL.Query()
	d := &jobData{}
	if err := s.api.get(r, &d.JobDetails, "/job", "id", q.Get("id"), "queue", q.Get("queue"), "name", q.Get("name"), "protocol", q.Get("protocol")); err != nil {
		return nil, err
	}
	row, self := newJobRow(&d.ListedJob), withQuery(r.URL.RequestURI(), noticeParameter, "")
	d.Job, d.Queue, d.Self, d.Up = row.Job, row.Queue, self, s.url("/queue", "queue", row.Queue)
	d.Pending = slices.Contains([]string{codec.StateReady, codec.StateDelayed, codec.StateLocked, codec.StateWaiting}, d.State)
	workload := textOf(d.JobDetails.Workload, d.WorkloadBytes)
	d.Workload = newPayload("workload", "workload", q.Get("workload"), self, workload, d.WorkloadSize, d.WorkloadCut, &s.secrecy)
	if d.JobDetails.Result != nil || d.ResultBytes != nil {
		d.Result = newPayload("result", "result", q.Get("result"), self, textOf(d.JobDetails.Result, d.ResultBytes), d.ResultSize, d.ResultCut, &s.secrecy)
	}
	if d.Workload.Title = "Workload"; s.secrecy.showsAll() {
		d.Workload.Raw = s.url("/job/workload", "id", d.ID)
	}
	if d.Result != nil {
		if d.Result.Title = "Result"; s.secrecy.showsAll() {
			d.Result.Raw = s.url("/job/result", "id", d.ID)
		}
	}
	var err error
	if d.Around, err = s.neighbours(r, &d.JobDetails); err != nil {
		return nil, err
	}
	return &view{name: "job", title: plain(d.Job), area: "/jobs", data: d}, nil
}

func textOf(text *string, bytes []byte) []byte {
	if text != nil {
		return []byte(*text)
	}
	return bytes
}

// download sends the workload or the result of a job, as bytes.
func (s *Pages) download(w http.ResponseWriter, r *http.Request) {
	part := r.PathValue("part")
	if part != "workload" && part != "result" {
		http.NotFound(w, r)
		return
	}
	s.sendBytes(w, r, "/job/"+part)
}

// sendBytes answers with the bytes that the API has at a path, with the query of the request.
func (s *Pages) sendBytes(w http.ResponseWriter, r *http.Request, path string) {
	if !s.secrecy.showsAll() {
		http.Error(w, "workloads and results are not sent: --web-payload hides them", http.StatusForbidden)
		return
	}
	ask, err := s.api.request(r, http.MethodGet, path, r.URL.Query(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	s.api.handler.ServeHTTP(w, ask)
}
