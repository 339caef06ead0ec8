//go:build invariants

package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/play"
)

// Clients of Faktory's protocol push jobs, and fetch those of every protocol. A fetched job is leased to its worker
// process, which may report it on any connection, also of the next server.

// faktoryAct is something that a client does.
type faktoryAct int

const (
	faktoryPushes faktoryAct = iota
	faktoryFetches
	faktoryAcks
	faktoryFails
	faktoryPushesAgain // a job that is unique
	faktoryBeats
	faktoryForgets // a worker process dies with its jobs
)

var faktoryActs = play.NewTable(
	play.Of(8, faktoryPushes), play.Of(10, faktoryFetches), play.Of(12, faktoryAcks), play.Of(6, faktoryFails), play.Of(2, faktoryPushesAgain),
	play.Of(4, faktoryBeats), play.Of(1, faktoryForgets),
)

// The rules of Faktory in milliseconds: the shortest time before a retry, the wait of a FETCH, and the reservation of a
// job that has no time-out.
const leastBackoff, fetchWait, reserveFor = 15_000, 2000, 1_800_000

// actAsFaktory lets a client do one thing.
func (s *Simulator) actAsFaktory(c *Conn) {
	act := faktoryActs.Draw(s.rng)
	if s.ledger.live() >= maxJobs {
		act = max(act, faktoryFetches)
	}
	switch act {
	case faktoryPushes:
		s.push(c, s.rng.IntN(workedQueues))
	case faktoryFetches:
		if c.hasAllAnswers() {
			s.fetch(c)
		}
	case faktoryAcks, faktoryFails:
		s.net.fetched = s.net.fetched[max(0, len(s.net.fetched)-maxLeases):]
		if all := s.net.fetched; len(all) > 0 {
			s.reportFetched(c, all[s.rng.IntN(len(all))], act == faktoryFails)
		}
	case faktoryPushesAgain:
		s.pushAgain(c)
	case faktoryBeats:
		c.askLine(&Request{cmd: periodic.CanDo}, fmt.Sprintf("BEAT {\"wid\":\"c%d\"}\r\n", c.id))
	case faktoryForgets:
		s.trace.Logf("the workers of Faktory die")
		s.net.fetched = nil
	}
}

// push pushes a job.
func (s *Simulator) push(c *Conn, queue int) {
	j := s.ledger.newJob(ofFaktory, queue, "")
	j.name = fmt.Sprintf("jid-of-%d", j.id)
	j.size, j.priority, j.retries = s.drawPadding(), int64(s.rng.IntN(3)-1), []int{-1, 0, 1, 25}[s.rng.IntN(4)]
	j.timeout = []int64{60_000, reserveFor}[s.rng.IntN(2)]
	at := int64(0)
	if s.rng.IntN(4) == 0 {
		at = s.server.Now().Wall + int64(s.rng.IntN(20_000)-5000)
	}
	unique := int64(0)
	if s.rng.IntN(2) == 0 {
		unique = []int64{20, 600}[s.rng.IntN(2)]
	}
	r := &Request{cmd: periodic.SubmitJob, job: j}
	r.onArrival = func() {
		if r.refused = s.ledger.full; r.refused {
			return
		}
		now := s.server.Now().Wall
		if at > now {
			s.ledger.submitted(j, (at+999)/1000)
		} else {
			s.ledger.submitted(j, 0)
		}
		if unique > 0 {
			j.uniqueUntil = max(at, now) + unique*1000
		}
	}
	c.askLine(r, pushed(j, s.ledger.queues[queue], j.name, at, unique))
	s.trace.Logf("c%d pushes %v to q%d, of priority %d, at %d, with %d retries, unique for %d s", c.id, j, queue, j.priority, at, j.retries, unique)
}

// pushed encodes a PUSH.
func pushed(j *Job, queue, jid string, at, unique int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, `PUSH {"jid":%q,"queue":%q,"jobtype":"T","args":[%s],"retry":%d,"priority":%d`, jid, queue, j.workload(), j.retries, 5+j.priority)
	if j.timeout != reserveFor {
		fmt.Fprintf(&b, `,"reserve_for":%d`, j.timeout/1000)
	}
	if at != 0 {
		fmt.Fprintf(&b, `,"at":%q`, time.UnixMilli(at).UTC().Format(time.RFC3339Nano))
	}
	if unique > 0 {
		fmt.Fprintf(&b, `,"custom":{"unique_for":%d}`, unique)
	}
	return b.String() + "}\r\n"
}

