//go:build invariants

package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"treadle/codec/admin"
	"treadle/fuzz/sim/play"
	seam "treadle/loop/protocol"
)

// Submitters over HTTP. Their jobs are Periodic's, and have priorities.

// httpAwaited is what a submitter waits for.
type httpAwaited struct {
	jobs  []*Job // the job that is awaited, or the jobs that may have replaced it
	limit int64  // milliseconds
	since int64  // Mono from which the answer waits for the job's end alone; 0: it waits for the disk
}

// httpNaming is how a job over HTTP gets its name.
type httpNaming int

const (
	ownName httpNaming = iota
	sharedName
	keyAsName // the Idempotency-Key
	sharedKey
	serversName
)

// serversNameLength is the length of the names that the server makes.
const serversNameLength = 26

var httpNamings = play.NewTable(play.Of(4, ownName), play.Of(3, sharedName), play.Of(1, keyAsName), play.Of(1, sharedKey), play.Of(2, serversName))

// httpJob makes a job, and how a submitter sends it.
func (s *Simulator) httpJob() (j *Job, sent *admin.Job, naming httpNaming) {
	naming = httpNamings.Draw(s.rng)
	name := ""
	if naming == sharedName || naming == sharedKey {
		name = fmt.Sprint("again", s.rng.IntN(4))
	}
	j = s.newPeriodicJob(s.rng.IntN(periodicQueues), name)
	j.record.least, j.record.most = 0, 0
	j.priority = int64(s.rng.IntN(3) - 1)
	sent = &admin.Job{Queue: s.ledger.queues[j.queue], Name: j.name, Priority: j.priority, Timeout: admin.Duration(time.Duration(j.timeout) * time.Millisecond)}
	switch {
	case s.rng.IntN(4) == 0:
		sent.WorkloadBytes = []byte(j.workload())
	case j.text:
		sent.Workload = j.workload()
	default:
		sent.WorkloadJSON = json.RawMessage(j.workload())
	}
	switch s.rng.IntN(6) {
	case 0:
		sent.Delay = admin.Duration(time.Duration(s.rng.IntN(15_000)) * time.Millisecond)
	case 1:
		sent.At = admin.Moment{Time: time.UnixMilli(s.server.Now().Wall + int64(s.rng.IntN(20_000)-5000)).UTC()}
	}
	if naming == serversName {
		j.name, j.nameless = "", true
	}
	if naming != ownName && naming != sharedName {
		sent.Name = ""
	}
	return j, sent, naming
}

// httpJobArrived notes the arrival of a job. It returns the jobs that may end under its name.
func (l *Ledger) httpJobArrived(j *Job, sent *admin.Job) (named []*Job) {
	at := int64(0)
	switch {
	case !sent.At.IsZero():
		at = (sent.At.UnixMilli() + 999) / 1000
	case sent.Delay > 0:
		at = (l.clock().Wall + time.Duration(sent.Delay).Milliseconds() + 999) / 1000
	}
	for _, o := range l.names[j.key()] {
		if o.inServer != no && !j.nameless {
			named = append(named, o)
		}
	}
	if l.submitted(j, at); j.inServer == sure {
		named = nil
	}
	return append(named, j)
}

// httpSubmit lets a submitter send one job. Some wait for its end.
func (s *Simulator) httpSubmit() {
	j, sent, naming := s.httpJob()
	call := &httpCall{path: "/api/v1/jobs", kind: jsonBody}
	if naming == keyAsName || naming == sharedKey {
		call.key = j.name
	}
	if s.rng.IntN(3) == 0 {
		sent.Wait = admin.Duration(time.Duration(1+s.rng.IntN(20)) * time.Second)
		call.awaits = &httpAwaited{limit: time.Duration(sent.Wait).Milliseconds()}
	}
	if call.awaits != nil && s.rng.IntN(4) > 0 { // without a worker the job is rarely done in time
		j.queue = s.rng.IntN(workedQueues)
		sent.Queue, sent.Wait = s.ledger.queues[j.queue], sent.Wait*4
		call.awaits.limit *= 4
	}
	call.body = s.httpBody(sent)
	refused := false
	call.onArrival = func() {
		if refused = s.ledger.full; refused {
			return
		}
		jobs := s.ledger.httpJobArrived(j, sent)
		if call.awaits != nil {
			call.awaits.jobs = jobs
			for _, k := range jobs {
				k.awaited = true
			}
		}
	}
	call.onAnswer = func(status int, all []byte) { s.ledger.httpSubmitted(call, j, sent.Queue, refused, status, all) }
	s.trace.Logf("over HTTP %v is submitted to q%d, of priority %d, after %v, at %v, and awaited for %v", j, j.queue, j.priority,
		time.Duration(sent.Delay), sent.At, time.Duration(sent.Wait))
	s.httpAsk(call)
}

// httpBody encodes a message.
func (s *Simulator) httpBody(message any) []byte {
	text, err := json.Marshal(message)
	if err != nil {
		s.trace.Failf("cannot make a request: %v", err)
	}
	return text
}

