package page

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	codec "treadle/codec/admin"
)

// confirmData is a question before something is changed.
type confirmData struct {
	Ask    string // the question
	Help   string // what follows
	Action string // the path of the form
	Do     string
	Button string
	Filter string
	IDs    []string
	Queue  string
	Back   string
	By     string
	Count  codec.JobsMatched
	Typed  bool // the number is to be typed
	None   bool // there is nothing to do
	Reason bool // ask why and by whom
	Danger bool
}

// Needs returns the value that the verb needs: priority, delay, to or none.
func (d *confirmData) Needs() string {
	switch d.Do {
	case codec.VerbPriority:
		return "priority"
	case codec.VerbDue:
		return "delay"
	case codec.VerbMove:
		return "to"
	}
	return ""
}

// confirm asks before jobs are changed, a queue is emptied or a connection is closed.
func (s *Pages) confirm(r *http.Request) (*view, error) {
	if !s.write {
		return nil, &apiError{http.StatusForbidden, errReadOnly.Error()}
	}
	q := r.URL.Query()
	d := &confirmData{Do: q.Get("do"), Filter: strings.TrimSpace(q.Get("filter")), IDs: q["id"], Queue: q.Get("queue"), By: nameOf(r)}
	var err error
	switch verb, known := verbs[d.Do]; {
	case d.Do == "close":
		d.Action, d.Button, d.Danger = "/do/connection", "Close", true
		d.Ask, d.Help = "Close the connection of "+plain(q.Get("name"))+"?", "Jobs that its worker has are ready again. A client may connect again at once."
	case d.Do == "empty" && !isExactName(d.Queue):
		err = &apiError{http.StatusBadRequest, errNotExact.Error()}
	case d.Do == "empty":
		d.Filter, d.Do, d.Action = "queue:"+quote(d.Queue)+" state:ready,delayed,locked,waiting,failed,done,expired", codec.VerbRemove, "/do/jobs"
		err = s.askMatching(r, d, "Empty "+plain(d.Queue), "Remove", "Jobs that workers have go on.")
		d.Danger = true
	case !utf8.ValidString(d.Filter):
		err = &apiError{http.StatusBadRequest, errNotExact.Error()}
	case !known:
		err = &apiError{http.StatusBadRequest, "choose what to do"}
	case d.Filter != "":
		d.Action, d.Danger = "/do/jobs", d.Do == codec.VerbRemove
		err = s.askMatching(r, d, verb.Ask+" all jobs that match", verb.Button, "It goes on in the server, and can be cancelled on the way.")
	case len(d.IDs) == 0:
		err = &apiError{http.StatusBadRequest, "choose jobs first: none was selected"}
	default:
		d.Action, d.Button, d.Danger = "/do/jobs", verb.Button, d.Do == codec.VerbRemove
		d.Ask, d.Reason = verb.Ask+" "+plural(len(d.IDs), "job")+"?", true
	}
	d.Back = s.back(cmp.Or(q.Get("back"), cameFrom(r)), "/jobs")
	return &view{name: "confirm", title: strings.TrimSuffix(d.Ask, "?"), area: "/jobs", data: d, static: true}, err
}

// cameFrom returns the page of this server that led to the request; empty: none did.
func cameFrom(r *http.Request) string {
	u, err := url.Parse(r.Referer())
	if err != nil || u.Host != r.Host {
		return ""
	}
	return withQuery(u.RequestURI(), noticeParameter, "")
}

// askMatching asks about the jobs that a filter means.
func (s *Pages) askMatching(r *http.Request, d *confirmData, ask, button, help string) (err error) {
	if d.Count, err = s.count(r, d.Do, d.Filter); err != nil {
		return err
	}
	n := plural(d.Count.Matched, "job")
	if d.Count.More {
		n = "at least " + n
	}
	d.Ask, d.Button, d.Help, d.Reason = ask+": "+n, button+" "+n, help, true
	d.Typed, d.None = d.Count.More || d.Count.Matched > typedAbove, d.Count.Matched == 0 && !d.Count.More
	return nil
}

type operationData struct {
	codec.Operation
	Running bool
	Part    int // of what it looks at, in hundredths
	Seconds int64
	Items   []codec.LeftJob
}

// operation shows a change of many jobs and how far it is.
func (s *Pages) operation(r *http.Request) (*view, error) {
	var all codec.Operations
	if err := s.api.get(r, &all, "/operations", "id", r.URL.Query().Get("id")); err != nil {
		return nil, err
	}
	if len(all.Operations) == 0 {
		return nil, &apiError{http.StatusNotFound, "there is no such change: the last ones alone are known"}
	}
	d := &operationData{Operation: all.Operations[0]}
	d.Items = d.Errors[:min(len(d.Errors), maxItems)]
	if d.Running = d.State == codec.OperationRunning; !d.Running {
		d.Seconds = (d.Ended - d.Started + 999) / 1000
	}
	d.Part = newMeter(float64(d.Looked), float64(max(d.Of, 1))).Part
	if d.State == codec.OperationDone {
		d.Part = 100
	}
	return &view{name: "operation", title: "Change of many jobs", area: "/activity", data: d, reload: d.Running}, nil
}

type submitData struct {
	Queue, Name, Workload, Priority string
	Cut                             bool // the workload of the model is not text, or too long for a form
}

// submit is the form of a job. With from=ID it has the values of that job.
func (s *Pages) submit(r *http.Request) (*view, error) {
	if !s.write {
		return nil, &apiError{http.StatusForbidden, errReadOnly.Error()}
	}
	q := r.URL.Query()
	d := &submitData{Queue: q.Get("queue")}
	if id := q.Get("from"); id != "" {
		var job codec.JobDetails
		if err := s.api.get(r, &job, "/job", "id", id); err != nil {
			return nil, err
		}
		d.Queue, d.Name = job.Queue, job.Name
		if job.Priority != 0 {
			d.Priority = strconv.FormatInt(job.Priority, 10)
		}
		if d.Cut = job.WorkloadCut || job.WorkloadBytes != nil; !d.Cut && job.Workload != nil {
			d.Workload = *job.Workload
		}
	}
	return &view{name: "submit", title: "Submit a job", area: "/jobs", data: d, static: true}, nil
}
