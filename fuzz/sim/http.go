//go:build invariants

package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"treadle/codec/admin"
	"treadle/fuzz/sim/play"
	"treadle/loop"
)

// Peers of the HTTP API have no lasting connections. Their calls arrive in any order, each on a connection of its own.

// httpNetwork is what lies between the peers of the HTTP API and the server.
type httpNetwork struct {
	made   int         // number of calls
	onWay  []*httpCall // calls that have not arrived
	open   []*httpCall // calls that have arrived and have no answer
	leases []*Lease    // leases that workers know, also ended ones
}

// httpCall is a call of the HTTP API.
type httpCall struct {
	number int
	path   string
	kind   string // kind of the body
	key    string // the Idempotency-Key; empty: none
	body   []byte
	broken bool // the body ends early

	onArrival func()                       // notes what the arrival does; nil: nothing
	onAnswer  func(status int, all []byte) // checks the answer
	turn      int                          // in which it arrived
	group     int                          // of changes that it has made, at the latest; 0: it has made none
	peer      *loop.OfflineCall            // the open call; nil: it was answered at once
	hungUp    bool                         // its client has

	reserve *reserve     // reserve of a worker that asks for jobs
	awaits  *httpAwaited // what a submitter waits for
}

// The kinds of bodies.
const jsonBody, linesBody = "application/json", "application/x-ndjson"

// httpAsk puts a call on its way, and lets half of the calls arrive at once.
func (s *Simulator) httpAsk(call *httpCall) {
	s.net.http.made++
	call.number = s.net.http.made
	s.net.http.onWay = append(s.net.http.onWay, call)
	if s.rng.IntN(2) == 0 {
		s.settle()
		s.httpArrive(take(&s.net.http.onWay, len(s.net.http.onWay)-1))
		s.settle()
	}
	s.trace.Logf("that is h%d", call.number)
}

// errBroken ends the body of a client that goes away.
var errBroken = errors.New("the connection was reset")

// brokenBody is a body behind what has come of it.
type brokenBody struct{}

// Read implements io.Reader.
func (brokenBody) Read([]byte) (int, error) { return 0, errBroken }

// httpArrive lets a call arrive.
func (s *Simulator) httpArrive(call *httpCall) {
	call.turn = s.ledger.turn
	if call.onArrival != nil {
		call.onArrival()
	}
	body := io.Reader(bytes.NewReader(call.body))
	if call.broken {
		body = io.MultiReader(body, brokenBody{})
	}
	r, err := http.NewRequest(http.MethodPost, call.path, body)
	if err != nil {
		s.trace.Failf("cannot make a request: %v", err)
	}
	r.Header.Set("Content-Type", call.kind)
	if call.key != "" {
		r.Header.Set("Idempotency-Key", call.key)
	}
	incarnation := s.serverEnds
	s.net.http.open = append(s.net.http.open, call)
	call.peer = s.server.Admin(r, func(status int, all []byte) {
		if s.serverEnds == incarnation {
			s.ledger.httpAnswered(call, status, all)
		}
	})
}

// httpAnswered checks the answer of a call.
func (l *Ledger) httpAnswered(call *httpCall, status int, all []byte) {
	l.net.http.open = slices.DeleteFunc(l.net.http.open, func(o *httpCall) bool { return o == call })
	if call.hungUp {
		l.trace.Logf("h%d has hung up, and gets no answer", call.number)
		if call.reserve != nil {
			l.hungUp(call.reserve)
		}
		return
	}
	if status == http.StatusOK {
		l.checkOnDisk(call.group, "h%d is answered", call.number)
	}
	call.onAnswer(status, all)
}

// httpRead decodes the answer of a call, which must have a status and, of a refusal, a reason.
func (l *Ledger) httpRead(call *httpCall, status int, all []byte, answer any) {
	if err := json.Unmarshal(all, answer); status != http.StatusOK || err != nil {
		l.trace.Failf("h%d: got %d %q, want 200 and an answer: %v", call.number, status, all, err)
	}
}

