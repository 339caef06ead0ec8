package admin

import (
	"bytes"
	"context"
	"time"
	"unicode/utf8"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// maxWait bounds how long a submission waits for the end of its job: proxies close connections without a byte after about
// a minute, others after five.
const maxWait = 5 * time.Minute

// ending is how a job ended, for one wait.
type ending struct {
	effect sched.Effect
	data   []byte
}

// states are the words for the ends of a wait.
var states = map[sched.Effect]string{
	sched.Result: "done", sched.Failed: "failed", sched.Removed: "removed", sched.Expired: "pending",
}

// deliverEnd takes the end of a job that a submission waits for. It runs under a shard's lock.
func (i *Interface) deliverEnd(d *sched.Delivery) {
	if end, ok := i.waits.remove(d.Tag); ok {
		end <- ending{d.Effect, bytes.Clone(d.Data)} // it has room for one
	}
}

// submitAndWait submits a job and waits for its end, at most so long. The job stays when the wait ends before.
func (i *Interface) submitAndWait(ctx context.Context, s *sched.Submission, limit time.Duration, answer *codec.Submitted, sink protocol.Sink) error {
	if limit > maxWait {
		return badf("the wait of %v is longer than %v", limit, maxWait)
	}
	end := make(chan ending, 1)
	tag := i.waits.add(end)
	defer i.waits.remove(tag)
	s.Await, s.Tag, s.Stays = i.awaiter, tag, true
	if err := i.submit(s, sink); err != nil {
		return err
	}
	sink.Wake()
	if err := i.commitOf(s.Queue); err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case e := <-end:
		show(answer, e)
		return nil
	case <-timer.C:
	case <-ctx.Done():
	case <-i.closed:
	}
	i.host.Sched().ExpireAwait(i.host.Now(), i.awaiter, tag, s.Space, s.Queue, s.Name, sink)
	sink.Wake()
	select {
	case e := <-end: // the job may have ended before
		show(answer, e)
		return nil
	default:
		answer.State = states[sched.Expired]
		return nil
	}
}

// show says how a wait ended.
func show(answer *codec.Submitted, e ending) {
	if answer.State = states[e.effect]; e.effect != sched.Result {
		return
	}
	if text := string(e.data); utf8.ValidString(text) {
		answer.Result = &text
	} else {
		answer.ResultBytes = e.data
	}
}
