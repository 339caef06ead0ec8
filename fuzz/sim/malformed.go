//go:build invariants

package sim

import (
	"strings"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
	"treadle/fuzz/sim/play"
	"treadle/fuzz/sim/wire"
)

// The server answers a malformed request, and closes a connection that sends no frames.

// malformed are commands without the arguments that they need, and commands that do not exist.
var malformed = []periodic.Command{
	periodic.SubmitJob, periodic.RunJob, periodic.WorkDone, periodic.WorkFail, periodic.SchedLater, periodic.CanDo, periodic.CantDo,
	periodic.Broadcast, periodic.RemoveJob, periodic.DropFunc, periodic.ConfigGet, periodic.ConfigSet, periodic.WorkData, periodic.RecvData,
	periodic.Success, 0x7e,
}

// malformedFrames are the same for both sides of the Gloom protocol.
var malformedFrames = map[peerKind][]string{
	gloomMaster: {`{"action":"submit"}`, `{"action":"submit","id":1,"type":"t","priority":"high","body":1}`,
		`{"action":"join","type":"t"}`, `{"x":1}`, `{"action":"halt"}`},
	gloomSlave: {`{"action":"join"}`, `{"action":"submit","id":1,"type":"t","body":1}`, `{"x":1}`, `{"action":"halt"}`},
}

// sendMalformed sends a request that the server must refuse.
func (s *Simulator) sendMalformed(c *Conn) {
	if c.gloom() {
		all := malformedFrames[c.peerKind]
		c.tell(&Request{onArrival: func() { c.malformed++ }}, wire.GloomFrame(all[s.rng.IntN(len(all))]))
	} else {
		c.ask(&Request{cmd: malformed[s.rng.IntN(len(malformed))], refused: true}, nil)
	}
	s.trace.Logf("c%d sends a malformed request", c.id)
}

// sendGarbage sends bytes that are no frame. The peer sends nothing more.
func (s *Simulator) sendGarbage(c *Conn) {
	junk := "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
	if c.gloom() && s.rng.IntN(2) == 0 {
		junk = "\x00\x00\x00\x04no!}"
	}
	c.outgoing = append(c.outgoing, junk...)
	c.mark(&Request{silent: true, onArrival: func() { c.malformed++ }}, len(junk)-1) // its front may be enough to see that
	c.garbled = true
	s.trace.Logf("c%d sends garbage", c.id)
}

// checkHungUp checks, at the end of a turn, that the server has closed the connections that sent garbage.
func (l *Ledger) checkHungUp() {
	for _, c := range l.net.conns {
		if c.garbled && len(c.outgoing) == 0 && !c.peer.Closed() {
			l.trace.Failf("c%d is not disconnected, although it has sent bytes that are no frame", c.id)
		}
	}
}

// isOdd reports whether a Gloom error answers a malformed request, as it may.
func (c *Conn) isOdd(r *gloom.Reply) bool {
	switch strings.Trim(string(r.Error), `"`) {
	case "", gloom.JobFailed, gloom.IDExists:
		return false
	}
	c.malformed--
	return c.malformed >= 0
}

// loadEnd follows the jobs of a LOAD.
type loadEnd struct {
	more   int    // number of jobs that are announced and missing
	tail   string // bytes behind the jobs: the beginning of another one, or garbage
	badSum bool   // the frame's checksum is wrong
}

// sumAt is where the checksum of a frame begins.
const sumAt = 8

// negativeLoad announces a negative number of jobs. A LOAD with it has no jobs.
var negativeLoad = loadEnd{more: -1, tail: "and more"}

// malformedLoads are the ends that make a LOAD malformed. The one with a tail alone does not: the server ignores bytes
// behind the announced jobs.
var malformedLoads = play.NewTable(
	play.Of(1, loadEnd{more: 1}),
	play.Of(1, loadEnd{more: 1 << 40, tail: "\x01f\x01n\x00\x00\x00\x01x\x00\x00\x00\x00\x00\x00\x00\x00\x09"}),
	play.Of(1, loadEnd{more: 2, tail: "\x01f\x01n\x00\x00\x00\x09x"}),
	play.Of(1, loadEnd{more: 1, tail: "\x01f\x01n\x7f\xff\xff\xffx"}),
	play.Of(1, loadEnd{tail: "and more"}),
	play.Of(1, negativeLoad),
	play.Of(1, loadEnd{badSum: true}),
)

// loadBadly sends a LOAD that ends malformed. Its jobs are there all the same, unless the checksum is wrong or the
// count is negative.
func (s *Simulator) loadBadly(c *Conn, at int64) {
	jobs := []*Job{s.newPeriodicJob(s.rng.IntN(periodicQueues), ""), s.newPeriodicJob(s.rng.IntN(periodicQueues), "")}
	end := malformedLoads.Draw(s.rng)
	if end.more < 0 || end.badSum && c.framing() == periodic.Plain {
		s.loadAs(c, nil, nil, &negativeLoad)
		return
	}
	s.loadAs(c, jobs, []int64{at, at}, &end)
}
