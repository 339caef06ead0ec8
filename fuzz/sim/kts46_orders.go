//go:build invariants

package sim

import (
	"fmt"
	"maps"

	"treadle/codec/kts46"
)

// ktsRestarted notes a supervisor's call.
func (l *Ledger) ktsRestarted(f *ktsCall) {
	worker := ktsWorkerOf(f)
	var stamp string
	if f.v2 {
		task := f.args[0].([]any)[0].(map[string]string)
		stamp = task["sig"]
		_, _ = fmt.Sscanf(task["id"], "w%d", &worker)
	} else {
		stamp = string(f.args[1].(kts46.DateTime))
	}
	j, t, _ := l.kts.held(worker)
	restarted := t != nil && ktsStampOf(t.revision, f.v2).text == stamp
	if restarted {
		l.kts.changes++
		l.kts.requeue(j, t, false)
	}
	f.want = fmt.Sprint(restarted)
	if f.v2 {
		f.want = map[bool]string{false: `{"restarted":0}`, true: `{"restarted":1}`}[restarted]
	}
}

// ktsOrdered notes a user's call.
func (l *Ledger) ktsOrdered(f *ktsCall) {
	b := l.kts
	if l.full && (f.method == "createProject" || f.method == "addJob") {
		f.want = ktsRefused
		return
	}
	project, key := fmt.Sprint(f.args[0]), ""
	if len(f.args) > 1 {
		key = fmt.Sprintf("%v/%v", f.args[0], f.args[1])
	}
	_, there := b.projects[project]
	j := b.jobs[key]
	f.want = ktsRefused
	switch {
	case f.method == "createProject" && !there:
		b.projects[project] = 0
		f.want = fmt.Sprint(nil)
	case f.method == "createProject" || !there && !f.v2:
		return
	case f.method == "deleteProject":
		delete(b.projects, project)
		maps.DeleteFunc(b.jobs, func(_ string, j *ktsJob) bool { return j.project == project })
		f.want = fmt.Sprint(nil)
	case f.method == "getNewJobId":
		b.projects[project]++
		f.want = fmt.Sprint(b.projects[project])
	case f.method == "addJob" && j == nil:
		j = &ktsJob{project: project, name: fmt.Sprint(f.args[1])}
		var duration int64
		_, _ = fmt.Sscanf(f.args[2].(string), "simulationParameters:\n  duration: %d\n  stepDuration: 0.5\n  batchLength: %d\n", &duration, &j.batch)
		j.total = 2 * duration
		b.jobs[key] = j
		f.want = fmt.Sprint(nil)
	case f.method == "addJob":
		return
	case j == nil:
		if f.v2 {
			f.want = map[string]string{"addTask": ktsNoJob, "abortTask": "0"}[f.method]
		}
		return
	default:
		if !l.ktsOrderedJob(f, j, key) {
			return
		}
	}
	b.changes++
}

// ktsOrderedJob notes a user's call about a job that exists; false: it changes nothing.
func (l *Ledger) ktsOrderedJob(f *ktsCall, j *ktsJob, key string) bool {
	f.want = fmt.Sprint(nil)
	switch f.method {
	case "deleteJob":
		delete(l.kts.jobs, key)
		return true
	case "abortTask":
		ran := j.running
		f.want = fmt.Sprint(j.abort())
		return ran
	}
	if l.full && !j.running && !j.finished {
		f.want = ktsRefused
		if f.v2 {
			f.want = `"the disk is nearly full, see --min-free"`
		}
		return false
	}
	if f.method == "runJob" {
		return l.kts.run(j, false)
	}
	f.want = ktsSuccess
	if l.kts.run(j, true) {
		return true
	}
	f.want = `{"type":"AlreadyDone"}`
	for k := range j.tasks {
		if j.running && j.tasks[k].there {
			f.want = fmt.Sprintf(`{"type":"DuplicateTask","taskType":"%s"}`, ktsKinds[k])
			break
		}
	}
	return false
}
