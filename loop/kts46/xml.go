package kts46

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	codec "treadle/codec/kts46"
)

// greeting is the answer to hello, which clients use as a probe.
const greeting = "Hello! This is Treadle, a scheduler of kts46 simulations."

// xmlMethod is a method of version 1: its number of arguments, how many of the first must be strings, and its
// functions.
type xmlMethod struct {
	args, texts int
	do          xmlFunc // on the registry; in a turn, unless the method is one of longMethods
	site        xmlFunc // with the site's MongoDB, outside turns; nil: do
}

type xmlFunc func(p *Protocol, args []any, texts []string) (any, error)

// addJobMethod is the method whose last argument is parsed before its turn.
const addJobMethod = "addJob"

var xmlMethods = map[string]xmlMethod{
	"hello":            {0, 0, (*Protocol).xmlHello, nil},
	"runJob":           {2, 2, (*Protocol).xmlRunJob, (*Protocol).mongoRunJob},
	"getJob":           {1, 1, (*Protocol).xmlGetJob, nil},
	"reportStatus":     {3, 1, (*Protocol).xmlReportStatus, (*Protocol).mongoReportStatus},
	"getCurrentTasks":  {0, 0, (*Protocol).xmlCurrentTasks, nil},
	"restartTask":      {2, 1, (*Protocol).xmlRestartTask, nil},
	"createProject":    {1, 1, (*Protocol).xmlCreateProject, (*Protocol).mongoCreateProject},
	"projectExists":    {1, 1, (*Protocol).xmlProjectExists, (*Protocol).mongoProjectExists},
	"deleteProject":    {1, 1, (*Protocol).xmlDeleteProject, (*Protocol).mongoDeleteProject},
	addJobMethod:       {3, 3, (*Protocol).xmlAddJob, (*Protocol).mongoAddJob},
	"jobExists":        {2, 2, (*Protocol).xmlJobExists, (*Protocol).mongoJobExists},
	"deleteJob":        {2, 2, (*Protocol).xmlDeleteJob, (*Protocol).mongoDeleteJob},
	"getNewJobId":      {1, 1, (*Protocol).xmlNewJobID, (*Protocol).mongoNewJobID},
	"getJobStatus":     {2, 2, (*Protocol).xmlJobStatus, (*Protocol).mongoJobStatus},
	"getJobsList":      {1, 1, (*Protocol).xmlJobsList, (*Protocol).mongoJobsList},
	"getProjectStatus": {1, 1, (*Protocol).xmlProjectStatus, (*Protocol).mongoProjectStatus},
	"getServerStatus":  {0, 0, (*Protocol).xmlServerStatus, (*Protocol).mongoServerStatus},
	"getJobStatistics": {3, 2, (*Protocol).xmlJobStatistics, (*Protocol).mongoJobStatistics},
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
		return p.answerErrorXML(err)
	}
	return reply{http.StatusOK, "text/xml", codec.AppendAnswer(nil, answer)}
}

// answerErrorXML returns the reply to a call of version 1 that is wrong, and counts it.
func (p *Protocol) answerErrorXML(err error) reply {
	p.stats.errors.Add(1)
	return reply{http.StatusOK, "text/xml", codec.AppendFault(nil, faultOf(err))}
}

// callXML carries out a call of version 1. It checks the number and the types of the arguments as the reference does,
// and returns a codec.Fault with the reference's text.
func (p *Protocol) callXML(call *codec.Call) (any, error) {
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
	if m.site != nil && p.site != nil {
		return m.site(p, call.Params, texts)
	}
	return p.onRegistry(call.Method, func() (any, error) { return m.do(p, call.Params, texts) })
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

func (p *Protocol) xmlHello([]any, []string) (any, error) { return greeting, nil }

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
	p.bindVersion(t, 1)
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

// xmlReportStatus answers reportStatus of a worker: "working" renews the task, "abort" requeues it and "finished" ends
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
		p.bindVersion(t, 1)
		return nil, p.finish(t)
	}
	return nil, fmt.Errorf("the state %v is none of working, abort, finished", args[1])
}

