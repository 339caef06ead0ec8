//go:build invariants

package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"treadle/codec/kts46"
)

// The answers of version 2.
const (
	ktsSuccess     = `"success"`
	ktsNoJob       = `{"type":"JobNotFound"}`
	ktsWrongWorker = `{"type":"InvalidWorkerId"}`
	ktsWrongSig    = `{"type":"InvalidSignature"}`
	ktsEmpty       = `{"empty":true}`
)

// ktsAwaits stands, in the answer that a call must get, for the revision that the server gives the task by that call.
const ktsAwaits = "?"

// ktsLand lets a call arrive.
func (s *Simulator) ktsLand(f *ktsFlight) {
	before := s.ledger.kts.changes
	var given []*ktsTask // one of these is handed out
	switch f.method {
	case "getJob", "getTask":
		given = s.ledger.ktsAsked(f)
	case "reportStatus":
		s.ledger.ktsReported1(f)
	case "acceptTask", "rejectTask", "taskInProgress", "taskFinished":
		s.ledger.ktsReported2(f)
	case "restartTask", "restartTasks":
		s.ledger.ktsRestarted(f)
	case "projectExists", "jobExists", "getJobsList", "getJobStatus", "getCurrentTasks":
		s.ledger.ktsQueried(f)
	default:
		s.ledger.ktsOrdered(f)
	}
	changed := s.ledger.kts.changes > before
	if changed {
		f.change, f.group = s.ledger.kts.changes, s.ledger.group()
	}
	answered, landed := "", false
	s.ktsPost(f.v2, f.method, f.args, func(answer string) {
		if answered = answer; landed {
			s.net.ktsOwed--
			s.ktsAnswered(f, answer)
		}
	})
	if given != nil {
		s.ktsGiven(f, given)
	}
	s.ktsSettled(f.String())
	if _, t, _ := s.ledger.kts.held(ktsWorkerOf(f)); t != nil && strings.Contains(f.want, ktsAwaits) {
		f.want = strings.Replace(f.want, ktsAwaits, ktsStampOf(t.revision, f.v2).text, 1)
	}
	landed = true
	if answered != "" {
		if changed {
			s.trace.Fail("%v is answered before what it changed is on disk", f)
		}
		s.ktsAnswered(f, answered)
	} else {
		s.net.ktsOwed++
	}
}

// ktsAnswered checks an answer.
func (s *Simulator) ktsAnswered(f *ktsFlight, answer string) {
	s.trace.Say("kts46 %v is answered %s", f, answer)
	if answer != f.want {
		s.trace.Fail("%v is answered %s, and must be answered %s", f, answer, f.want)
	}
	if n := s.ledger.disk.groups(); n < f.group {
		s.trace.Fail("%v, of group %d, is answered when %d groups are on disk", f, f.group, n)
	}
	s.ledger.ktsAcked = max(s.ledger.ktsAcked, f.change)
	s.ktsRead(f, answer)
}

// ktsWorkerOf is the number of the worker that makes a call; -1: none.
func ktsWorkerOf(f *ktsFlight) int {
	worker := -1
	if len(f.args) > 0 {
		_, _ = fmt.Sscanf(fmt.Sprint(f.args[0]), "w%d", &worker)
	}
	return worker
}

// ktsAsked notes a worker's request for a task, and returns the tasks: it must get one of them.
func (l *Ledger) ktsAsked(f *ktsFlight) []*ktsTask {
	worker, kinds := ktsWorkerOf(f), ktsDoes[false]
	j, t, _ := l.kts.held(worker)
	if f.v2 {
		if t != nil {
			f.want = `{"type":"WorkerHasTask"}`
			return nil
		}
		kinds = nil
		for _, name := range f.args[1].([]string) {
			kinds = append(kinds, slices.Index(ktsKinds, name))
		}
	} else if t != nil {
		l.kts.changes++
		l.kts.requeue(j, t, false)
	}
	given := l.kts.first(kinds, f.v2)
	if l.stopping {
		given = nil // nothing is handed out
	}
	f.want = fmt.Sprint(nil)
	if f.v2 {
		f.want = ktsEmpty
	}
	if given != nil {
		l.kts.changes++
	}
	return given
}

// ktsGiven finds out which task was handed out, and notes it.
func (s *Simulator) ktsGiven(f *ktsFlight, given []*ktsTask) {
	worker, v := ktsWorkerOf(f), s.ktsLook()
	for _, t := range given {
		queued := *t
		t.holder, t.accepted, t.seen = worker+1, !f.v2, s.server.Now().Mono
		t.before, t.revision = t.revision, 0
		if s.ledger.kts.agrees(v) {
			j, _, k := s.ledger.kts.held(worker)
			if !f.v2 {
				s.ledger.kts.decide(j, k, false)
			}
			f.want = fmt.Sprintf("%s/%s %s %s", j.project, j.name, ktsKinds[k], ktsAwaits)
			s.ledger.handed++
			return
		}
		*t = queued
	}
	s.trace.Fail("after %v the server shows\n%s%s, and the ledger has\n%s%sof which it may be given %d", f, v.list, v.tasks, s.ledger.kts.list(), s.ledger.kts.tasks(), len(given))
}

