package loop

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"treadle/codec/kts46"
)

// ktsGreeting answers hello: clients use it as a probe.
const ktsGreeting = "Hello! This is Treadle, a scheduler of kts46 simulations."

// ktsCall is a method of version 1: how many arguments it takes, of which the first so
// many have to be strings, and what it does in a turn.
type ktsCall struct {
	args, texts int
	do          func(h *ktsHub, args []any, texts []string) (any, error)
}

// ktsAddJob is the method whose last argument is read before its turn.
const ktsAddJob = "addJob"

var ktsCalls = map[string]ktsCall{
	"hello":           {0, 0, func(*ktsHub, []any, []string) (any, error) { return ktsGreeting, nil }},
	"runJob":          {2, 2, (*ktsHub).xmlRunJob},
	"getJob":          {1, 1, (*ktsHub).xmlGetJob},
	"reportStatus":    {3, 1, (*ktsHub).xmlReportStatus},
	"getCurrentTasks": {0, 0, (*ktsHub).xmlCurrentTasks},
	"restartTask":     {2, 1, (*ktsHub).xmlRestartTask},
	"createProject": {1, 1, func(h *ktsHub, _ []any, s []string) (any, error) {
		return nil, h.createProject(s[0])
	}},
	"projectExists": {1, 1, func(h *ktsHub, _ []any, s []string) (any, error) {
		return h.projects[s[0]] != nil, nil
	}},
	"deleteProject": {1, 1, func(h *ktsHub, _ []any, s []string) (any, error) {
		return nil, h.deleteProject(s[0])
	}},
	ktsAddJob: {3, 3, func(h *ktsHub, args []any, s []string) (any, error) {
		return nil, h.addJob(s[0], s[1], args[2].(*ktsDefinition))
	}},
	"jobExists": {2, 2, func(h *ktsHub, _ []any, s []string) (any, error) {
		p, err := h.project(s[0])
		if err != nil {
			return nil, err
		}
		return p.jobs[s[1]] != nil, nil
	}},
	"deleteJob": {2, 2, func(h *ktsHub, _ []any, s []string) (any, error) {
		return nil, h.deleteJob(s[0], s[1])
	}},
	"getNewJobId":      {1, 1, (*ktsHub).xmlNewJobID},
	"getJobStatus":     {2, 2, (*ktsHub).xmlJobStatus},
	"getJobsList":      {1, 1, (*ktsHub).xmlJobsList},
	"getProjectStatus": {1, 1, (*ktsHub).xmlProjectStatus},
	"getServerStatus":  {0, 0, (*ktsHub).xmlServerStatus},
	"getJobStatistics": {3, 2, (*ktsHub).xmlJobStatistics},
}

// serveXML answers a call of version 1: always with 200 and XML, unless HTTP itself is
// used wrongly.
func (h *ktsHub) serveXML(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/" && r.URL.Path != "/RPC2" {
		http.NotFound(w, r)
		return
	}
	body, heard, ok := h.body(w, r)
	if !ok {
		return
	}
	defer heard()
	defer h.answering()()
	call, err := kts46.ReadCall(strings.NewReader(string(body)))
	var answer any
	composed := h.compose(call.Method)
	defer composed()
	if err == nil {
		answer, err = h.callXML(&call)
	} else {
		err = &kts46.Fault{Code: 1, Text: "the call cannot be read: " + err.Error()}
	}
	heard()
	if err != nil {
		composed() // nothing long is to be written
	}
	var broken *JournalError
	switch {
	case errors.As(err, &broken), errors.Is(err, errKtsStopping):
		h.send(w, http.StatusServiceUnavailable, "text/plain", []byte(err.Error()+"\n"))
	case err != nil:
		h.stats.refused.Add(1)
		h.send(w, http.StatusOK, "text/xml", kts46.AppendFault(nil, ktsFault(err)))
	default:
		body := kts46.AppendAnswer(nil, answer)
		composed()
		h.send(w, http.StatusOK, "text/xml", body)
	}
}

func (h *ktsHub) callXML(call *kts46.Call) (answer any, err error) {
	m, ok := ktsCalls[call.Method]
	if !ok {
		return nil, &kts46.Fault{Code: 1, Text: fmt.Sprintf(`<type 'exceptions.Exception'>:method "%s" is not supported`, call.Method)}
	}
	h.stats.requests[call.Method].Add(1)
	if len(call.Params) != m.args { // the reference counts its own object too
		plural := "s"
		if m.args == 0 {
			plural = ""
		}
		return nil, &kts46.Fault{Code: 1, Text: fmt.Sprintf("<type 'exceptions.TypeError'>:%s() takes exactly %d argument%s (%d given)",
			call.Method, m.args+1, plural, len(call.Params)+1)}
	}
	texts := make([]string, m.texts)
	for i := range texts {
		if texts[i], ok = call.Params[i].(string); !ok {
			return nil, &kts46.Fault{Code: 1, Text: fmt.Sprintf("<type 'exceptions.TypeError'>:argument %d of %s() is no string", i+1, call.Method)}
		}
	}
	if call.Method == ktsAddJob {
		call.Params[2] = h.define(texts[2])
	}
	if do := ktsSiteCalls[call.Method]; do != nil && h.site != nil {
		return do(h, call.Params, texts)
	}
	do := func() (err error) {
		answer, err = m.do(h, call.Params, texts)
		return err
	}
	if ktsLong[call.Method] { // has a turn only for a look at what there is
		return answer, do()
	}
	return answer, h.turn(do)
}

