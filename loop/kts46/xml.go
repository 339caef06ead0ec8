package kts46

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	codec "treadle/codec/kts46"
)

// greeting is the answer to hello, which clients use as a probe.
const greeting = "Hello! This is Treadle, a scheduler of kts46 simulations."

// xmlMethod is a method of version 1: its number of arguments, how many of the first must be strings, and its function,
// which runs in a turn.
type xmlMethod struct {
	args, texts int
	do          func(p *Protocol, args []any, texts []string) (any, error)
}

// addJobMethod is the method whose last argument is parsed before its turn.
const addJobMethod = "addJob"

var xmlMethods = map[string]xmlMethod{
	"hello":           {0, 0, func(*Protocol, []any, []string) (any, error) { return greeting, nil }},
	"runJob":          {2, 2, (*Protocol).xmlRunJob},
	"getJob":          {1, 1, (*Protocol).xmlGetJob},
	"reportStatus":    {3, 1, (*Protocol).xmlReportStatus},
	"getCurrentTasks": {0, 0, (*Protocol).xmlCurrentTasks},
	"restartTask":     {2, 1, (*Protocol).xmlRestartTask},
	"createProject": {1, 1, func(p *Protocol, _ []any, s []string) (any, error) {
		return nil, p.createProject(s[0])
	}},
	"projectExists": {1, 1, func(p *Protocol, _ []any, s []string) (any, error) {
		return p.projects[s[0]] != nil, nil
	}},
	"deleteProject": {1, 1, func(p *Protocol, _ []any, s []string) (any, error) {
		return nil, p.deleteProject(s[0])
	}},
	addJobMethod: {3, 3, func(p *Protocol, args []any, s []string) (any, error) {
		return nil, p.addJob(s[0], s[1], args[2].(*parsedDefinition))
	}},
	"jobExists": {2, 2, func(p *Protocol, _ []any, s []string) (any, error) {
		found, err := p.project(s[0])
		if err != nil {
			return nil, err
		}
		return found.jobs[s[1]] != nil, nil
	}},
	"deleteJob": {2, 2, func(p *Protocol, _ []any, s []string) (any, error) {
		return nil, p.deleteJob(s[0], s[1])
	}},
	"getNewJobId":      {1, 1, (*Protocol).xmlNewJobID},
	"getJobStatus":     {2, 2, (*Protocol).xmlJobStatus},
	"getJobsList":      {1, 1, (*Protocol).xmlJobsList},
	"getProjectStatus": {1, 1, (*Protocol).xmlProjectStatus},
	"getServerStatus":  {0, 0, (*Protocol).xmlServerStatus},
	"getJobStatistics": {3, 2, (*Protocol).xmlJobStatistics},
}

// serveXML answers a call of version 1. The status is always 200, except for a wrong use of HTTP.
func (p *Protocol) serveXML(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/" && r.URL.Path != "/RPC2" {
		http.NotFound(w, r)
		return
	}
	body, done, ok := p.body(w, r)
	if !ok {
		return
	}
	defer p.answering()()
	p.send(w, p.answerXML(body, done))
}

// answerXML returns the reply to a call of version 1. It calls done when the call is carried out.
func (p *Protocol) answerXML(body []byte, done func()) reply {
	defer done()
	call, err := codec.ReadCall(strings.NewReader(string(body)))
	var answer any
	composed := p.compose(call.Method)
	defer composed()
	if err == nil {
		answer, err = p.callXML(&call)
	} else {
		err = &codec.Fault{Code: 1, Text: "the call cannot be read: " + err.Error()}
	}
	done()
	switch {
	case isUnavailable(err):
		return unavailable(err)
	case err != nil:
		p.stats.errors.Add(1)
		return reply{http.StatusOK, "text/xml", codec.AppendFault(nil, faultOf(err))}
	}
	return reply{http.StatusOK, "text/xml", codec.AppendAnswer(nil, answer)}
}

// callXML carries out a call of version 1. It checks the number and the types of the arguments as the reference does,
// and returns a codec.Fault with the reference's text.
func (p *Protocol) callXML(call *codec.Call) (answer any, err error) {
	m, ok := xmlMethods[call.Method]
	if !ok {
		return nil, &codec.Fault{Code: 1, Text: fmt.Sprintf(`<type 'exceptions.Exception'>:method "%s" is not supported`, call.Method)}
	}
	p.stats.requests[call.Method].Add(1)
	if len(call.Params) != m.args { // the reference counts its own object too
		plural := "s"
		if m.args == 0 {
			plural = ""
		}
		return nil, &codec.Fault{Code: 1, Text: fmt.Sprintf("<type 'exceptions.TypeError'>:%s() takes exactly %d argument%s (%d given)",
			call.Method, m.args+1, plural, len(call.Params)+1)}
	}
	texts := make([]string, m.texts)
	for i := range texts {
		if texts[i], ok = call.Params[i].(string); !ok {
			return nil, &codec.Fault{Code: 1, Text: fmt.Sprintf("<type 'exceptions.TypeError'>:argument %d of %s() is no string", i+1, call.Method)}
		}
	}
	if call.Method == addJobMethod {
		call.Params[2] = p.define(texts[2])
	}
	if do := siteXMLMethods[call.Method]; do != nil && p.site != nil {
		return do(p, call.Params, texts)
	}
	do := func() (err error) {
		answer, err = m.do(p, call.Params, texts)
		return err
	}
	if longMethods[call.Method] { // takes a turn only to copy what it lists
		return answer, do()
	}
	return answer, p.turn(do)
}