// ktsTouched notes that the server gives a task its next revision.
func (l *Ledger) ktsTouched(t *ktsTask) {
	l.kts.changes++
	t.before, t.revision, t.seen = t.revision, 0, l.clock().Mono
}

// ktsReported1 notes a report of version 1.
func (l *Ledger) ktsReported1(f *ktsFlight) {
	j, t, k := l.kts.held(ktsWorkerOf(f))
	f.want = ktsRefused
	if t == nil || f.args[2] != kts46.NewDateTime(time.UnixMilli(t.revision)) {
		return
	}
	if t.revision%1000 != 0 {
		l.trace.Fail("%v is about another revision than %d, and matches it", f, t.revision)
	}
	f.want = fmt.Sprint(nil)
	switch f.args[1] {
	case "working":
		l.ktsTouched(t)
		f.want = ktsAwaits
	case "abort":
		l.kts.changes++
		l.kts.requeue(j, t, false)
	default:
		l.kts.changes++
		l.kts.finish(j, k)
		l.done++
	}
}

// ktsReported2 notes a report of version 2.
func (l *Ledger) ktsReported2(f *ktsFlight) {
	j, t, k := l.kts.held(ktsWorkerOf(f))
	before := f.method == "acceptTask" || f.method == "rejectTask"
	switch {
	case t == nil || t.accepted == before:
		f.want = ktsWrongWorker
		return
	case f.args[1] != ktsStampOf(t.revision, true).text:
		f.want = ktsWrongSig
		return
	}
	f.want = ktsSuccess
	switch f.method {
	case "rejectTask":
		l.kts.changes++
		l.kts.requeue(j, t, true)
	case "taskFinished":
		l.kts.changes++
		l.kts.finish(j, k)
		l.done++
	default:
		l.ktsTouched(t)
		l.kts.decide(j, k, true)
		t.accepted = true
		f.want = `{"sig":"` + ktsAwaits + `"}`
	}
}

// ktsRestarted notes a supervisor's call.
func (l *Ledger) ktsRestarted(f *ktsFlight) {
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
func (l *Ledger) ktsOrdered(f *ktsFlight) {
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
func (l *Ledger) ktsOrderedJob(f *ktsFlight, j *ktsJob, key string) bool {
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

// ktsFinish completes all tasks.
func (s *Simulator) ktsFinish() {
	for len(s.net.ktsFlights) > 0 {
		s.ktsNow(s.net.ktsFlights[0])
	}
	s.commit() // the last call of the play may wait for it
	if s.net.ktsOwed > 0 {
		s.trace.Fail("%d calls of kts46 have no answer", s.net.ktsOwed)
	}
	for _, w := range s.net.ktsPeers {
		w.drop()
		if _, t, _ := s.ledger.kts.held(w.number); t != nil {
			s.ktsNow(&ktsFlight{method: "restartTask", args: []any{fmt.Sprint("w", w.number), kts46.DateTime(ktsStampOf(t.revision, false).text)}})
		}
	}
	for before := int64(-1); before != s.ledger.kts.changes; {
		before = s.ledger.kts.changes
		for _, w := range s.net.ktsPeers[:2] {
			s.ktsDo(w, w.number == 1)
		}
	}
	for _, j := range s.ledger.kts.sorted() {
		if j.running || j.tasks != [5]ktsTask{} {
			s.trace.Fail("%s/%s is never done", j.project, j.name)
		}
	}
}

// ktsNow lets a call arrive, and commits what it has changed.
func (s *Simulator) ktsNow(f *ktsFlight) {
	s.net.ktsFlights = slices.DeleteFunc(s.net.ktsFlights, func(e *ktsFlight) bool { return e == f })
	if f.peer != nil {
		f.peer.waiting = f
	}
	s.ktsLand(f)
	s.commit()
}

// ktsDo lets a worker of a version do one task, if there is one.
func (s *Simulator) ktsDo(w *ktsPeer, v2 bool) {
	id := fmt.Sprint("w", w.number)
	if !v2 {
		if s.ktsNow(&ktsFlight{method: "getJob", args: []any{id}, peer: w}); w.stamp.text != "" {
			s.ktsNow(&ktsFlight{method: "reportStatus", args: []any{id, "finished", kts46.DateTime(w.stamp.text)}, peer: w})
		}
		return
	}
	kinds := []string{"simulation", "basicStatistics", "idleTimes", "throughput"}
	if s.ktsNow(&ktsFlight{method: "getTask", args: []any{id, kinds}, v2: true, peer: w}); w.stamp.text != "" {
		s.ktsNow(&ktsFlight{method: "acceptTask", args: []any{id, w.stamp.text}, v2: true, peer: w})
		s.ktsNow(&ktsFlight{method: "taskFinished", args: []any{id, w.stamp.text}, v2: true, peer: w})
	}
}
