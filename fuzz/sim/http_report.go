//go:build invariants

package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"treadle/codec/admin"
	"treadle/fuzz/sim/play"
)

// A worker over HTTP reports its jobs by their tokens: in time, late, twice, or with a token that it has made up.

// leaseReport is a report on one lease.
type leaseReport struct {
	verb   string
	lease  *Lease
	forged bool // the token is
	result string
	delay  *admin.Duration
	length time.Duration
	chunk  *chunk
	end    int // of an extension: the place of the new end in Lease.ends

	may []string // the reasons of refusals that are right; the empty one stands for none
}

// leaseVerbs are the reports.
var leaseVerbs = play.NewTable(play.Of(6, "done"), play.Of(4, "fail"), play.Of(2, "release"), play.Of(3, "extend"), play.Of(2, "progress"))

// maxLeases limits the ended leases that workers report on.
const maxLeases = 12

// httpReport lets a worker report one job, or several in one call.
func (s *Simulator) httpReport() {
	s.net.http.leases = s.net.http.leases[max(0, len(s.net.http.leases)-maxLeases):]
	if len(s.net.http.leases) == 0 {
		return
	}
	call := &httpCall{kind: jsonBody}
	verb := leaseVerbs.Draw(s.rng)
	reports := []*leaseReport{s.leaseReport(verb)}
	alone := s.rng.IntN(2) == 0
	for size := len(reports[0].result); !alone && s.rng.IntN(2) == 0; {
		r := s.leaseReport(verb)
		if size += len(r.result); size > s.ledger.setup.frame { // a list has the limit of one job
			break
		}
		reports = append(reports, r)
	}
	call.path = "/api/v1/leases/" + verb
	bodies := []json.RawMessage{}
	for _, r := range reports {
		bodies = append(bodies, s.httpBody(r.body()))
	}
	call.body = bodies[0]
	if !alone {
		call.body = s.httpBody(bodies)
	}
	until := int64(0)
	call.onArrival = func() {
		for _, r := range reports {
			s.ledger.leaseReported(call, r)
		}
		until = s.server.Now().Wall + reports[len(reports)-1].length.Milliseconds()
	}
	call.onAnswer = func(status int, all []byte) {
		if alone {
			s.ledger.checkReport(call, reports[0], s.ledger.reasonOf(call, status, all))
		} else {
			s.ledger.checkReports(call, reports, status, all)
		}
		var answer admin.Reported
		if err := json.Unmarshal(all, &answer); alone && err == nil && verb == "extend" && status == 200 && answer.Until != until {
			s.trace.Failf("h%d extends a lease of %v: got the end %d, want %d", call.number, reports[0].lease.job, answer.Until, until)
		}
	}
	for _, r := range reports {
		s.trace.Logf("the worker of c%d says %s of %v, forged: %v", r.lease.conn.id, verb, r.lease.job, r.forged)
	}
	s.httpAsk(call)
}

// leaseReport draws a report on one of the leases that workers know of, rather on one that is good.
func (s *Simulator) leaseReport(verb string) *leaseReport {
	all := s.net.http.leases
	if good := slices.DeleteFunc(slices.Clone(all), func(x *Lease) bool { return !s.ledger.isLive(x) }); len(good) > 0 && s.rng.IntN(3) > 0 {
		all = good
	}
	x := all[s.rng.IntN(len(all))]
	r := &leaseReport{verb: verb, lease: x, forged: s.rng.IntN(8) == 0}
	switch verb {
	case "done":
		r.result = s.resultOf(heldJob{job: x.job, run: x.run})
		if s.rng.IntN(4) == 0 { // not JSON
			r.result = strings.Trim(r.result, `"`)
		}
	case "fail":
		if s.rng.IntN(2) == 0 {
			delay := admin.Duration(time.Duration(s.rng.IntN(10_000)) * time.Millisecond)
			r.delay = &delay
		}
	case "extend":
		r.length = leaseLengths[s.rng.IntN(len(leaseLengths))]
	case "progress":
		s.ledger.streams.published++
		r.chunk = &chunk{text: fmt.Sprintf("chunk %d%s", s.ledger.streams.published, strings.Repeat(padding, s.rng.IntN(200)))}
	}
	return r
}

// forgedToken returns a token of the same lease with another secret.
func forgedToken(token string) string {
	last := "0"
	if strings.HasSuffix(token, last) {
		last = "1"
	}
	return token[:len(token)-1] + last
}

// token is what the report proves the lease with.
func (r *leaseReport) token() string {
	if r.forged {
		return forgedToken(r.lease.token)
	}
	return r.lease.token
}

// body returns the report as the API has it.
func (r *leaseReport) body() any {
	token := admin.Token{Token: r.token()}
	switch r.verb {
	case "done":
		return admin.DoneReport{Token: token, Result: r.result}
	case "fail":
		return admin.FailReport{Token: token, Error: "it failed", Delay: r.delay}
	case "release":
		return admin.ReleaseReport{Token: token}
	case "extend":
		return admin.ExtendReport{Token: token, Lease: admin.Duration(r.length)}
	default:
		return admin.ProgressReport{Token: token, Data: r.chunk.text}
	}
}

