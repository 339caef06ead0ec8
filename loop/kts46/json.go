package kts46

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	codec "treadle/codec/kts46"
)

// jsonMethod is a method of version 2: its functions.
type jsonMethod struct {
	do    jsonFunc // on the registry; in a turn, unless the method is one of longMethods
	mongo jsonFunc // with the site's MongoDB, outside turns; nil: do
}

type jsonFunc func(*Protocol, *codec.Request) (any, error)

var jsonMethods = map[string]jsonMethod{
	"hello":           {(*Protocol).jsonHello, nil},
	"addTask":         {(*Protocol).jsonAddTask, (*Protocol).mongoAddTask},
	"abortTask":       {(*Protocol).jsonAbortTask, nil},
	"getTask":         {(*Protocol).jsonGetTask, nil},
	"acceptTask":      {(*Protocol).jsonAcceptTask, nil},
	"rejectTask":      {(*Protocol).jsonRejectTask, nil},
	"taskInProgress":  {(*Protocol).jsonTaskInProgress, nil},
	"taskFinished":    {(*Protocol).jsonTaskFinished, (*Protocol).mongoTaskFinished},
	"getCurrentTasks": {(*Protocol).jsonCurrentTasks, nil},
	"restartTasks":    {(*Protocol).jsonRestartTasks, nil},
}

// success is the result of a method that returns nothing.
const success = "success"

// serveJSON answers a request of version 2, and any GET with the server's status.
func (p *Protocol) serveJSON(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		defer p.answering()()
		p.sendStatus(w)
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/jsonrpc" {
		p.send(w, reply{http.StatusNotFound, "text/plain", []byte("Unknown path!\n")})
		return
	}
	body, done, ok := p.body(w, r)
	if !ok {
		return
	}
	defer p.answering()()
	p.send(w, p.answerJSON(body, done))
}

// answerJSON returns the reply to a call of version 2. It calls done when the call is carried out.
func (p *Protocol) answerJSON(body []byte, done func()) reply {
	defer done()
	request, err := codec.ParseRequest(body)
	switch {
	case err != nil:
		return p.answerErrorJSON(json.RawMessage("false"), "Runtime error")
	case request.Null:
		return reply{http.StatusOK, typeJSON, nil}
	}
	composed := p.compose(request.Method)
	defer composed()
	result, err := p.callJSON(&request)
	done()
	return p.encodeJSON(request.ID, result, err)
}

// encodeJSON encodes the reply to a call of version 2. A call without an id is answered with an empty body.
func (p *Protocol) encodeJSON(id json.RawMessage, result any, err error) reply {
	var why *codec.Error
	switch {
	case isUnavailable(err):
		return unavailable(err)
	case errors.As(err, &why):
		return p.answerErrorJSON(id, why)
	case err != nil:
		return p.answerErrorJSON(id, err.Error())
	}
	r := reply{status: http.StatusOK, kind: typeJSON}
	if id != nil {
		r.body = codec.AppendResult(nil, id, result)
	}
	return r
}

// answerErrorJSON returns the reply to a call of version 2 that is wrong, and counts it.
func (p *Protocol) answerErrorJSON(id json.RawMessage, why any) reply {
	p.stats.errors.Add(1)
	r := reply{status: http.StatusInternalServerError, kind: typeJSON}
	if id != nil {
		r.body = codec.AppendError(nil, id, why)
	}
	return r
}

// callJSON carries out a call of version 2. It returns what the reference returns, or an error with the reference's
// text.
func (p *Protocol) callJSON(r *codec.Request) (any, error) {
	m, ok := jsonMethods[r.Method]
	if !ok {
		return nil, errors.New("Invalid request method") //nolint:staticcheck // the reference's words
	}
	p.stats.requests[r.Method].Add(1)
	if m.mongo != nil && p.site != nil {
		return m.mongo(p, r)
	}
	return p.onRegistry(r.Method, func() (any, error) { return m.do(p, r) })
}

// errNoJob reports that a job or its project does not exist.
var errNoJob error = &codec.Error{Type: "JobNotFound"}

func wrongType(argument string) error {
	return &codec.Error{Type: "InvalidArgumentType", ArgumentName: argument}
}

