//go:build invariants

package sim

import (
	"fmt"
	"strings"

	"treadle/codec/kts46"
	"treadle/fuzz/sim/play"
)

// ktsHurry lets a worker do several things within a moment. Between two tasks it may change to the other version.
func (s *Simulator) ktsHurry(w *ktsPeer) {
	for range 3 + s.rng.IntN(6) {
		before := len(s.net.kts.onWay)
		if w.stamp.text == "" && s.rng.IntN(3) == 0 {
			w.v2 = !w.v2
		}
		s.ktsWork(w)
		if n := len(s.net.kts.onWay); n > before {
			s.settle()
			s.ktsNow(s.net.kts.onWay[n-1])
		}
	}
}

// ktsWorkerAct is something that a worker of kts46 does.
type ktsWorkerAct int

const (
	ktsDies ktsWorkerAct = iota // and comes back
	ktsReportsLate
	ktsAsksAgain // although it has a task
	ktsGoesOn
)

var ktsWorkerActs = play.NewTable(play.Of(2, ktsDies), play.Of(4, ktsReportsLate), play.Of(2, ktsAsksAgain), play.Of(16, ktsGoesOn))

// ktsWork lets a worker do one thing.
func (s *Simulator) ktsWork(w *ktsPeer) {
	id := fmt.Sprint("w", w.number)
	act := ktsWorkerActs.Draw(s.rng)
	switch {
	case act == ktsDies: // the next worker may be of the other version
		s.trace.Logf("%s dies", id)
		w.drop()
		w.waiting, w.v2 = nil, s.rng.IntN(2) == 0
		return
	case act == ktsReportsLate && len(w.stale) > 0:
		s.ktsReport(w, w.stale[s.rng.IntN(len(w.stale))], nil)
		return
	case w.waiting != nil:
		return
	case w.stamp.text != "" && (act == ktsGoesOn || w.v2):
		s.ktsReport(w, w.stamp, w)
		return
	}
	call := &ktsCall{method: "getJob", args: []any{id}, v2: w.v2, peer: w}
	if w.v2 {
		kinds := []string{"simulation", "basicStatistics", "idleTimes", "throughput"}
		call.method, call.args = "getTask", append(call.args, kinds[:1+s.rng.IntN(4)])
	}
	w.waiting = call
	s.ktsAsk(call)
}

// drop notes that the worker has no task any more.
func (w *ktsPeer) drop() {
	if w.stamp.text != "" {
		w.stale = append(w.stale, w.stamp)
		w.stale = w.stale[max(0, len(w.stale)-8):]
	}
	w.stamp, w.accepted = ktsStamp{}, false
}

// The reports of a task: by version 1, of an accepted task of version 2, and of one that is not accepted yet.
var (
	ktsStates   = play.NewTable(play.Of(1, "working"), play.Of(2, "finished"), play.Of(1, "abort"))
	ktsReports  = play.NewTable(play.Of(1, "taskInProgress"), play.Of(2, "taskFinished"), play.Of(1, "taskInProgress"))
	ktsDecision = play.NewTable(play.Of(3, "acceptTask"), play.Of(1, "rejectTask"))
)

// ktsReport sends a report of the task of a stamp; waiting, unless nil, waits for the answer.
func (s *Simulator) ktsReport(w *ktsPeer, stamp ktsStamp, waiting *ktsPeer) {
	id := fmt.Sprint("w", w.number)
	call := &ktsCall{v2: stamp.v2, peer: waiting}
	switch {
	case !stamp.v2:
		call.method, call.args = "reportStatus", []any{id, ktsStates.Draw(s.rng), kts46.DateTime(stamp.text)}
	case w.accepted:
		call.method, call.args = ktsReports.Draw(s.rng), []any{id, stamp.text}
	default:
		call.method, call.args = ktsDecision.Draw(s.rng), []any{id, stamp.text}
	}
	if waiting != nil {
		w.waiting = call
	}
	s.ktsAsk(call)
}

// ktsRead lets a worker read an answer.
func (s *Simulator) ktsRead(call *ktsCall, answer string) {
	w := call.peer
	if w == nil || w.waiting != call {
		return // no worker waits, or the worker has died
	}
	w.waiting = nil
	parts := strings.Fields(answer)
	switch {
	case call.method == "getJob" || call.method == "getTask":
		w.drop()
		if len(parts) == 3 {
			w.stamp = ktsStamp{parts[2], call.v2}
		}
	case strings.HasPrefix(answer, `{"sig":`):
		w.drop()
		w.stamp, w.accepted = ktsStamp{strings.Trim(answer[len(`{"sig":`):], `"}`), true}, true
	case call.method == "reportStatus" && call.args[1] == "working" && answer != ktsRefused:
		w.drop()
		w.stamp = ktsStamp{answer, false}
	default: // the task is done, returned or no longer this worker's
		w.drop()
	}
}