// faultOf returns the fault of version 1 for an error. Where the reference's text is known, it is the same, since
// clients may look for it.
func faultOf(err error) *codec.Fault {
	var fault *codec.Fault
	var missing *missingError
	var taken *takenError
	text := "<class 'kts46.server.scheduler.SchedulerException'>:" + err.Error()
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.As(err, &missing):
		text = `<type 'exceptions.KeyError'>:"` + missing.Error() + `"`
	case errors.As(err, &taken):
		text = "<class 'kts46.mongodb.StorageException'>:" + taken.Error()
	case errors.Is(err, errNoTask):
		text = "<class 'kts46.server.scheduler.SchedulerException'>:There is no current tasks for specified worker id."
	}
	return &codec.Fault{Code: 1, Text: text}
}

// xmlRunJob starts a job. A job that runs or is done stays as it is.
func (p *Protocol) xmlRunJob(_ []any, s []string) (any, error) {
	j, err := p.job(s[0], s[1])
	if err != nil {
		return nil, err
	}
	if err := p.run(j, v1End); err != errDone && err != errDuplicate {
		return nil, err
	}
	return nil, nil
}

// xmlGetJob reserves the first task in line for a worker. Before that it puts a task that the worker still holds at the
// end of the line.
func (p *Protocol) xmlGetJob(_ []any, s []string) (any, error) {
	if err := checkName("worker", s[0]); err != nil {
		return nil, err
	}
	if t, err := p.held(s[0]); err == nil {
		p.requeue(t, false)
	}
	t, err := p.reserve(s[0], v1Kinds, secondUnit, p.accepting())
	if t == nil {
		return nil, err
	}
	p.decide(t, 1)
	return codec.Struct{
		{Name: "project", Value: t.job.project.name},
		{Name: "lastUpdate", Value: dateTime(t)},
		{Name: "job", Value: t.job.name},
		{Name: "type", Value: t.kind.String()},
		{Name: "timeout", Value: p.timeoutV1()},
	}, nil
}

// timeoutV1 returns the report interval in the unit of version 1, rounded up.
func (p *Protocol) timeoutV1() int64 {
	unit := time.Second
	if p.o.TimeoutUnit == milliseconds {
		unit = time.Millisecond
	}
	return int64((p.o.Timeout + unit - 1) / unit)
}

func dateTime(t *task) codec.DateTime {
	return codec.NewDateTime(time.UnixMilli(t.revision.Number))
}

// reporting returns the task that a report is about.
func (p *Protocol) reporting(args []any, s []string) (*task, error) {
	t, err := p.held(s[0])
	if err == nil && !matches(t, args[2]) {
		err = mismatch(args[2], time.UnixMilli(t.revision.Number).UTC())
	}
	return t, err
}

// xmlReportStatus answers reportStatus of a worker: "working" renews the task, "abort" requeues it and "finish" ends
// it.
func (p *Protocol) xmlReportStatus(args []any, s []string) (any, error) {
	t, err := p.reporting(args, s)
	if err != nil {
		return nil, err
	}
	switch args[1] {
	case "working":
		p.touch(t, secondUnit)
		return dateTime(t), nil
	case "abort":
		p.requeue(t, false)
		return nil, nil
	case "finished":
		p.decide(t, 1)
		return nil, p.finish(t)
	}
	return nil, fmt.Errorf("the state %v is none of working, abort, finished", args[1])
}

// mismatch returns the reference's error for a report with another last update than the task has. A worker without one
// sends nil.
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

// matches reports whether a dateTime equals a task's last update to the second, the precision of version 1.
func matches(t *task, arg any) bool {
	d, ok := arg.(codec.DateTime)
	if !ok {
		return false
	}
	at, ok := d.Time()
	return ok && at.Unix() == time.UnixMilli(t.revision.Number).Unix()
}

func (p *Protocol) xmlRestartTask(args []any, s []string) (any, error) {
	t, err := p.held(s[0])
	if err != nil || !matches(t, args[1]) {
		return false, nil
	}
	p.requeue(t, false)
	return true, nil
}

func (p *Protocol) xmlNewJobID(_ []any, s []string) (any, error) {
	of, err := p.project(s[0])
	if err != nil {
		return nil, err
	}
	of.lastID++
	p.put(of.document())
	return of.lastID, nil
}

func (p *Protocol) xmlJobStatus(_ []any, s []string) (any, error) {
	j, err := p.job(s[0], s[1])
	if err != nil {
		return nil, err
	}
	return jobStatus(s[0], s[1], j.steps(), j.total), nil
}

// xmlJobStatistics returns the statistics that the original gives a new job, because workers do not send their results
// here. An unknown project or job has none.
func (p *Protocol) xmlJobStatistics(args []any, s []string) (any, error) {
	j, err := p.job(s[0], s[1])
	if err != nil {
		return codec.Struct{}, nil //nolint:nilerr // the original hides it too
	}
	idle := codec.Struct{}
	if args[2] != true { // the caller does not ask for values
		idle = codec.Struct{{Name: "values", Value: nil}}
	}
	return codec.Struct{
		{Name: "average", Value: nil}, {Name: "stdeviation", Value: nil}, {Name: "averageSpeed", Value: nil}, {Name: "idleTimes", Value: idle},
		{Name: "thoughput", Value: []any{}}, // the spelling of version 1
		{Name: "throughput", Value: []any{}}, {Name: "finished", Value: j.progress.Finished},
	}, nil
}