// xmlCurrentTasks answers getCurrentTasks: the tasks that workers hold.
func (p *Protocol) xmlCurrentTasks([]any, []string) (any, error) {
	held, err := p.current()
	all := []any{}
	for i := range held {
		t := &held[i]
		all = append(all, codec.Struct{
			{Name: "project", Value: t.job.project.name},
			{Name: "workerId", Value: t.holder.id},
			{Name: "job", Value: t.job.name},
			{Name: "lastUpdate", Value: dateTime(&t.task)},
		})
	}
	return all, err
}

func (p *Protocol) xmlRestartTask(args []any, s []string) (any, error) {
	t, err := p.held(s[0])
	if err != nil || !matches(t, args[1]) {
		return false, nil
	}
	p.requeue(t, false)
	return true, nil
}

func (p *Protocol) xmlCreateProject(_ []any, s []string) (any, error) {
	return nil, p.createProject(s[0])
}

func (p *Protocol) xmlProjectExists(_ []any, s []string) (any, error) {
	return p.projects[s[0]] != nil, nil
}

func (p *Protocol) xmlDeleteProject(_ []any, s []string) (any, error) {
	return nil, p.deleteProject(s[0])
}

func (p *Protocol) xmlAddJob(args []any, s []string) (any, error) {
	return nil, p.addJob(s[0], s[1], args[2].(*parsedDefinition))
}

func (p *Protocol) xmlJobExists(_ []any, s []string) (any, error) {
	found, err := p.project(s[0])
	if err != nil {
		return nil, err
	}
	return found.jobs[s[1]] != nil, nil
}

func (p *Protocol) xmlDeleteJob(_ []any, s []string) (any, error) {
	return nil, p.deleteJob(s[0], s[1])
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

// jobStatus returns the progress of a job in the form of getJobStatus.
func jobStatus(project, name string, done, total int64) string {
	return fmt.Sprintf("%s.%s: %.4g (%d/%d).", project, name, fraction(done, total), done, total)
}

// fraction returns the done part of a job, from 0 to 1.
func fraction(done, total int64) float64 {
	if total <= 0 {
		return 1
	}
	return math.Min(float64(done)/float64(total), 1)
}

func (p *Protocol) xmlJobsList(_ []any, s []string) (any, error) {
	l, err := p.list(s[0])
	all := []any{}
	for _, j := range l.jobs {
		all = append(all, j.name)
	}
	return all, err
}

func (p *Protocol) xmlProjectStatus(_ []any, s []string) (any, error) {
	l, err := p.list(s[0])
	return l.appendStatus([]any{}), err
}

// appendStatus appends the jobs of a project, or one entry that says that it has none. The original of January 2011 has
// total, later ones totalSteps and the four flags.
func (s projectState) appendStatus(all []any) []any {
	for _, j := range s.jobs {
		all = append(all, codec.Struct{
			{Name: "project", Value: s.name}, {Name: "name", Value: j.name},
			{Name: "done", Value: j.done}, {Name: "total", Value: j.total}, {Name: "totalSteps", Value: float64(j.total)},
			{Name: "basicStatistics", Value: j.doneStatistics.has(basicStatistics)}, {Name: "idleTimes", Value: j.doneStatistics.has(idleTimes)},
			{Name: "throughput", Value: j.doneStatistics.has(throughput)}, {Name: "fullStatistics", Value: j.finished},
		})
	}
	if len(s.jobs) == 0 {
		all = append(all, codec.Struct{{Name: "project", Value: s.name}, {Name: "visible", Value: false}})
	}
	return all
}

func (p *Protocol) xmlServerStatus([]any, []string) (any, error) {
	projects, err := p.listAll(func() {})
	all := []any{}
	for _, l := range projects {
		all = l.appendStatus(all)
	}
	return all, err
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
