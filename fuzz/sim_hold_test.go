//go:build invariants

package fuzz

import (
	"treadle/codec/periodic"
	"treadle/loop"
)

// Who has a job, as the ledger sees it: from a job's being handed out to its end, or its return.

// holds says whether c has been given j for sure, and nothing has ended that.
func (s *sim) holds(c *simConn, j *simJob) bool {
	if c == nil || j.holder != c || c.peer.Closed() || j.asks > 0 {
		return false
	}
	return j.untimed() || s.server.Now().Mono < j.heldAt+s.limit(j)
}

// limit is how long a job may be held, in milliseconds, the grace included.
func (s *sim) limit(j *simJob) int64 {
	limit := j.timeout
	if limit == 0 {
		limit = int64(s.config[timeoutSetting].now()) * 1000
	}
	return limit + loop.DefaultGrace.Milliseconds()
}

// mayHold says whether c may have j still: time-outs may be late by a little.
func (s *sim) mayHold(c *simConn, j *simJob) bool {
	return j.holder == c && (j.untimed() || s.server.Now().Mono < j.heldAt+s.limit(j)+200)
}

// assigned checks that c may be given j, and notes it.
func (s *sim) assigned(c *simConn, j *simJob, queue, name string) {
	s.say("c%d is given %v", c.id, j)
	s.wall = max(s.wall, s.server.Now().Wall)
	if queue != s.queues[j.queue] || name != j.name {
		s.fail("%v of q%d, %q, is handed out as %q of %q", j, j.queue, j.name, name, queue)
	}
	if s.holds(j.holder, j) && j.holder != c {
		s.fail("%v is handed to c%d and c%d holds it", j, c.id, j.holder.id)
	}
	s.unreported(c, j)
	if j.now == gone {
		if j.turn < s.turn || j.id == 0 {
			s.fail("%v is handed out after its end, or before it came", j)
		}
		return // on its way when it ended
	}
	if j.notBefore > s.wall {
		s.fail("%v is handed out %d ms early", j, j.notBefore-s.wall)
	}
	if j.by == ofDwork {
		if j.location != "" && j.holder == nil && !j.lost && !s.silent(j.location) {
			s.fail("%v is handed to c%d and %s holds it", j, c.id, j.location)
		}
		s.isNext(j)
		j.moves(c.label())
	}
	if j.holder != nil {
		j.keyed, j.record.dated = false, false // its time was over, and that was a new place in line
		j.failures++
	} else if j.keyed {
		s.ordered(j)
	}
	j.now, j.holder, j.heldAt, j.turn, j.lost, j.locks = sure, c, s.server.Now().Mono, s.turn, false, nil
	j.parked = false
	s.handed++
	if j.stale == s.turn+1 {
		s.doubt(j)
	}
}

// ordered notes the jobs that j was handed out before, against the order.
func (s *sim) ordered(j *simJob) {
	var better []*simJob
	for _, r := range s.jobs {
		if r.now != sure || r.queue != j.queue || !r.keyed || r.holder != nil || r.by == ofDwork || r.turn >= s.turn || r.due > s.began {
			continue
		}
		ahead := r.priority > j.priority || r.priority == j.priority && r.due/1000 < j.due/1000
		if ahead && !s.waitsUnread(r) && !s.keptFrom(j.run.conn, r) {
			better = append(better, r)
		}
	}
	if better != nil {
		s.swaps = append(s.swaps, swap{j, better})
	}
}

// finishes is a worker's word that a job is done, with a result.
func (s *sim) finishes(c *simConn, h heldJob, result string) {
	s.reports(h)
	for _, k := range s.namesakes(h) {
		k.results, k.stale = append(k.results, k.heard(c, result)), s.turn+1
		s.doubt(k)
	}
	j := h.job
	if result = j.heard(c, result); !h.isLast() {
		if s.again(h) {
			j.results, j.stale = append(j.results, result), s.turn+1
			s.doubt(j)
		}
		return
	}
	if s.holds(c, j) {
		j.results = append(j.results, result)
		s.end(j)
		s.done++
		return
	}
	j.results, j.stale = append(j.results, result), s.turn+1
	if s.mayHold(c, j) || j.lost && j.now != gone {
		s.doubt(j)
	}
}

// returns is a worker's word that it has not done j, which is due again then; at 0: at once.
func (s *sim) returns(c *simConn, h heldJob, at int64) {
	s.reports(h)
	for _, k := range s.namesakes(h) {
		k.failures, k.returned, k.stale = k.failures+1, k.returned+1, s.turn+1
		k.keyed, k.record.dated = false, false
		if k.holder == c {
			k.holder, k.notBefore, k.turn, k.lost = nil, 0, s.turn, true
			k.moves("")
		}
		s.doubt(k)
	}
	j := h.job
	if !h.isLast() && !s.again(h) {
		return
	}
	j.failures++
	j.returned++
	if h.isLast() && s.holds(c, j) {
		j.holder, j.turn = nil, s.turn
		j.moves("")
		if j.by == ofDisbatch && at == 0 {
			s.end(j)
			return
		}
		j.keyed = j.by == ofPeriodic
		j.due = s.server.Now().Wall
		if at > 0 {
			j.due, j.notBefore, j.putOff = at, at, true
		}
		j.record.at, j.record.dated = j.due/1000, true
		return
	}
	j.stale = s.turn + 1
	if s.mayHold(c, j) || j.lost || !h.isLast() {
		j.holder, j.keyed, j.notBefore, j.turn = nil, false, 0, s.turn
		j.lost = j.lost || !h.isLast() // another may have it
		j.moves("")
	}
	j.record.dated = false
}

// left is a connection's end: what it held is ready again, what it owned is gone.
func (s *sim) left(c *simConn) {
	s.takesAlong(c)
	for _, r := range c.requests {
		if r.cmd == periodic.Acquire {
			r.job.asks -= oneUnless(r.late)
		}
	}
	for _, j := range s.jobs {
		if j.holder == c {
			j.holder, j.keyed, j.turn, j.record.dated = nil, false, s.turn, false
			j.moves("")
			j.failures++
			if j.by == ofDisbatch {
				s.end(j)
			}
		}
		if j.owner == c {
			if j.owner = nil; j.by == ofGloom {
				holder := j.holder
				s.end(j)
				j.holder = holder
			}
		}
	}
}

// mayHaveHeld is the end of a connection to which jobs may have been on their way: they are
// ready again, at another place.
func (s *sim) mayHaveHeld() {
	for _, j := range s.jobs {
		if j.holder != nil && j.turn == s.turn {
			j.failures++ // before who has it was given it
			j.record.dated = false
		}
		if j.now != gone && (j.holder == nil || j.stale == s.turn+1) && j.by != ofDwork {
			j.keyed, j.record.dated = false, false
			j.failures++
			if j.stale == s.turn+1 || j.by == ofDisbatch || j.queue == broadcast { // and what was said about it counted
				s.doubt(j)
			}
		}
	}
}

// failuresOf is how often j has failed at most, with those that are seen at the end of the turn.
func (s *sim) failuresOf(j *simJob) int {
	n := j.failures
	if j.holder != nil && !s.holds(j.holder, j) {
		n++
	}
	for _, c := range s.conns {
		if c.peer.Closed() && !c.reset {
			n++
		}
	}
	return n
}
