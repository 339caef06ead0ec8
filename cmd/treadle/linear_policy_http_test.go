package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	codec "treadle/codec/admin"
)

// Sizes of the workers over HTTP.
const (
	polLeaseAcks = 60                     // a kill comes at one of the first so many answers about leases
	polReserve   = 3                      // jobs of a request at most
	polWait      = 50 * time.Millisecond  // for the first job of a request
	polShort     = 40 * time.Millisecond  // a lease that its worker lets expire
	polLong      = 2 * time.Second        // a lease that outlives a server
	polGrain     = 128 * time.Millisecond // a lease ends so much late at most
	// polHeld is how long a job is held under one lease at most: it is extended once.
	polHeld = int64(2*polLong + polShort)
)

// polReservers are the queues of each worker over HTTP. Other queues have rules that need all runs of a job: a run
// whose answer the kill takes away has a lease, which ends as a failure that no worker knows of.
var polReservers = [][]string{{"retry"}, {"retry", "limit"}, {"limit", "keys"}, {"keys", "pause"}, {"keys"}, {"rate", "once"}, {"once"}}

// polLease is a job that a worker over HTTP holds. It outlives the server.
type polLease struct {
	run      polRun
	token    string
	verb     string         // the report that ends it, which is repeated until it is answered; empty: it is not chosen yet
	delay    codec.Duration // of a report that the job failed
	until    int64          // it does not expire before
	extended bool           // or the worker has tried to
	tried    bool           // a report had no answer, and may have been carried out
}

// dialHTTP returns a client of the server's API.
func (s *polSite) dialHTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(s.dir, "a"))
	}}}
}

// wrong notes an answer that no rule allows.
func (s *polSite) wrong(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// post makes a request. It returns the reason of a refusal, and an error when there is no answer.
func (r *polRound) post(path, kind string, body []byte, answer any) (reason string, err error) {
	ask, err := http.NewRequestWithContext(r.ctx, http.MethodPost, "http://treadle/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	ask.Header.Set("Content-Type", kind)
	reply, err := r.http.Do(ask)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return "", err
	}
	if reply.StatusCode == http.StatusOK {
		if path != "/jobs" && r.leaseFuse.Add(-1) == 0 {
			r.kill()
		}
		return "", json.Unmarshal(text, answer)
	}
	var e codec.Error
	if err := json.Unmarshal(text, &e); err != nil || e.Reason == "" {
		return "", fmt.Errorf("%s %s: %d %s", path, body, reply.StatusCode, text)
	}
	return e.Reason, nil
}

func (r *polRound) postJSON(path string, ask, answer any) (reason string, err error) {
	text, err := json.Marshal(ask)
	if err != nil {
		return "", err
	}
	return r.post(path, "application/json", text, answer)
}

// burstHTTP submits some jobs, in a request each or as the lines of one.
func (r *polRound) burstHTTP(rng *rand.Rand, queue string) {
	var burst []polSubmit
	var lines bytes.Buffer
	encoder, delay := json.NewEncoder(&lines), codec.Duration(0)
	if queue == "limit" || queue == "keys" {
		delay = codec.Duration(rng.IntN(2)) * codec.Duration(200*time.Millisecond)
	}
	each := rng.IntN(2) == 0
	for range polBurstSize {
		n := r.site.number()
		s := polSubmit{queue: queue, name: fmt.Sprintf("%c:%d", 'a'+rng.IntN(3), n), workload: fmt.Sprint("w", n)}
		j := codec.Job{Queue: s.queue, Name: s.name, Workload: s.workload, Delay: delay}
		if each {
			r.submitHTTP(s, &j)
			continue
		}
		burst = append(burst, s)
		_ = encoder.Encode(&j) // into memory
	}
	if each {
		return
	}
	var answer codec.SubmittedLines
	call := r.now()
	_, err := r.post("/jobs", "application/x-ndjson", lines.Bytes(), &answer)
	for _, e := range answer.Errors {
		if burst[e.Line-1].refused = e.Reason == "policy"; !burst[e.Line-1].refused {
			err = fmt.Errorf("line %d: %s", e.Line, e.Error)
		}
	}
	for _, s := range burst {
		s.pinged, s.call, s.notBefore = call, call, call+int64(delay)
		r.submitted(s, err)
	}
}

// submitHTTP submits a job, and waits for its end when it is awaited.
func (r *polRound) submitHTTP(s polSubmit, j *codec.Job) {
	var answer codec.Submitted
	s.call = r.now()
	s.pinged, s.notBefore = s.call, s.call+int64(j.Delay)
	reason, err := r.postJSON("/jobs", j, &answer)
	want := "submitted"
	if s.awaited {
		want = "done"
	}
	switch s.refused = reason == "policy"; {
	case err != nil, s.refused:
	case reason != "" || answer.State != want:
		err = fmt.Errorf("%s is refused as %s, or %s", &s, reason, answer.State)
	case answer.Result != nil:
		s.result = *answer.Result
	}
	r.submitted(s, err)
}

// reserver reserves jobs and reports on them until the server is killed. It begins with jobs that were reserved from
// the servers before.
func (r *polRound) reserver(rng *rand.Rand, queues []string) {
	for !r.killed.Load() {
		leases := r.site.takeLease()
		if len(leases) == 0 {
			var err error
			if leases, err = r.reserve(rng, queues); err != nil {
				r.fault(err)
				return
			}
		}
		for _, l := range leases {
			over := r.hold(rng, l)
			r.site.mu.Lock()
			if over {
				r.site.runs = append(r.site.runs, l.run)
			} else {
				r.site.leases = append(r.site.leases, l)
			}
			r.site.mu.Unlock()
		}
	}
}

// takeLease returns one of the leases that a server before has given.
func (s *polSite) takeLease() (one []*polLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leases) > 0 {
		one, s.leases = s.leases[:1:1], s.leases[1:]
	}
	return one
}

