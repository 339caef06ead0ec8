//go:build invariants

package fuzz

import (
	"strings"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
)

// What peers send that makes no sense. It is answered so, or is the end of the connection.

// mumbled are commands that say nothing without what belongs behind them, or are nobody's.
var mumbled = []periodic.Command{
	periodic.SubmitJob, periodic.RunJob, periodic.WorkDone, periodic.WorkFail, periodic.SchedLater, periodic.CanDo, periodic.CantDo,
	periodic.Broadcast, periodic.RemoveJob, periodic.DropFunc, periodic.ConfigGet, periodic.ConfigSet, periodic.WorkData, periodic.RecvData,
	periodic.Success, 0x7e,
}

// oddFrames are the same for both sides of the Gloom protocol.
var oddFrames = map[int][]string{
	gloomMaster: {`{"action":"submit"}`, `{"action":"submit","id":1,"type":"t","priority":"high","body":1}`, `{"action":"join","type":"t"}`, `{"x":1}`, `{"action":"halt"}`},
	gloomSlave:  {`{"action":"join"}`, `{"action":"submit","id":1,"type":"t","body":1}`, `{"x":1}`, `{"action":"halt"}`},
}

// mumbles has a peer say something that nobody understands, and is answered so.
func (s *sim) mumbles(c *simConn) {
	if c.gloom() {
		all := oddFrames[c.kind]
		c.tell(&simRequest{arrive: func() { c.odd++ }}, gloomFrame([]byte(all[s.rng.IntN(len(all))])))
	} else {
		c.ask(&simRequest{cmd: mumbled[s.rng.IntN(len(mumbled))], refused: true}, nil)
	}
	s.say("c%d mumbles", c.id)
}

// garbles has a peer send what is no frame. Nothing that it sends then would be understood.
func (s *sim) garbles(c *simConn) {
	junk := "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
	if c.kind >= gloomMaster && s.rng.IntN(2) == 0 {
		junk = "\x00\x00\x00\x04no!}"
	}
	c.outgoing = append(c.outgoing, junk...)
	c.mark(&simRequest{silent: true, arrive: func() { c.odd++ }}, len(junk)-1) // its front may be enough to see that
	c.garbled = true
	s.say("c%d talks nonsense", c.id)
}

// hungUp checks, at the end of a turn, that nobody is connected whose last words made no sense.
func (s *sim) hungUp() {
	for _, c := range s.conns {
		if c.garbled && len(c.outgoing) == 0 && !c.peer.Closed() {
			s.fail("c%d has sent what is no frame, and is not hung up on", c.id)
		}
	}
}

// isOdd says whether a Gloom peer is told that what it said made no sense, as it may be.
func (c *simConn) isOdd(r *gloom.Reply) bool {
	switch strings.Trim(string(r.Error), `"`) {
	case "", gloom.JobFailed, gloom.IDExists:
		return false
	}
	c.odd--
	return c.odd >= 0
}

// loadEnd is what follows the jobs of a LOAD.
type loadEnd struct {
	more int    // jobs that are announced and not there
	tail string // bytes of the last of them, or of nothing
	sum  bool   // the frame's checksum is wrong
}

// sumAt is where the checksum of a frame begins.
const sumAt = 8

// oddTails end a LOAD so that it makes no sense, save the last one: what nobody has announced is read past.
var oddTails = []loadEnd{
	{more: 1},
	{more: 1 << 40, tail: "\x01f\x01n\x00\x00\x00\x01x\x00\x00\x00\x00\x00\x00\x00\x00\x09"},
	{more: 2, tail: "\x01f\x01n\x00\x00\x00\x09x"},
	{more: 1, tail: "\x01f\x01n\x7f\xff\xff\xffx"},
	{tail: "and more"},
}

// loadsBadly has a client send jobs at once, and something behind them that makes no sense. The jobs are there all the
// same, unless it could be seen that the frame is not what was sent; without a count of any there are none.
func (s *sim) loadsBadly(c *simConn, at int64) {
	jobs := []*simJob{s.fresh(s.rng.IntN(graph), ""), s.fresh(s.rng.IntN(graph), "")}
	switch n := s.rng.IntN(len(oddTails) + 2); {
	case n < len(oddTails):
		s.loadsAs(c, jobs, []int64{at, at}, &oddTails[n])
	case n == len(oddTails) || c.framing() == periodic.Plain:
		s.loadsAs(c, nil, nil, &loadEnd{more: -1, tail: "and more"})
	default:
		s.loadsAs(c, jobs, []int64{at, at}, &loadEnd{sum: true})
	}
}