// reasonOf returns the reason of an answer; empty: it is no refusal.
func (l *Ledger) reasonOf(call *httpCall, status int, all []byte) string {
	if status == http.StatusOK {
		return ""
	}
	var e admin.Error
	if err := json.Unmarshal(all, &e); err != nil || e.Reason == "" {
		l.trace.Failf("h%d: got %d %q, want 200 or a refusal with its reason", call.number, status, all)
	}
	return e.Reason
}

// httpAct is something that a peer of the HTTP API does.
type httpAct int

const (
	httpSubmits httpAct = iota
	httpSubmitsLines
	httpReserves
	httpReports
	httpHangsUp
	httpForgets // a worker dies with its tokens
	httpOperates
)

var httpActs = play.NewTable(
	play.Of(6, httpSubmits), play.Of(2, httpSubmitsLines), play.Of(7, httpReserves), play.Of(16, httpReports), play.Of(2, httpHangsUp),
	play.Of(1, httpForgets), play.Of(4, httpOperates),
)

// maxCalls limits the calls that are on their way or have no answer.
const maxCalls = 12

// httpStep lets a peer of the HTTP API do one thing.
func (s *Simulator) httpStep() {
	act := httpActs.Draw(s.rng)
	if s.ledger.live() >= maxJobs {
		act = max(act, httpReserves)
	}
	if len(s.net.http.onWay)+len(s.net.http.open) > maxCalls {
		act = max(act, httpReports)
	}
	switch act {
	case httpSubmits:
		s.httpSubmit()
	case httpSubmitsLines:
		s.httpSubmitLines()
	case httpReserves:
		s.httpReserve()
	case httpReports:
		s.httpReport()
	case httpHangsUp:
		s.httpHangUp()
	case httpForgets:
		s.trace.Logf("a worker over HTTP dies")
		s.net.http.leases = nil
	case httpOperates:
		s.httpOperate()
	}
}

// httpHangUp lets the client of a call that has no answer hang up. In half of the cases the turn goes on, so that what
// the call waits for may come in the same turn.
func (s *Simulator) httpHangUp() {
	all := slices.DeleteFunc(slices.Clone(s.net.http.open), func(call *httpCall) bool { return call.hungUp || call.reserve == nil && call.awaits == nil })
	if len(all) == 0 {
		return
	}
	call := all[s.rng.IntN(len(all))]
	s.trace.Logf("the client of h%d hangs up", call.number)
	call.hungUp = true
	call.peer.HangUp()
	if s.rng.IntN(2) == 0 {
		s.settle()
	}
}

// probeHTTP makes a request of the simulation itself and commits it: nothing else happens until it is answered. The
// answer must have one of some statuses, else 200.
func (s *Simulator) probeHTTP(method, path string, body, answer any, statuses ...int) (got int) {
	text, err := json.Marshal(body)
	if err != nil {
		s.trace.Failf("cannot make a request: %v", err)
	}
	r, err := http.NewRequest(method, path, bytes.NewReader(text))
	if err != nil {
		s.trace.Failf("cannot make a request: %v", err)
	}
	answered := false
	s.server.Admin(r, func(status int, body []byte) {
		answered, got = true, status
		if err := json.Unmarshal(body, answer); status != http.StatusOK && !slices.Contains(statuses, status) || err != nil {
			s.trace.Failf("%s %s %s is answered %d %q: %v", method, path, text, status, body, err)
		}
	})
	if method != http.MethodGet {
		s.commit()
	}
	if !answered { // a resume may write two changes
		s.commit()
	}
	if !answered {
		s.trace.Failf("%s %s is not answered", method, path)
	}
	return got
}

// get probes for something that takes no commit.
func (s *Simulator) get(path string, answer any) { s.probeHTTP(http.MethodGet, path, nil, answer) }

// getIfThere probes for something that may have ended; false: it has.
func (s *Simulator) getIfThere(path string, answer any) bool {
	return s.probeHTTP(http.MethodGet, path, nil, answer, http.StatusNotFound) == http.StatusOK
}
