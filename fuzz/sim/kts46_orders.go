//go:build invariants

package sim

import (
	"fmt"
	"maps"

	"treadle/codec/kts46"
)

// kts46Restarted notes a supervisor's call.
func (l *Ledger) kts46Restarted(call *kts46Call) {
	worker := kts46WorkerOf(call)
	var stamp string
	if call.v2 {
		task := call.args[0].([]any)[0].(map[string]string)
		stamp = task["sig"]
		_, _ = fmt.Sscanf(task["id"], "w%d", &worker)
	} else {
		stamp = string(call.args[1].(kts46.DateTime))
	}
	j, t, _ := l.kts.held(worker)
	restarted := t != nil && kts46StampOf(t.revision, call.v2).text == stamp
	if restarted {
		l.kts.changes++
		l.kts.requeue(j, t, false)
	}
	call.want = fmt.Sprint(restarted)
	if call.v2 {
		call.want = map[bool]string{false: `{"restarted":0}`, true: `{"restarted":1}`}[restarted]
	}
}

// kts46Ordered notes a user's call.
func (l *Ledger) kts46Ordered(call *kts46Call) {
	b := l.kts
	if l.full && (call.method == "createProject" || call.method == "addJob") {
		call.want = kts46Refused
		return
	}
	project, key := fmt.Sprint(call.args[0]), ""
	if len(call.args) > 1 {
		key = fmt.Sprintf("%v/%v", call.args[0], call.args[1])
	}
	_, there := b.projects[project]
	j := b.jobs[key]
	call.want = kts46Refused
	switch {
	case call.method == "createProject" && !there:
		b.projects[project] = 0
		call.want = fmt.Sprint(nil)
	case call.method == "createProject" || !there && !call.v2:
		return
	case call.method == "deleteProject":
		delete(b.projects, project)
		maps.DeleteFunc(b.jobs, func(_ string, j *kts46Job) bool { return j.project == project })
		call.want = fmt.Sprint(nil)
	case call.method == "getNewJobId":
		b.projects[project]++
		call.want = fmt.Sprint(b.projects[project])
	case call.method == "addJob" && j == nil:
		j = &kts46Job{project: project, name: fmt.Sprint(call.args[1])}
		var duration int64
		_, _ = fmt.Sscanf(call.args[2].(string), "simulationParameters:\n  duration: %d\n  stepDuration: 0.5\n  batchLength: %d\n", &duration, &j.batch)
		j.total = 2 * duration
		b.jobs[key] = j
		call.want = fmt.Sprint(nil)
	case call.method == "addJob":
		return
	case j == nil:
		if call.v2 {
			call.want = map[string]string{"addTask": kts46NoJob, "abortTask": "0"}[call.method]
		}
		return
	default:
		if !l.kts46OrderedJob(call, j, key) {
			return
		}
	}
	b.changes++
}

// kts46OrderedJob notes a user's call about a job that exists; false: it changes nothing.
func (l *Ledger) kts46OrderedJob(call *kts46Call, j *kts46Job, key string) bool {
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
		call.want = kts46Refused
		if call.v2 {
			call.want = `"the disk is nearly full, see --min-free"`
		}
		return false
	}
	if call.method == "runJob" {
		return l.kts.run(j, false)
	}
	call.want = kts46Success
	if l.kts.run(j, true) {
		return true
	}
	call.want = `{"type":"AlreadyDone"}`
	for k := range j.tasks {
		if j.running && j.tasks[k].there {
			call.want = fmt.Sprintf(`{"type":"DuplicateTask","taskType":"%s"}`, kts46Kinds[k])
			break
		}
	}
	return false
}
