package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"treadle/codec/kts46"
)

// ktsRequests are the methods of version 2, each in a turn if it is not long.
var ktsRequests = map[string]func(*ktsHub, *kts46.Request) (any, error){
	"hello":           func(*ktsHub, *kts46.Request) (any, error) { return ktsGreeting, nil },
	"addTask":         (*ktsHub).jsonAddTask,
	"abortTask":       (*ktsHub).jsonAbortTask,
	"getTask":         (*ktsHub).jsonGetTask,
	"acceptTask":      (*ktsHub).jsonAcceptTask,
	"rejectTask":      (*ktsHub).jsonRejectTask,
	"taskInProgress":  (*ktsHub).jsonTaskInProgress,
	"taskFinished":    (*ktsHub).jsonTaskFinished,
	"getCurrentTasks": (*ktsHub).jsonCurrentTasks,
	"restartTasks":    (*ktsHub).jsonRestartTasks,
}

// ktsSuccess is the result of what has none.
const ktsSuccess = "success"

// serveJSON answers a request of version 2, and any GET with what goes on.
func (h *ktsHub) serveJSON(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		defer h.answering()()
		h.sendStatus(w)
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/jsonrpc" {
		h.send(w, http.StatusNotFound, "text/plain", []byte("Unknown path!\n"))
		return
	}
	body, heard, ok := h.body(w, r)
	if !ok {
		return
	}
	defer heard()
	defer h.answering()()
	request, err := kts46.ParseRequest(body)
	if err != nil || request.Null {
		heard()
	}
	if err != nil {
		h.stats.refused.Add(1)
		h.send(w, http.StatusInternalServerError, "application/json", kts46.AppendError(nil, json.RawMessage("false"), "Runtime error"))
		return
	}
	if request.Null {
		h.send(w, http.StatusOK, "application/json", nil)
		return
	}
	composed := h.compose(request.Method)
	defer composed()
	result, err := h.callJSON(&request)
	heard()
	if err != nil || request.ID == nil {
		composed() // nothing long is to be written
	}
	var broken *JournalError
	var why *kts46.Error
	switch {
	case err == nil && request.ID == nil:
		h.send(w, http.StatusOK, "application/json", nil)
		return
	case err == nil:
		body := kts46.AppendResult(nil, request.ID, result)
		composed()
		h.send(w, http.StatusOK, "application/json", body)
		return
	case errors.As(err, &broken), errors.Is(err, errKtsStopping):
		h.send(w, http.StatusServiceUnavailable, "text/plain", []byte(err.Error()+"\n"))
		return
	}
	h.stats.refused.Add(1)
	var reply []byte
	switch {
	case request.ID == nil:
	case errors.As(err, &why):
		reply = kts46.AppendError(nil, request.ID, why)
	default:
		reply = kts46.AppendError(nil, request.ID, err.Error())
	}
	h.send(w, http.StatusInternalServerError, "application/json", reply)
}

func (h *ktsHub) callJSON(r *kts46.Request) (result any, err error) {
	do, ok := ktsRequests[r.Method]
	if !ok {
		return nil, errors.New("Invalid request method") //nolint:staticcheck // the reference's words
	}
	h.stats.requests[r.Method].Add(1)
	if do := ktsSiteRequests[r.Method]; do != nil && h.site != nil {
		return do(h, r)
	}
	carry := func() (err error) {
		result, err = do(h, r)
		return err
	}
	if ktsLong[r.Method] { // has a turn only for a look at what there is
		return result, carry()
	}
	return result, h.turn(carry)
}

// errKtsNoJob says that there is no such job, or no such project.
var errKtsNoJob error = &kts46.Error{Type: "JobNotFound"}

func wrongType(argument string) error {
	return &kts46.Error{Type: "InvalidArgumentType", ArgumentName: argument}
}

// textParam reads a parameter that is a string.
func textParam(r *kts46.Request, i int, name string) (text string, err error) {
	if !readText(r.Param(i), &text) {
		return "", wrongType(name)
	}
	return text, nil
}

// readText reads a JSON string; false for anything else.
func readText(raw json.RawMessage, text *string) bool {
	return len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, text) == nil
}

// jobNames reads the parameters that name a job.
func jobNames(r *kts46.Request) (project, name string, err error) {
	if project, err = textParam(r, 0, "projectName"); err == nil {
		name, err = textParam(r, 1, "jobName")
	}
	return project, name, err
}

// jobParam reads the parameters that name a job, and finds it.
func (h *ktsHub) jobParam(r *kts46.Request) (*ktsJob, error) {
	project, name, err := jobNames(r)
	if err != nil {
		return nil, err
	}
	j, err := h.job(project, name)
	if err != nil {
		return nil, errKtsNoJob
	}
	return j, nil
}

func (h *ktsHub) jsonAddTask(r *kts46.Request) (any, error) {
	j, err := h.jobParam(r)
	if err != nil {
		return nil, err
	}
	return started(j, h.run(j, ktsV2End))
}

// started is the answer to addTask when run has returned err.
func started(j *ktsJob, err error) (any, error) {
	switch err {
	case nil:
		return ktsSuccess, nil
	case errKtsDone:
		return nil, &kts46.Error{Type: "AlreadyDone"}
	case errKtsDuplicate:
		duplicate := &kts46.Error{Type: "DuplicateTask"}
		for k := range ktsKinds {
			if j.plan().has(k) {
				duplicate.TaskType = k.String()
				break
			}
		}
		return nil, duplicate
	default:
		return nil, err
	}
}

// jsonAbortTask stops a job. One that does not exist has no tasks either.
func (h *ktsHub) jsonAbortTask(r *kts46.Request) (any, error) {
	j, err := h.jobParam(r)
	switch {
	case err == errKtsNoJob:
		return 0, nil
	case err != nil:
		return nil, err
	}
	return h.abort(j), nil
}