// endLeases notes the runs whose workers the last server was killed too early for. It had no jobs any more.
func (s *polSite) endLeases() {
	for _, l := range s.leases {
		if !l.tried {
			l.run.how = linExpired
		}
		l.run.end = min(l.run.end, l.until)
		s.runs = append(s.runs, l.run)
	}
}

// reserve takes jobs.
func (r *polRound) reserve(rng *rand.Rand, queues []string) (all []*polLease, err error) {
	ask := codec.Reserve{Queues: queues, Jobs: 1 + rng.IntN(polReserve), Wait: codec.Duration(polWait), Worker: "w"}
	ask.Lease = codec.Duration(polLong)
	if rng.IntN(2) == 0 {
		ask.Lease = codec.Duration(polShort)
	}
	var answer codec.Leased
	asked := r.now()
	reason, err := r.postJSON("/reserve", &ask, &answer)
	if err != nil || reason != "" {
		return nil, fmt.Errorf("reserve: %s: %w", reason, err)
	}
	got := r.now()
	for _, j := range answer.Jobs {
		until := r.site.until(j.Until)
		// The answer may come when the lease has ended, and others have the job.
		granted := min(got, until+polSlack-int64(ask.Lease)+int64(time.Millisecond))
		run := polRun{round: r.number, ends: r.number, leased: true, queue: j.Queue, name: j.Name, asked: asked, got: granted, end: math.MaxInt64}
		if j.Workload != nil {
			run.workload = *j.Workload
		}
		run.text = fmt.Sprint("r", r.site.number())
		all = append(all, &polLease{run: run, token: j.Token, until: until})
	}
	return all, nil
}

// until returns the time until which a lease lasts for certain.
func (s *polSite) until(ms int64) int64 {
	return ms*int64(time.Millisecond) - s.began.UnixNano() - polSlack
}

// hold does what a worker does with a job. It returns false when the lease may go on after the kill.
func (r *polRound) hold(rng *rand.Rand, l *polLease) (over bool) {
	if l.run.round < r.number && time.Duration(l.until-r.now()) > polGrain {
		time.Sleep(time.Duration(rng.IntN(2)) * polGrain) // a lease that the server has forgotten is over then
	}
	for range rng.IntN(4) {
		if !r.forge(l) {
			return false
		}
	}
	if rng.IntN(2) == 0 && !l.tried && !l.extended {
		if over, answered := r.extend(rng, l); over || !answered {
			return over
		}
		time.Sleep(time.Duration(rng.IntN(2)) * polShort) // it works
	}
	left := time.Duration(l.until - r.now())
	if left < polShort && rng.IntN(2) == 0 {
		time.Sleep(left + time.Duration(rng.IntN(3))*polGrain/2) // the worker is late
	}
	if r.killed.Load() {
		return false
	}
	if l.verb == "" {
		l.verb = []string{"done", "done", "done", "done", "done", "release", "fail", "fail", "fail", "leave"}[rng.IntN(10)]
		l.delay = codec.Duration(rng.IntN(2)) * codec.Duration(1+rng.IntN(200)) * codec.Duration(time.Millisecond)
	}
	if l.verb == "leave" && left < polShort { // a failure, which the journaled lease makes certain
		l.run.how, l.run.acknowledged = linExpired, true
		l.run.end, l.run.said = min(l.run.end, l.until), l.until
		return true
	}
	return r.report(rng, l)
}

// forge reports on a job with a wrong proof, which is refused. It returns false without an answer.
func (r *polRound) forge(l *polLease) bool {
	reason, err := r.postJSON("/leases/done", codec.DoneReport{Token: codec.Token{Token: forged(l.token)}}, new(codec.Reported))
	if err != nil {
		r.fault(err)
		return false
	}
	if reason != codec.NoLease {
		r.site.wrong("a forged token of %s is answered %q", &l.run, reason)
	}
	return true
}

// forged returns a token with another secret.
func forged(token string) string {
	digit := "0"
	if strings.HasSuffix(token, digit) {
		digit = "1"
	}
	return token[:len(token)-1] + digit
}