// textParam reads a string parameter.
func textParam(r *codec.Request, i int, name string) (text string, err error) {
	if !readText(r.Param(i), &text) {
		return "", wrongType(name)
	}
	return text, nil
}

// readText reads a JSON string. It returns false for any other value.
func readText(raw json.RawMessage, text *string) bool {
	return len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, text) == nil
}

// jobNames reads the parameters that name a job.
func jobNames(r *codec.Request) (project, name string, err error) {
	if project, err = textParam(r, 0, "projectName"); err == nil {
		name, err = textParam(r, 1, "jobName")
	}
	return project, name, err
}

// jobParam finds the job that the parameters name.
func (p *Protocol) jobParam(r *codec.Request) (*job, error) {
	project, name, err := jobNames(r)
	if err != nil {
		return nil, err
	}
	j, err := p.job(project, name)
	if err != nil {
		return nil, errNoJob
	}
	return j, nil
}

func (p *Protocol) jsonHello(*codec.Request) (any, error) { return greeting, nil }

func (p *Protocol) jsonAddTask(r *codec.Request) (any, error) {
	j, err := p.jobParam(r)
	if err != nil {
		return nil, err
	}
	return started(j, p.run(j, v2End))
}

// started returns the answer to addTask for the error of run.
func started(j *job, err error) (any, error) {
	switch err {
	case nil:
		return success, nil
	case errDone:
		return nil, &codec.Error{Type: "AlreadyDone"}
	case errDuplicate:
		duplicate := &codec.Error{Type: "DuplicateTask"}
		for k := range kindCount {
			if j.neededKinds().has(k) {
				duplicate.TaskType = k.String()
				break
			}
		}
		return nil, duplicate
	default:
		return nil, err
	}
}

// jsonAbortTask stops a job. A job that does not exist has no tasks to stop.
func (p *Protocol) jsonAbortTask(r *codec.Request) (any, error) {
	j, err := p.jobParam(r)
	switch {
	case err == errNoJob:
		return 0, nil
	case err != nil:
		return nil, err
	}
	return p.abort(j), nil
}

// kindsParam reads a list of task kinds.
func kindsParam(raw json.RawMessage) (kinds kindSet, err error) {
	if raw == nil {
		return 0, nil
	}
	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return 0, wrongType("taskTypes")
	}
	for i, e := range list {
		var name string
		argument := fmt.Sprintf("taskTypes[%d]", i)
		if !readText(e, &name) {
			return 0, wrongType(argument)
		}
		found := false
		for k := range kindCount {
			if v2Kinds.has(k) && k.String() == name {
				kinds |= 1 << k
				found = true
			}
		}
		if !found {
			return 0, &codec.Error{Type: "UnknownTaskType", TaskType: name, ArgumentName: argument}
		}
	}
	return kinds, nil
}

// taskJSON is a task as version 2 shows it. Only simulations have the fields below Type.
type taskJSON struct {
	Project string `json:"project"`
	Job     string `json:"job"`
	Type    string `json:"type"`

	StartState   *int64   `json:"startState,omitempty"`
	Duration     *float64 `json:"duration,omitempty"`
	BatchLength  *int64   `json:"batchLength,omitempty"`
	StepDuration *float64 `json:"stepDuration,omitempty"`

	Empty                bool       `json:"empty"`
	Databases            []Database `json:"databases"`
	LastUpdate           string     `json:"lastUpdate"`
	StartTime            string     `json:"startTime"`
	Sig                  string     `json:"sig"`
	NotificationInterval int64      `json:"notificationInterval"`
}

// taskJSON returns a held task in the form of version 2.
func (p *Protocol) taskJSON(t heldTask) *taskJSON {
	j := t.job
	v := &taskJSON{
		Project: j.project.name, Job: j.name, Type: t.kind.String(), Databases: p.databases,
		LastUpdate: sigOf(&t.task), StartTime: codec.Sig(time.UnixMilli(t.started)), Sig: sigOf(&t.task),
		NotificationInterval: p.o.Timeout.Milliseconds(),
	}
	if batchKinds.has(t.kind) {
		v.StartState, v.Duration, v.BatchLength, v.StepDuration = &t.done, &j.duration, &j.batch, &j.step
	}
	return v
}

