package faktory

import (
	"bytes"

	codec "treadle/codec/faktory"
	"treadle/codec/jsontext"
	"treadle/loop/protocol"
	"treadle/sched"
)

const (
	// fetchWait is how long a FETCH waits for a job, in milliseconds.
	fetchWait = 2000
	// maxFetchQueues bounds the queues of a FETCH: each is looked into.
	maxFetchQueues = 256
	// fetchTag is the tag of the one Reserve of a connection.
	fetchTag = 1
)

// fetch handles a FETCH, which names queues in the order in which it is to look into them.
func (c *conversation) fetch(text []byte) {
	if len(text) == 0 {
		c.answerError("FETCH needs a queue")
		return
	}
	if n := bytes.Count(text, []byte{' '}); n >= maxFetchQueues {
		c.answerError("a FETCH has at most 256 queues")
		return
	}
	if c.worker != nil && state(c.worker.state.Load()) != running {
		c.answerNullLater()
		return
	}
	queues, err := c.watch(text)
	switch {
	case err != nil:
		c.refuse(err)
		return
	case len(queues) == 0:
		c.answerNullLater()
		return
	}
	loop, s, peer := c.s.Loop, c.p.sched, c.s.Peer()
	c.fetching, c.idle = true, false
	if len(queues) > 1 {
		for _, q := range queues {
			onItsWay, err := s.TryReserveOf(loop.Now, peer, q, fetchTag, loop.Sink)
			if err != nil {
				c.endFetch(c.p.refusal(err))
				return
			}
			if !c.fetching {
				return
			}
			if onItsWay {
				c.wait()
				return
			}
		}
	}
	if err := s.Reserve(loop.Now, peer, fetchTag, loop.Sink); err != nil {
		c.endFetch(c.p.refusal(err))
		return
	}
	if c.fetching {
		c.wait()
	}
}

// watch has the peer watch the queues of a FETCH that are not paused, and no others. It returns them in their order.
func (c *conversation) watch(text []byte) (queues [][]byte, err error) {
	loop, s := c.s.Loop, c.p.sched
	if c.watched == nil {
		c.watched = make(map[string]uint32)
	}
	c.fetches++
	for q := range bytes.SplitSeq(text, []byte{' '}) {
		if len(q) == 0 || len(q) > codec.MaxQueue || c.p.paused.has(q) {
			continue
		}
		q = protocol.Queue(q)
		seen, watches := c.watched[string(q)]
		if watches && seen == c.fetches {
			continue
		}
		if !watches {
			if err := s.Watch(loop.Now, c.s.Peer(), q, false, loop.Sink); err != nil {
				return nil, err
			}
		}
		c.watched[string(q)] = c.fetches
		queues = append(queues, q)
	}
	if len(queues) < len(c.watched) {
		for q, seen := range c.watched {
			if seen != c.fetches {
				s.Unwatch(c.s.Peer(), []byte(q))
				delete(c.watched, q)
			}
		}
	}
	return queues, nil
}

// answerNullLater answers a FETCH that may not have a job, as slowly as one that found none: the client asks again at
// once.
func (c *conversation) answerNullLater() {
	c.fetching, c.idle = true, true
	c.wait()
}

// wait suspends the session until the FETCH is answered.
func (c *conversation) wait() {
	c.s.Alarm(c.s.Loop.Now.Mono + fetchWait)
	c.s.Suspend()
}

func (c *conversation) endFetch(reply []byte) {
	c.fetching = false
	c.s.Reply(reply)
	c.s.Resume()
}

// assign answers a FETCH with a job.
func (c *conversation) assign(d *sched.Delivery) {
	j, loop := &d.Job, c.s.Loop
	if j.Space == Space {
		if d.History == nil && j.SchedAt == 0 { // fast path
			c.replyBulk(j.Workload)
			return
		}
		failure := lastFailure(j, d.History)
		loop.Scratch = codec.AppendFetched(loop.Scratch[:0], j.Workload, failure, timestamp(j.Due*1000))
		c.replyBulk(loop.Scratch)
		return
	}
	var arg []byte
	if asJSON := loop.Spaces[j.Space].AsJSON; asJSON != nil {
		arg = asJSON(nil, j)
	} else {
		arg, _ = jsontext.AppendValue(nil, j.Workload)
	}
	function, _ := protocol.Function(j.Queue)
	jid := sched.Token{Number: j.RunNumber, Secret: c.secret}.String()
	loop.Scratch = codec.AppendForeign(loop.Scratch[:0], jid, function, j.Name, arg, timestamp(loop.Now.WallMicros))
	c.replyBulk(loop.Scratch)
}

// lease finds the lease of a job by its jid. own reports whether it is a job of Faktory's protocol. The jid of another
// protocol's job is the lease itself.
func (p *Protocol) lease(jid []byte) (token sched.Token, own bool, err error) {
	if token, own = p.sched.FindLease(Space, jid); own {
		return token, true, nil
	}
	token, err = sched.ParseToken(string(jid))
	return token, false, err
}

// ack handles an ACK. Faktory accepts one of a job that is not reserved, so that a worker may repeat it.
func (c *conversation) ack(text []byte) {
	var scratch [codec.MaxJID]byte
	jid, ok := codec.Ack(scratch[:0], text)
	if !ok {
		c.answerError("ACK needs a JSON object of strings with a jid")
		return
	}
	token, own, err := c.p.lease(jid)
	var result []byte
	if err == nil && !own {
		result, err = c.emptyResult(token)
	}
	if err == nil {
		err = c.p.sched.FinishLeased(c.s.Loop.Now, token, result, c.s.Loop.Sink)
	}
	if err != nil {
		c.logLate("ACK", jid)
	}
	c.s.Reply(replyOK)
}

// emptyResult returns what an ACK is in the protocol of a leased job: an ACK has no result.
func (c *conversation) emptyResult(token sched.Token) ([]byte, error) {
	var space sched.Space
	if err := c.p.sched.ViewLeased(token, func(j *sched.Job, _ string, _ int64) { space = j.Space }); err != nil {
		return nil, err
	}
	return c.s.Loop.Result(space, nil), nil
}

// fail handles a FAIL.
func (c *conversation) fail(text []byte) {
	f, err := codec.Parse[codec.Failure](text)
	if err != nil {
		c.answerError("FAIL needs a JSON object with jid, errtype, message and backtrace")
		return
	}
	if f.JID == "" {
		c.answerError("FAIL needs a jid")
		return
	}
	loop := c.s.Loop
	token, _, err := c.p.lease([]byte(f.JID))
	if err == nil {
		before := c.p.tracks.states(f.JID)
		if err = c.p.sched.FailLeased(loop.Now, token, appendFailure(nil, f), -1, loop.Sink); err == nil {
			c.p.tracks.failed(f.JID, before, loop.Now)
		}
	}
	if err != nil {
		c.logLate("FAIL", []byte(f.JID))
		c.answerError("no job is reserved with the jid " + shortText(f.JID))
		return
	}
	c.s.Reply(replyOK)
}

// logLate logs a report on a job that is not reserved.
func (c *conversation) logLate(report string, jid []byte) {
	c.s.LogLate(report, func() (queue, name string) { return "", shortText(jid) })
}