// ktsFault is how version 1 says no. Where the reference's words are known they are the
// same: a client may look for them.
func ktsFault(err error) *kts46.Fault {
	var fault *kts46.Fault
	var missing *ktsMissing
	var taken *ktsTaken
	text := "<class 'kts46.server.scheduler.SchedulerException'>:" + err.Error()
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.As(err, &missing):
		text = `<type 'exceptions.KeyError'>:"` + missing.Error() + `"`
	case errors.As(err, &taken):
		text = "<class 'kts46.mongodb.StorageException'>:" + taken.Error()
	case errors.Is(err, errKtsNoTask):
		text = "<class 'kts46.server.scheduler.SchedulerException'>:There is no current tasks for specified worker id."
	}
	return &kts46.Fault{Code: 1, Text: text}
}

// xmlRunJob starts a job; one that runs or is done is left alone.
func (h *ktsHub) xmlRunJob(_ []any, s []string) (any, error) {
	j, err := h.job(s[0], s[1])
	if err != nil {
		return nil, err
	}
	if err := h.run(j, ktsV1End); err != errKtsDone && err != errKtsDuplicate {
		return nil, err
	}
	return nil, nil
}

// xmlGetJob hands out the task that is first in line. What the worker holds already is
// put last before.
func (h *ktsHub) xmlGetJob(_ []any, s []string) (any, error) {
	if err := checkKtsName("worker", s[0]); err != nil {
		return nil, err
	}
	if t, err := h.held(s[0]); err == nil {
		h.requeue(t, false)
	}
	t, err := h.take(s[0], ktsV1, ktsSecond, h.accepting())
	if t == nil {
		return nil, err
	}
	h.decide(t, 1)
	return kts46.Struct{
		{Name: "project", Value: t.job.project.name},
		{Name: "lastUpdate", Value: ktsDateTime(t)},
		{Name: "job", Value: t.job.name},
		{Name: "type", Value: t.kind.String()},
		{Name: "timeout", Value: h.server.o.Kts46.timeoutV1()},
	}, nil
}

func ktsDateTime(t *ktsTask) kts46.DateTime {
	return kts46.NewDateTime(time.UnixMilli(t.lease.Revision))
}

// reporting is the task that a report is about.
func (h *ktsHub) reporting(args []any, s []string) (*ktsTask, error) {
	t, err := h.held(s[0])
	if err == nil && !ktsMatches(t, args[2]) {
		err = mismatch(args[2], time.UnixMilli(t.lease.Revision).UTC())
	}
	return t, err
}

func (h *ktsHub) xmlReportStatus(args []any, s []string) (any, error) {
	t, err := h.reporting(args, s)
	if err != nil {
		return nil, err
	}
	switch args[1] {
	case "working":
		h.touch(t, ktsSecond)
		return ktsDateTime(t), nil
	case "abort":
		h.requeue(t, false)
		return nil, nil
	case "finished":
		h.decide(t, 1)
		return nil, h.finish(t)
	}
	return nil, fmt.Errorf("the state %v is none of working, abort, finished", args[1])
}

// mismatch says, in the words of the reference, that a report comes under another last
// update than the task has. A worker that knows none sends nil.
func mismatch(yours any, has time.Time) error {
	if yours == nil {
		yours = "None"
	}
	layout := "2006-01-02 15:04:05"
	if has.Nanosecond() > 0 {
		layout += ".000000"
	}
	return fmt.Errorf("Last update timestamps doesn't match.\nIs seems that something changed state of the task. Your: %v. Has: %s.", //nolint:staticcheck // the reference's words
		yours, has.Format(layout))
}

// ktsMatches says whether a dateTime is that of a task's last update, to the second, which
// is all that version 1 knows.
func ktsMatches(t *ktsTask, arg any) bool {
	d, ok := arg.(kts46.DateTime)
	if !ok {
		return false
	}
	at, ok := d.Time()
	return ok && at.Unix() == time.UnixMilli(t.lease.Revision).Unix()
}

func (h *ktsHub) xmlRestartTask(args []any, s []string) (any, error) {
	t, err := h.held(s[0])
	if err != nil || !ktsMatches(t, args[1]) {
		return false, nil
	}
	h.requeue(t, false)
	return true, nil
}

func (h *ktsHub) xmlNewJobID(_ []any, s []string) (any, error) {
	p, err := h.project(s[0])
	if err != nil {
		return nil, err
	}
	p.lastID++
	h.put(p.document())
	return p.lastID, nil
}

func (h *ktsHub) xmlJobStatus(_ []any, s []string) (any, error) {
	j, err := h.job(s[0], s[1])
	if err != nil {
		return nil, err
	}
	return jobStatus(s[0], s[1], j.steps(), j.total), nil
}

// xmlJobStatistics answers with the statistics that the original gives a new job: the
// results of the workers never come here. An unknown project or job has none.
func (h *ktsHub) xmlJobStatistics(args []any, s []string) (any, error) {
	j, err := h.job(s[0], s[1])
	if err != nil {
		return kts46.Struct{}, nil //nolint:nilerr // the original hides it too
	}
	idle := kts46.Struct{}
	if args[2] != true { // its values are not asked for
		idle = kts46.Struct{{Name: "values", Value: nil}}
	}
	return kts46.Struct{
		{Name: "average", Value: nil}, {Name: "stdeviation", Value: nil}, {Name: "averageSpeed", Value: nil}, {Name: "idleTimes", Value: idle},
		{Name: "thoughput", Value: []any{}}, // the spelling of version 1
		{Name: "throughput", Value: []any{}}, {Name: "finished", Value: j.progress.Finished},
	}, nil
}