// pushAgain pushes, at once, a job with the arguments of one that is unique.
func (s *Simulator) pushAgain(c *Conn) {
	s.settle()
	if len(c.outgoing) > 0 || c.peer.Closed() || s.ledger.full {
		return
	}
	for _, j := range s.ledger.jobs {
		if j.by == ofFaktory && j.inServer == sure && j.turn < s.ledger.turn && max(s.ledger.wall, s.server.Now().Wall) < j.uniqueUntil && !s.ledger.waitsUnread(j) {
			r := &Request{cmd: periodic.SubmitJob, refused: true, job: j, lineRequest: lineRequest{word: "NOTUNIQUE"}}
			c.askLine(r, pushed(j, s.ledger.queues[j.queue], j.name+" again", 0, 1))
			s.trace.Logf("c%d pushes %v again", c.id, j)
			s.deliverAll(c)
			return
		}
	}
}

// fetch asks for a job of some queues.
func (s *Simulator) fetch(c *Conn) {
	var queues []int
	for _, i := range s.rng.Perm(workedQueues)[:1+s.rng.IntN(workedQueues)] {
		queues = append(queues, i)
	}
	text := "FETCH"
	for _, i := range queues {
		text += " " + s.ledger.queues[i]
	}
	r := &Request{cmd: periodic.GrabJob}
	r.onArrival = func() {
		r.until = s.server.Now().Mono + fetchWait
		for i := range c.servedQueues {
			is := slices.Contains(queues, i)
			if c.servedQueues[i] && !is {
				c.stoppedServing[i] = past(s.ledger.turn)
			}
			c.servedQueues[i] = is
		}
	}
	c.grabs++
	c.askLine(r, text+"\r\n")
	s.trace.Logf("c%d fetches from %v", c.id, queues)
}

// reportFetched reports a job on any connection.
func (s *Simulator) reportFetched(c *Conn, x *Lease, fails bool) {
	r := &Request{cmd: periodic.WorkDone, job: x.job, lineRequest: lineRequest{word: "ACK"}}
	text := fmt.Sprintf("ACK {\"jid\":%q}\r\n", x.token)
	if fails {
		r.cmd, r.word = periodic.WorkFail, "FAIL"
		text = fmt.Sprintf("FAIL {\"jid\":%q,\"errtype\":\"E\",\"message\":\"it failed\",\"backtrace\":[\"a\",\"b\"]}\r\n", x.token)
	}
	r.onArrival = func() { r.effect = s.ledger.fetchedReported(x, fails) }
	c.askLine(r, text)
	s.trace.Logf("c%d says %s of %v, which c%d has fetched", c.id, r.word, x.job, x.conn.id)
}

// acknowledgeFetched acknowledges on c, at the end of a play, all jobs that are fetched; false: there are none.
func (s *Simulator) acknowledgeFetched(c *Conn) (any bool) {
	for _, x := range s.ledger.granted {
		if x.conn.peerKind == faktoryPeer && x.token != "" && s.ledger.isLive(x) {
			s.reportFetched(c, x, false)
			any = true
		}
	}
	return any
}

// adoptFetched finds out which jobs were fetched on connections that have ended without the answer.
func (s *Simulator) adoptFetched() {
	for _, c := range s.net.conns {
		if c.peerKind != faktoryPeer || !c.peer.Closed() || c.adopted || !c.waitsForJob() {
			continue
		}
		c.adopted = true
		for _, seen := range s.seeLeases(faktoryWorker) {
			if x := c.leases[seen.job]; seen.conn == c && (x == nil || x.over()) {
				x = s.ledger.leased(c, seen.job, seen.Queue, seen.Name, seen.Until, s.ledger.reservation(seen.job))
				if x.job.by == ofFaktory {
					x.token = x.job.name
				}
			}
		}
	}
}