func sigOf(t *task) string { return codec.Sig(time.UnixMilli(t.revision.Number)) }

// jsonGetTask reserves a task for a worker, which has to accept it.
func (p *Protocol) jsonGetTask(r *codec.Request) (any, error) {
	id, err := textParam(r, 0, "workerId")
	if err != nil {
		return nil, err
	}
	kinds, err := kindsParam(r.Param(1))
	if err != nil {
		return nil, err
	}
	if checkName("worker", id) != nil {
		return nil, wrongType("workerId")
	}
	if _, err := p.held(id); err == nil {
		return nil, &codec.Error{Type: "WorkerHasTask"}
	}
	t, err := p.reserve(id, kinds, millisecondUnit)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return struct {
			Empty bool `json:"empty"`
		}{true}, nil
	}
	return p.taskJSON(t.held()), nil
}

// heldParam reads the parameters by which a worker proves that it holds a task, accepted or not.
func (p *Protocol) heldParam(r *codec.Request, accepted bool) (*task, error) {
	id, err := textParam(r, 0, "workerId")
	if err != nil {
		return nil, err
	}
	sig, err := textParam(r, 1, "sig")
	if err != nil {
		return nil, err
	}
	t, err := p.held(id)
	if err != nil || t.accepted != accepted {
		return nil, &codec.Error{Type: "InvalidWorkerId"}
	}
	if sig != sigOf(t) {
		return nil, &codec.Error{Type: "InvalidSignature"}
	}
	return t, nil
}

// newSig is the result of a method that changed a task's signature.
func newSig(t *task) any {
	return struct {
		Sig string `json:"sig"`
	}{sigOf(t)}
}

func (p *Protocol) jsonAcceptTask(r *codec.Request) (any, error) {
	t, err := p.heldParam(r, false)
	if err != nil {
		return nil, err
	}
	p.touch(t, millisecondUnit, p.accepting())
	t.accepted = true
	p.bindVersion(t, 2)
	return newSig(t), nil
}

func (p *Protocol) jsonRejectTask(r *codec.Request) (any, error) {
	t, err := p.heldParam(r, false)
	if err != nil {
		return nil, err
	}
	p.requeue(t, true)
	return success, nil
}

func (p *Protocol) jsonTaskInProgress(r *codec.Request) (any, error) {
	t, err := p.heldParam(r, true)
	if err != nil {
		return nil, err
	}
	p.touch(t, millisecondUnit)
	return newSig(t), nil
}

func (p *Protocol) jsonTaskFinished(r *codec.Request) (any, error) {
	t, err := p.heldParam(r, true)
	if err != nil {
		return nil, err
	}
	p.bindVersion(t, 2)
	if err := p.finish(t); err != nil {
		return nil, err
	}
	return success, nil
}

// heldJSON names a held task by its worker and signature.
type heldJSON struct {
	ID  string `json:"id"`
	Sig string `json:"sig"`
}

func (p *Protocol) jsonCurrentTasks(*codec.Request) (any, error) {
	held, err := p.current()
	all := []heldJSON{}
	for i := range held {
		all = append(all, heldJSON{held[i].holder.id, sigOf(&held[i].task)})
	}
	return all, err
}

// jsonRestartTasks queues tasks again, except those that were updated meanwhile.
func (p *Protocol) jsonRestartTasks(r *codec.Request) (any, error) {
	raw := r.Param(0)
	var list []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return nil, wrongType("tasks")
	}
	named := make([]heldJSON, len(list))
	for i, e := range list {
		var members map[string]json.RawMessage
		if json.Unmarshal(e, &members) != nil || !readText(members["id"], &named[i].ID) || !readText(members["sig"], &named[i].Sig) {
			return nil, wrongType(fmt.Sprintf("tasks[%d]", i))
		}
	}
	restarted := 0
	for _, n := range named {
		if t, err := p.held(n.ID); err == nil && n.Sig == sigOf(t) {
			p.requeue(t, false)
			restarted++
		}
	}
	return struct {
		Restarted int `json:"restarted"`
	}{restarted}, nil
}