// reasons returns how a token may be answered now; the empty reason stands for a lease that is good.
func (l *Ledger) reasons(x *Lease) []string {
	switch j := x.job; {
	case x.unsure:
		return []string{"", admin.LeaseDone, admin.LeaseRemoved, admin.LeaseExpired, admin.NoLease}
	case x.forgotten:
		return []string{admin.NoLease, admin.LeaseExpired}
	case x.reported:
		return []string{admin.LeaseDone}
	case x.removed:
		return []string{admin.LeaseRemoved}
	case x.expired || l.clock().Mono >= x.until:
		return []string{admin.LeaseExpired}
	case j.holder == x.conn:
		return []string{""}
	case j.inServer == no:
		return []string{admin.LeaseRemoved}
	default:
		return []string{"", admin.LeaseDone, admin.LeaseRemoved}
	}
}

// leaseReported notes the arrival of a report. It must have no effect but for a lease that is good.
func (l *Ledger) leaseReported(call *httpCall, r *leaseReport) {
	x, j := r.lease, r.lease.job
	if r.forged {
		r.may = []string{admin.NoLease}
		return
	}
	r.may = l.reasons(x)
	if !slices.Contains(r.may, "") {
		return
	}
	end := leaseEnd{wall: l.clock().Wall + r.length.Milliseconds(), length: r.length.Milliseconds()}
	end.mono = l.leaseUntil(end.wall)
	if len(r.may) > 1 { // it is not known what the report does
		if r.verb == "extend" {
			x.ends = append(slices.Clip(x.ends), end)
		}
		if j.inServer != no && r.verb != "extend" && r.verb != "progress" {
			l.doubt(j)
		}
		j.results, j.failures, x.unsure, x.disk = append(j.results, j.resultFor(x.conn, r.result)), j.failures+1, true, min(x.disk, maybe)
		l.leasePublished(r, false)
		return
	}
	if j.durable() && r.verb != "progress" {
		call.group = l.group()
	}
	h := heldJob{job: j, run: x.run}
	switch r.verb {
	case "done":
		l.finished(x.conn, h, r.result)
	case "fail":
		at := int64(0)
		if r.delay != nil && j.by != ofDisbatch && (j.durable() || *r.delay > 0) {
			at = l.clock().Wall + time.Duration(*r.delay).Milliseconds()
		}
		l.returned(x.conn, h, at)
	case "release":
		l.released(x.conn, h)
	case "extend":
		r.end, x.ends, x.until, x.shown = len(x.ends), append(slices.Clip(x.ends), end), end.mono, end.wall
		return
	default:
		l.leasePublished(r, true)
		return
	}
	x.reported, x.disk = true, min(x.disk, maybe)
}

// leasePublished notes data that a worker over HTTP publishes.
func (l *Ledger) leasePublished(r *leaseReport, is bool) {
	if j := r.lease.job; r.chunk != nil && j.by == ofPeriodic {
		r.chunk.sure = is && !l.underWay
		key := topic(j.queue, j.name)
		l.streams.chunks[key] = append(l.streams.chunks[key], r.chunk)
	}
}

// checkReport checks the answer to one report.
func (l *Ledger) checkReport(call *httpCall, r *leaseReport, reason string) {
	x := r.lease
	l.trace.Logf("h%d is told of its %s of %v: %q", call.number, r.verb, x.job, reason)
	if !slices.Contains(r.may, reason) {
		l.trace.Failf("h%d says %s of %v, forged: %v: got %q, want one of %q", call.number, r.verb, x.job, r.forged, reason, r.may)
	}
	if reason != "" || len(r.may) > 1 {
		return
	}
	switch r.verb {
	case "done":
		l.removed([]*Job{x.job})
		x.disk = no
	case "fail", "release":
		x.disk = no
	case "extend":
		x.durableEnd = max(x.durableEnd, r.end)
	}
}

// checkReports checks the answer to several reports.
func (l *Ledger) checkReports(call *httpCall, reports []*leaseReport, status int, all []byte) {
	var answer admin.Reported
	l.httpRead(call, status, all, &answer)
	if answer.Reported+len(answer.Left) != len(reports) {
		l.trace.Failf("h%d: got %[3]q, want the outcomes of %[2]d reports", call.number, len(reports), all)
	}
	for _, r := range reports {
		reason := ""
		// The remaining ones stand in the order of the reports, so that the first of a token is the right one unless an
		// earlier report with the token was taken.
		if len(answer.Left) > 0 && answer.Left[0].Token == r.token() && !slices.Equal(r.may, []string{""}) {
			reason, answer.Left = answer.Left[0].Reason, answer.Left[1:]
		}
		l.checkReport(call, r, reason)
	}
	if len(answer.Left) > 0 {
		l.trace.Failf("h%d: got %+v as reports without effect, which it has not made", call.number, answer.Left)
	}
}