// extend changes the end of a lease. It returns true when the lease has ended before.
func (r *polRound) extend(rng *rand.Rand, l *polLease) (over, answered bool) {
	length := polLong
	if l.until-r.now() > int64(polShort) && rng.IntN(2) == 0 {
		length = polShort
	}
	before := l.until
	l.extended = true
	l.until = min(l.until, r.now()+int64(length)-polSlack)
	var answer codec.Reported
	reason, err := r.postJSON("/leases/extend", codec.ExtendReport{Token: codec.Token{Token: l.token}, Lease: codec.Duration(length)}, &answer)
	switch {
	case err != nil:
		r.fault(err)
		return false, false
	case reason != "":
		l.until = before
		return r.refused(l, reason), true
	}
	l.until = r.site.until(answer.Until)
	return false, true
}

// report makes the report of a worker, alone or with others. It returns false without an answer.
func (r *polRound) report(rng *rand.Rand, l *polLease) bool {
	call := r.now()
	if l.run.end, l.run.ends = min(l.run.end, l.until, call), r.number; !l.tried {
		l.run.pinged = call
	}
	verb, token := l.verb, codec.Token{Token: l.token}
	other := codec.Token{Token: forged(l.token)}
	var one, two any
	switch verb {
	case "release":
		l.run.how, one, two = linRelease, codec.ReleaseReport{Token: token}, codec.ReleaseReport{Token: other}
	case "fail":
		report := codec.FailReport{Token: token, Error: l.run.text}
		if l.run.how, l.run.delay = linFail, int64(l.delay); l.delay > 0 {
			report.Delay = &l.delay
		}
		one, two = report, codec.FailReport{Token: other}
	default:
		verb, l.verb, l.run.sent = "done", "done", true
		l.run.how, one, two = linDone, codec.DoneReport{Token: token, Result: l.run.text}, codec.DoneReport{Token: other}
	}
	reason, err := r.together(rng, verb, token, one, two)
	switch {
	case err != nil:
		l.tried = true
		r.fault(err)
		return false
	case reason != "":
		return r.refused(l, reason)
	}
	l.run.pinged, l.run.said, l.run.acknowledged = call, r.now(), true
	again := []string{"done", "release", "fail"}[rng.IntN(3)]
	if reason, err := r.postJSON("/leases/"+again, token, new(codec.Reported)); err != nil {
		r.fault(err)
	} else if reason != codec.LeaseDone {
		r.site.wrong("a second report on %s is answered %q", &l.run, reason)
	}
	return true
}

// together makes a report, in an array with a forged one or alone, and returns the reason of its refusal.
func (r *polRound) together(rng *rand.Rand, verb string, token codec.Token, one, forged any) (reason string, err error) {
	var answer codec.Reported
	if rng.IntN(2) == 0 {
		return r.postJSON("/leases/"+verb, one, &answer)
	}
	reason, err = r.postJSON("/leases/"+verb, []any{forged, one}, &answer)
	if err != nil || reason != "" {
		return reason, err
	}
	for _, left := range answer.Left {
		switch {
		case left.Token == token.Token:
			reason = left.Reason
		case left.Reason != codec.NoLease:
			r.site.wrong("a forged token is answered %q", left.Reason)
		}
	}
	if n := len(answer.Left) + answer.Reported; n != 2 || len(answer.Left) == 0 {
		r.site.wrong("two reports of which one is forged are answered %+v", answer)
	}
	return reason, nil
}

// refused notes how a lease has ended whose token is refused.
func (r *polRound) refused(l *polLease, reason string) bool {
	now := r.now()
	switch {
	case reason == codec.LeaseExpired && now >= l.until, reason == codec.NoLease && !l.tried && r.starts() >= l.until:
		if l.run.how, l.run.acknowledged, l.run.said = linExpired, true, now; !l.tried {
			l.run.ends = l.run.round // nobody else has had the job before
		}
	case reason == codec.NoLease && l.tried:
		if now < l.until { // it has not expired, so that a report was carried out
			l.run.said, l.run.acknowledged = now, true
		}
	default:
		r.site.wrong("a report in round %d at %d on the lease of %s, which lasts until %d, is answered %q", r.number, now, &l.run, l.until, reason)
	}
	l.run.end = min(l.run.end, l.until)
	return true
}

// starts returns when the server of the round was asked first.
func (r *polRound) starts() int64 { return r.site.starts[r.number] }

// outcomes counts how leases ended. Those that were reported to a later server than that which gave them count as kept.
func (s *polSite) outcomes() map[string]int {
	counts := make(map[string]int)
	for _, run := range s.runs {
		if !run.leased {
			continue
		}
		how := string(run.how)
		if !run.acknowledged {
			how += ", unknown"
		}
		if counts[how]++; run.ends > run.round {
			counts[how+", kept"]++
		}
	}
	return counts
}
