//go:build invariants

package sim

import (
	"math/rand/v2"
	"strings"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/play"
)

// workerAct is something that a Periodic worker does beside its reports.
type workerAct int

const (
	askForJob workerAct = iota
	stopServing
	askToSleep
	confirmJob
	startServing
)

var workerActs = play.NewTable(
	play.Of(16, askForJob), play.Of(1, stopServing), play.Of(2, askToSleep), play.Of(2, confirmJob),
	play.Of(3, startServing),
)

// maxAsked is the largest number of requests for a job that a worker has without an answer.
const maxAsked = 3

// actAsWorker lets a Periodic worker do one thing.
func (s *Simulator) actAsWorker(c *Conn) {
	if len(c.held) > 0 && s.rng.IntN(3) > 0 {
		i := s.rng.IntN(len(c.held))
		h := c.held[i]
		c.held = append(c.held[:i:i], c.held[i+1:]...)
		s.reportJob(c, h, drawReport(s.rng, 6))
		return
	}
	queue := workerQueues[s.rng.IntN(len(workerQueues))]
	switch act := workerActs.Draw(s.rng); {
	case act == askForJob && c.grabs < maxAsked:
		c.grabs++
		c.ask(&Request{cmd: periodic.GrabJob}, nil)
	case act == stopServing:
		s.quit(c, queue)
	case act == askForJob || act == askToSleep:
		c.ask(&Request{cmd: periodic.Sleep}, nil)
	case act == confirmJob && c.framing() == periodic.CRC && len(c.held) > 0:
		s.confirm(c, c.held[s.rng.IntN(len(c.held))])
	default:
		s.serve(c, queue)
	}
}

// report is how a worker says that a run has ended.
type report int

const (
	reportDone report = iota
	reportFail
	reportDelay
)

// drawReport draws a report. One in many is a failure, and one a delay. It takes one number of rng.
func drawReport(rng *rand.Rand, many int) report {
	switch rng.IntN(many) {
	case 0:
		return reportFail
	case 1:
		return reportDelay
	}
	return reportDone
}

// reportJob lets a worker report a job that it holds.
func (s *Simulator) reportJob(c *Conn, h heldJob, end report) {
	j := h.job
	r := &Request{silent: s.ledger.unacknowledged(c)}
	args := h.handle
	switch end {
	case reportFail:
		r.cmd, r.onArrival = periodic.WorkFail, func() { s.ledger.returned(c, h, 0) }
	case reportDelay:
		delay, step := s.rng.IntN(20), s.rng.Int32N(4)
		r.cmd, args = periodic.SchedLater, append(args[:len(args):len(args)], laterArgs(int64(delay), uint16(step))...)
		r.onArrival = func() {
			s.ledger.countSteps(c, h, step)
			s.ledger.returned(c, h, s.server.Now().Wall+int64(delay)*1000)
		}
	default:
		result := s.resultOf(h)
		if s.rng.IntN(4) == 0 { // not JSON
			result = strings.Trim(result, `"`)
		}
		r.cmd, args = periodic.WorkDone, append(args[:len(args):len(args)], result...)
		r.onArrival = func() { s.ledger.finished(c, h, result) }
	}
	c.ask(r, args)
	s.trace.Logf("c%d says %v of %v", c.id, r.cmd, j)
}
