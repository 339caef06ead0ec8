//go:build invariants

package sim

import (
	"fmt"
	"maps"

	"treadle/codec/kts46"
)

// ktsRestarted notes a supervisor's call.
func (l *Ledger) ktsRestarted(call *ktsCall) {
	worker := ktsWorkerOf(call)
	var stamp string
	if call.v2 {
		task := call.args[0].([]any)[0].(map[string]string)
		stamp = task["sig"]
		_, _ = fmt.Sscanf(task["id"], "w%d", &worker)
	} else {
		stamp = string(call.args[1].(kts46.DateTime))
	}
	j, t, _ := l.kts.held(worker)
	restarted := t != nil && ktsStampOf(t.revision, call.v2).text == stamp
	if restarted {
		l.kts.changes++
		l.kts.requeue(j, t, false)
	}
	call.want = fmt.Sprint(restarted)
	if call.v2 {
		call.want = map[bool]string{false: `{"restarted":0}`, true: `{"restarted":1}`}[restarted]
	}
}

// ktsOrdered notes a user's call.
func (l *Ledger) ktsOrdered(call *ktsCall) {
	b := l.kts
	if l.full && (call.method == "createProject" || call.method == "addJob") {
		call.want = ktsRefused
		return
	}
	project, key := fmt.Sprint(call.args[0]), ""
	if len(call.args) > 1 {
		key = fmt.Sprintf("%v/%v", call.args[0], call.args[1])
	}
	_, there := b.projects[project]
	j := b.jobs[key]
	call.want = ktsRefused
	switch {
	case call.method == "createProject" && !there:
		b.projects[project] = 0
		call.want = fmt.Sprint(nil)
	case call.method == "createProject" || !there && !call.v2:
		return
	case call.method == "deleteProject":
		delete(b.projects, project)
		maps.DeleteFunc(b.jobs, func(_ string, j *ktsJob) bool { return j.project == project })
		call.want = fmt.Sprint(nil)
	case call.method == "getNewJobId":
		b.projects[project]++
		call.want = fmt.Sprint(b.projects[project])
	case call.method == "addJob" && j == nil:
		j = &ktsJob{project: project, name: fmt.Sprint(call.args[1])}
		var duration int64
		_, _ = fmt.Sscanf(call.args[2].(string), "simulationParameters:\n  duration: %d\n  stepDuration: 0.5\n  batchLength: %d\n", &duration, &j.batch)
		j.total = 2 * duration
		b.jobs[key] = j
		call.want = fmt.Sprint(nil)
	case call.method == "addJob":
		return
	case j == nil:
		if call.v2 {
			call.want = map[string]string{"addTask": ktsNoJob, "abortTask": "0"}[call.method]
		}
		return
	default:
		if !l.ktsOrderedJob(call, j, key) {
			return
		}
	}
	b.changes++
}

// ktsOrderedJob notes a user's call about a job that exists; false: it changes nothing.
func (l *Ledger) ktsOrderedJob(call *ktsCall, j *ktsJob, key string) bool {
	call.want = fmt.Sprint(nil)
	switch call.method {
	case "deleteJob":
		delete(l.kts.jobs, key)
		return true
	case "abortTask":
		ran := j.running
		call.want = fmt.Sprint(j.abort())
		return ran
	}
	if l.full && !j.running && !j.finished {
		call.want = ktsRefused
		if call.v2 {
			call.want = `"the disk is nearly full, see --min-free"`
		}
		return false
	}
	if call.method == "runJob" {
		return l.kts.run(j, false)
	}
	call.want = ktsSuccess
	if l.kts.run(j, true) {
		return true
	}
	call.want = `{"type":"AlreadyDone"}`
	for k := range j.tasks {
		if j.running && j.tasks[k].there {
			call.want = fmt.Sprintf(`{"type":"DuplicateTask","taskType":"%s"}`, ktsKinds[k])
			break
		}
	}
	return false
}
