//go:build invariants

package sim

import (
	"slices"

	"treadle/codec/admin"
	"treadle/codec/periodic"
)

// Peers of beanstalkd's protocol and of Faktory's speak in lines. Each is a submitter and a worker in one, and has its
// answers in the order of its requests. It asks for a job when it has all answers, and waits for that one before it
// sends anything else: an answer that waits for the disk would hold back the job behind it. It never reads slowly.
//
// Their requests have the commands of the Periodic protocol that mean the same to the ledger.

// readJob is a job that a peer holds when it has read so many bytes.
type readJob struct {
	at    int
	job   heldJob
	lease *Lease // of a worker of Faktory
}

// askLine puts a request on its way.
func (c *Conn) askLine(r *Request, text string) {
	c.next++
	r.id = c.next
	c.outgoing = append(c.outgoing, text...)
	c.mark(r, 0)
}

// hasAllAnswers reports whether a peer has asked nothing that has no answer yet.
func (c *Conn) hasAllAnswers() bool { return len(c.requests)+len(c.marks) == 0 }

// waitsForJob reports whether a request for a job has arrived that has no answer yet.
func (c *Conn) waitsForJob() bool {
	for _, r := range c.requests {
		if r.cmd == periodic.GrabJob {
			return true
		}
	}
	return false
}

// answered takes the oldest request: answers come in the order of the requests.
func (l *Ledger) answered(c *Conn, answer []byte) *Request {
	var oldest *Request
	for _, r := range c.requests {
		if oldest == nil || r.id < oldest.id {
			oldest = r
		}
	}
	if oldest == nil {
		l.trace.Failf("c%d is sent %q, although it waits for nothing", c.id, brief(answer))
	}
	delete(c.requests, oldest.id)
	if oldest.cmd == periodic.GrabJob {
		c.grabs--
	}
	return oldest
}

// checkSynced checks an answer that is sent when the change is on disk.
func (l *Ledger) checkSynced(c *Conn, r *Request) {
	l.checkOnDisk(r.synced, "c%d is answered %s of %v", c.id, r.word, r.job)
}

// checkEffect checks that the server has done what a request asks for, or that it has not, as far as that is known.
func (l *Ledger) checkEffect(c *Conn, r *Request, done bool) {
	l.trace.Logf("c%d is told of its %s of %v: %v", c.id, r.word, r.job, done)
	if done && r.effect == no || !done && r.effect == sure {
		l.trace.Failf("c%d asks for %s of %v: done is %v, although it holds %v", c.id, r.word, r.job, done, r.job.holder == c)
	}
	if done {
		l.checkSynced(c, r)
	}
}

// readLines has a peer read n bytes. It holds the jobs in them then.
func (s *Simulator) readLines(c *Conn, n int) {
	for c.readBytes += n; len(c.unread) > 0 && c.unread[0].at <= c.readBytes; c.unread = c.unread[1:] {
		switch job := c.unread[0]; {
		case job.lease != nil:
			s.net.fetched = append(s.net.fetched, job.lease)
		default:
			c.held = append(slices.DeleteFunc(c.held, func(h heldJob) bool { return h.job == job.job.job }), job.job)
		}
	}
}

// leastInLines is the number of peers that speak in lines below which a step opens another.
const leastInLines = 3

// lineStep lets a peer do some things, one after the other as its program would.
func (s *Simulator) lineStep() {
	all := slices.DeleteFunc(slices.Clone(s.net.conns), func(c *Conn) bool { return !c.inLines() || c.halfClosing || c.peer.Closed() })
	if len(all) < leastInLines {
		s.connect([]peerKind{beanstalkPeer, faktoryPeer}[s.rng.IntN(2)])
		return
	}
	c := all[s.rng.IntN(len(all))]
	for range 1 + s.rng.IntN(4) {
		s.exchange(c)
		if s.rng.IntN(4) == 0 {
			s.commit()
		}
		s.actInLines(c)
	}
}

// actInLines lets a peer do one thing.
func (s *Simulator) actInLines(c *Conn) {
	switch {
	case c.grabs > 0:
	case s.rng.IntN(malformedOnceIn) == 0:
		c.askLine(&Request{refused: true}, "mumble\r\n")
		s.trace.Logf("c%d sends a malformed request", c.id)
	case c.peerKind == beanstalkPeer:
		s.actAsBeanstalk(c)
	default:
		s.actAsFaktory(c)
	}
}

// auditLines compares the jobs of beanstalkd's protocol and of Faktory on the server with the ledger, which knows then
// whether each of them is there.
func (s *Simulator) auditLines() {
	there := map[*Job]bool{}
	for _, filter := range []string{"protocol:beanstalk", "protocol:faktory"} {
		for _, x := range s.seeJobs(filter) {
			if there[x.job] {
				s.trace.Failf("%v is on the server twice", x.job)
			}
			there[x.job] = true
			s.ledger.seen(&x)
		}
	}
	for _, j := range s.ledger.jobs {
		switch {
		case j.by != ofBeanstalk && j.by != ofFaktory || there[j]:
		case j.inServer == sure && !s.ledger.waitsUnread(j):
			s.trace.Failf("%v is not on the server, or is lost", j)
		case j.inServer == maybe:
			s.ledger.end(j)
		}
	}
}

// seen notes what the server shows of a job of beanstalkd's protocol or of Faktory.
func (l *Ledger) seen(x *seenJob) {
	j := x.job
	if !l.hasName(j, x.Name) || !l.isIn(j, x.Queue) || j.inServer == no && j.by == ofBeanstalk {
		l.trace.Failf("%v is %s as %q of %q, although it has ended or is another's", j, x.State, x.Name, x.Queue)
	}
	failed := certainty(no)
	if x.State == admin.StateFailed {
		failed = sure
	}
	switch {
	case j.by == ofFaktory && failed == sure:
		l.end(j) // nobody has it tried again
	case j.by == ofFaktory && j.inServer == no:
		l.trace.Failf("%v is %s, although it has ended", j, x.State)
	case j.buried != maybe && j.buried != failed && !l.waitsUnread(j):
		l.trace.Failf("%v is %s, buried: %v", j, x.State, j.buried)
	default:
		j.inServer, j.buried = sure, failed
	}
}