// httpSubmitted checks the answer to the submission of one job to a queue, from which an operator may have moved it.
func (l *Ledger) httpSubmitted(call *httpCall, j *Job, queue string, refused bool, status int, all []byte) {
	if refused {
		if reason := l.reasonOf(call, status, all); status != http.StatusInsufficientStorage || reason != seam.ReasonDisk.String() {
			l.trace.Failf("h%d: got %d %q, want 507, because the disk is full", call.number, status, all)
		}
		l.trace.Logf("h%d is told that %v is refused", call.number, j)
		return
	}
	var answer admin.Submitted
	l.httpRead(call, status, all, &answer)
	if answer.Queue != queue || !l.hasName(j, answer.Name) {
		l.trace.Failf("h%d has submitted %v: got %q of %q, want %q of %q", call.number, j, answer.Name, answer.Queue, j.name, queue)
	}
	l.acknowledged(j)
	l.trace.Logf("h%d is told that %v is %s", call.number, j, answer.State)
	if call.awaits == nil {
		if answer.State != "submitted" {
			l.trace.Failf("h%d: got the state %[3]q of %[2]v, want submitted", call.number, j, answer.State)
		}
		return
	}
	l.checkEnding(call, &answer)
}

// checkEnding checks what a submitter that waits is told of the end of its job.
func (l *Ledger) checkEnding(call *httpCall, answer *admin.Submitted) {
	w := call.awaits
	switch answer.State {
	case "pending":
		if late := l.clock().Mono - w.since - w.limit; !l.stopping && (w.since == 0 || late < 0) {
			l.trace.Failf("the wait of h%d is over %d ms early", call.number, -late)
		}
		return
	case "done":
		l.results++
		result := string(answer.ResultBytes)
		if answer.Result != nil {
			result = *answer.Result
		}
		for k := range w.chain() {
			broadcast := k.queue == broadcastQueue && result == ""
			if slices.Contains(k.results, result) || broadcast && (k.inServer != sure || l.maybeBroadcast(k)) {
				return
			}
		}
		l.trace.Failf("h%d is told the result %q, although no worker reported it for %v", call.number, strings.ReplaceAll(result, padding, ""), w.jobs)
	case "removed":
		for k := range w.chain() {
			if k.inServer != sure && k.next == nil {
				return
			}
		}
	}
	l.trace.Failf("h%d is told that its job is %s; it is one of %v", call.number, answer.State, w.jobs)
}

// chain returns the jobs that may have come to an end under a name.
func (w *httpAwaited) chain() func(yield func(*Job) bool) {
	return func(yield func(*Job) bool) {
		for _, j := range w.jobs {
			for k := j; k != nil; k = k.next {
				if !yield(k) {
					return
				}
			}
		}
	}
}

// checkAwaited checks, at the end of a turn, that no submitter waits for a job that has ended, or for too long.
func (l *Ledger) checkAwaited() {
	for _, call := range l.net.http.open {
		w := call.awaits
		if w == nil || call.hungUp || !call.peer.Waits() {
			continue
		}
		if w.since == 0 {
			w.since = l.clock().Mono
		}
		if l.clock().Mono >= w.since+w.limit {
			l.trace.Failf("h%d has no answer, although its wait of %d ms is over", call.number, w.limit)
		}
		ended := true
		for k := range w.chain() {
			ended = ended && k.inServer == no && k.turn < l.turn
		}
		if ended {
			l.trace.Failf("h%d has no answer, although all of %v have ended", call.number, w.jobs)
		}
	}
}

// httpLine is a line of a submission of several jobs.
type httpLine int

const (
	jobLine httpLine = iota
	emptyLine
	nonsenseLine
	awaitedLine // a job of several cannot be awaited
)

var httpLines = play.NewTable(play.Of(12, jobLine), play.Of(1, emptyLine), play.Of(1, nonsenseLine), play.Of(1, awaitedLine))

// httpSubmitLines lets a submitter send a job in each line. Some bodies break off.
func (s *Simulator) httpSubmitLines() {
	call := &httpCall{path: "/api/v1/jobs", kind: linesBody}
	var jobs []*Job
	var sent []*admin.Job
	nonsense, lines := 0, 0
	for range 1 + s.rng.IntN(4) {
		lines++
		j, one, naming := s.httpJob()
		if naming == keyAsName || naming == sharedKey {
			one.Name = j.name
		}
		switch httpLines.Draw(s.rng) {
		case jobLine:
			jobs, sent = append(jobs, j), append(sent, one)
			call.body = append(call.body, s.httpBody(one)...)
		case nonsenseLine:
			nonsense++
			call.body = append(call.body, `{"queue":"q"} and more`...)
		case awaitedLine:
			nonsense++
			one.Wait = admin.Duration(time.Second)
			call.body = append(call.body, s.httpBody(one)...)
		case emptyLine:
		}
		call.body = append(call.body, '\n')
	}
	if call.broken = s.rng.IntN(4) == 0; call.broken {
		call.body = append(call.body, `{"queue":`...)
	}
	taken := 0
	call.onArrival = func() {
		if s.ledger.full {
			return
		}
		taken = len(jobs)
		for i, j := range jobs {
			s.ledger.httpJobArrived(j, sent[i])
		}
	}
	call.onAnswer = func(status int, all []byte) {
		var answer admin.SubmittedLines
		s.ledger.httpRead(call, status, all, &answer)
		if answer.Submitted != taken || answer.Refused != nonsense+len(jobs)-taken || (answer.Error != "") != call.broken || call.broken && answer.Next != lines+1 {
			s.trace.Failf("h%d has sent %d jobs and %d other lines, broken off: %v; got %q", call.number, len(jobs), nonsense, call.broken, all)
		}
		if taken == 0 {
			return
		}
		for _, j := range jobs {
			s.ledger.acknowledged(j)
		}
		s.trace.Logf("h%d is told that %v are submitted", call.number, jobs)
	}
	s.trace.Logf("over HTTP %v are submitted in lines, broken off: %v", jobs, call.broken)
	s.httpAsk(call)
}
