//go:build invariants

package sim

import (
	"fmt"
	"strings"

	"treadle/codec/kts46"
	"treadle/fuzz/sim/play"
)

// kts46Hurry lets a worker do several things within a moment. Between two tasks it may change to the other version.
func (s *Simulator) kts46Hurry(w *kts46Peer) {
	for range 3 + s.rng.IntN(6) {
		before := len(s.net.kts.onWay)
		if w.stamp.text == "" && s.rng.IntN(3) == 0 {
			w.v2 = !w.v2
		}
		s.kts46Work(w)
		if n := len(s.net.kts.onWay); n > before {
			s.settle()
			s.kts46Now(s.net.kts.onWay[n-1])
		}
	}
}

// kts46WorkerAct is something that a worker of kts46 does.
type kts46WorkerAct int

const (
	kts46Dies kts46WorkerAct = iota // and comes back
	kts46ReportsLate
	kts46AsksAgain // although it has a task
	kts46GoesOn
)

var kts46WorkerActs = play.NewTable(play.Of(2, kts46Dies), play.Of(4, kts46ReportsLate), play.Of(2, kts46AsksAgain), play.Of(16, kts46GoesOn))

// kts46Work lets a worker do one thing.
func (s *Simulator) kts46Work(w *kts46Peer) {
	id := fmt.Sprint("w", w.number)
	act := kts46WorkerActs.Draw(s.rng)
	switch {
	case act == kts46Dies: // the next worker may be of the other version
		s.trace.Logf("%s dies", id)
		w.drop()
		w.waiting, w.v2 = nil, s.rng.IntN(2) == 0
		return
	case act == kts46ReportsLate && len(w.stale) > 0:
		s.kts46Report(w, w.stale[s.rng.IntN(len(w.stale))], nil)
		return
	case w.waiting != nil:
		return
	case w.stamp.text != "" && (act == kts46GoesOn || w.v2):
		s.kts46Report(w, w.stamp, w)
		return
	}
	call := &kts46Call{method: "getJob", args: []any{id}, v2: w.v2, peer: w}
	if w.v2 {
		kinds := []string{"simulation", "basicStatistics", "idleTimes", "throughput"}
		call.method, call.args = "getTask", append(call.args, kinds[:1+s.rng.IntN(4)])
	}
	w.waiting = call
	s.kts46Ask(call)
}

// drop notes that the worker has no task any more.
func (w *kts46Peer) drop() {
	if w.stamp.text != "" {
		w.stale = append(w.stale, w.stamp)
		w.stale = w.stale[max(0, len(w.stale)-8):]
	}
	w.stamp, w.accepted = kts46Stamp{}, false
}

// The reports of a task: by version 1, of an accepted task of version 2, and of one that is not accepted yet.
var (
	kts46States   = play.NewTable(play.Of(1, "working"), play.Of(2, "finished"), play.Of(1, "abort"))
	kts46Reports  = play.NewTable(play.Of(1, "taskInProgress"), play.Of(2, "taskFinished"), play.Of(1, "taskInProgress"))
	kts46Decision = play.NewTable(play.Of(3, "acceptTask"), play.Of(1, "rejectTask"))
)

// kts46Report sends a report of the task of a stamp; waiting, unless nil, waits for the answer.
func (s *Simulator) kts46Report(w *kts46Peer, stamp kts46Stamp, waiting *kts46Peer) {
	id := fmt.Sprint("w", w.number)
	call := &kts46Call{v2: stamp.v2, peer: waiting}
	switch {
	case !stamp.v2:
		call.method, call.args = "reportStatus", []any{id, kts46States.Draw(s.rng), kts46.DateTime(stamp.text)}
	case w.accepted:
		call.method, call.args = kts46Reports.Draw(s.rng), []any{id, stamp.text}
	default:
		call.method, call.args = kts46Decision.Draw(s.rng), []any{id, stamp.text}
	}
	if waiting != nil {
		w.waiting = call
	}
	s.kts46Ask(call)
}

// kts46Read lets a worker read an answer.
func (s *Simulator) kts46Read(call *kts46Call, answer string) {
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
			w.stamp = kts46Stamp{parts[2], call.v2}
		}
	case strings.HasPrefix(answer, `{"sig":`):
		w.drop()
		w.stamp, w.accepted = kts46Stamp{strings.Trim(answer[len(`{"sig":`):], `"}`), true}, true
	case call.method == "reportStatus" && call.args[1] == "working" && answer != kts46Refused:
		w.drop()
		w.stamp = kts46Stamp{answer, false}
	default: // the task is done, returned or no longer this worker's
		w.drop()
	}
}
