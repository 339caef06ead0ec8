//go:build invariants

package fuzz

import (
	"slices"

	"treadle/codec/periodic"
)

// A job of the queue that is broadcast goes to every GRAB_JOB that waits, and is nobody's then:
// what workers say of it is about nothing.

// sent checks that a worker may be sent what is broadcast, for what it asked in a turn, and
// notes it.
func (s *sim) sent(c *simConn, j *simJob, asked int) {
	s.say("c%d is sent %v", c.id, j)
	if !c.slow {
		asked = s.turn // it reads at once
	}
	switch {
	case slices.Contains(c.kept, j):
	case j.now == gone && (j.turn < asked || j.id == 0):
		s.fail("%v is broadcast after its end, or before it came", j)
	case !c.serving(s, broadcast):
		s.fail("%v is broadcast to c%d, which has not asked for it", j, c.id)
	case j.now != gone && j.notBefore > max(s.wall, s.server.Now().Wall):
		s.fail("%v is broadcast early", j)
	}
	if j.now != gone {
		s.end(j)
		s.handed++
		if !c.slow { // else it may have been long ago, when others did not wait
			s.aired = append(s.aired, j)
		}
	}
	if j.sentTo == nil {
		j.sentTo = map[*simConn]bool{}
	}
	j.sentTo[c] = true
}

// heardAll checks, when nothing is in the air, that what was broadcast in this turn went to all
// who waited for it before and still wait. To who reads slowly it may be on its way.
func (s *sim) heardAll() {
	for _, j := range s.aired {
		for _, c := range s.conns {
			waits := false
			for _, r := range c.requests {
				waits = waits || r.cmd == periodic.GrabJob && r.turn < s.turn
			}
			if waits && !c.slow && c.tuned > 0 && c.tuned <= s.turn && !j.sentTo[c] {
				s.fail("%v is broadcast, and not to c%d, which waits", j, c.id)
			}
		}
	}
	s.aired = nil
}