// kindsParam reads a list of kinds of version 2.
func kindsParam(raw json.RawMessage) (kinds ktsSet, err error) {
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
		for k := range ktsKinds {
			if ktsV2.has(k) && k.String() == name {
				kinds |= 1 << k
				found = true
			}
		}
		if !found {
			return 0, &kts46.Error{Type: "UnknownTaskType", TaskType: name, ArgumentName: argument}
		}
	}
	return kinds, nil
}

// ktsTaskJSON is a task as version 2 shows it; what is below Type only a simulation has.
type ktsTaskJSON struct {
	Project string `json:"project"`
	Job     string `json:"job"`
	Type    string `json:"type"`

	StartState   *int64   `json:"startState,omitempty"`
	Duration     *float64 `json:"duration,omitempty"`
	BatchLength  *int64   `json:"batchLength,omitempty"`
	StepDuration *float64 `json:"stepDuration,omitempty"`

	Empty                bool          `json:"empty"`
	Databases            []ktsDatabase `json:"databases"`
	LastUpdate           string        `json:"lastUpdate"`
	StartTime            string        `json:"startTime"`
	Sig                  string        `json:"sig"`
	NotificationInterval int64         `json:"notificationInterval"`
}

func (h *ktsHub) taskJSON(t ktsHolding) *ktsTaskJSON {
	j := t.job
	v := &ktsTaskJSON{
		Project: j.project.name, Job: j.name, Type: t.kind.String(), Databases: h.databases,
		LastUpdate: ktsSig(&t.ktsTask), StartTime: kts46.Sig(time.UnixMilli(t.started)), Sig: ktsSig(&t.ktsTask),
		NotificationInterval: h.server.o.Kts46.Timeout.Milliseconds(),
	}
	if ktsBatches.has(t.kind) {
		v.StartState, v.Duration, v.BatchLength, v.StepDuration = &t.done, &j.duration, &j.batch, &j.step
	}
	return v
}

func ktsSig(t *ktsTask) string { return kts46.Sig(time.UnixMilli(t.lease.Revision)) }

// jsonGetTask hands out a task, which waits for its worker to accept it.
func (h *ktsHub) jsonGetTask(r *kts46.Request) (any, error) {
	id, err := textParam(r, 0, "workerId")
	if err != nil {
		return nil, err
	}
	kinds, err := kindsParam(r.Param(1))
	if err != nil {
		return nil, err
	}
	if checkKtsName("worker", id) != nil {
		return nil, wrongType("workerId")
	}
	if _, err := h.held(id); err == nil {
		return nil, &kts46.Error{Type: "WorkerHasTask"}
	}
	t, err := h.take(id, kinds, ktsMillisecond)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return struct {
			Empty bool `json:"empty"`
		}{true}, nil
	}
	return h.taskJSON(t.holding()), nil
}

// heldParam reads the parameters with which a worker proves that it holds a task, which it
// has accepted or not.
func (h *ktsHub) heldParam(r *kts46.Request, accepted bool) (*ktsTask, error) {
	id, err := textParam(r, 0, "workerId")
	if err != nil {
		return nil, err
	}
	sig, err := textParam(r, 1, "sig")
	if err != nil {
		return nil, err
	}
	t, err := h.held(id)
	if err != nil || t.accepted != accepted {
		return nil, &kts46.Error{Type: "InvalidWorkerId"}
	}
	if sig != ktsSig(t) {
		return nil, &kts46.Error{Type: "InvalidSignature"}
	}
	return t, nil
}

// newSig is the result of what gave a task another signature.
func newSig(t *ktsTask) any {
	return struct {
		Sig string `json:"sig"`
	}{ktsSig(t)}
}

func (h *ktsHub) jsonAcceptTask(r *kts46.Request) (any, error) {
	t, err := h.heldParam(r, false)
	if err != nil {
		return nil, err
	}
	h.touch(t, ktsMillisecond, h.accepting())
	t.accepted = true
	h.decide(t, 2)
	return newSig(t), nil
}

func (h *ktsHub) jsonRejectTask(r *kts46.Request) (any, error) {
	t, err := h.heldParam(r, false)
	if err != nil {
		return nil, err
	}
	h.requeue(t, true)
	return ktsSuccess, nil
}

func (h *ktsHub) jsonTaskInProgress(r *kts46.Request) (any, error) {
	t, err := h.heldParam(r, true)
	if err != nil {
		return nil, err
	}
	h.touch(t, ktsMillisecond)
	return newSig(t), nil
}

func (h *ktsHub) jsonTaskFinished(r *kts46.Request) (any, error) {
	t, err := h.heldParam(r, true)
	if err != nil {
		return nil, err
	}
	h.decide(t, 2)
	if err := h.finish(t); err != nil {
		return nil, err
	}
	return ktsSuccess, nil
}

// jsonRestartTasks queues tasks again, but for those that were updated meanwhile.
func (h *ktsHub) jsonRestartTasks(r *kts46.Request) (any, error) {
	raw := r.Param(0)
	var list []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return nil, wrongType("tasks")
	}
	named := make([]ktsHeld, len(list))
	for i, e := range list {
		var members map[string]json.RawMessage
		if json.Unmarshal(e, &members) != nil || !readText(members["id"], &named[i].ID) || !readText(members["sig"], &named[i].Sig) {
			return nil, wrongType(fmt.Sprintf("tasks[%d]", i))
		}
	}
	restarted := 0
	for _, n := range named {
		if t, err := h.held(n.ID); err == nil && n.Sig == ktsSig(t) {
			h.requeue(t, false)
			restarted++
		}
	}
	return struct {
		Restarted int `json:"restarted"`
	}{restarted}, nil
}
