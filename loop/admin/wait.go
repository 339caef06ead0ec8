package admin

import (
	"bytes"
	"context"
	"sync"
	"time"
	"unicode/utf8"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// maxWait bounds how long a submission waits for the end of its job: proxies close connections without a byte after about
// a minute, others after five.
const maxWait = 5 * time.Minute

// waits are the submissions that wait for the ends of their jobs.
type waits struct {
	peer   *sched.Peer
	closed chan struct{}

	mu   sync.Mutex
	last uint64
	ends map[uint64]chan ending // by tag
}

// ending is how a job ended, for one wait.
type ending struct {
	effect sched.Effect
	data   []byte
}

// states are the words for the ends of a wait.
var states = map[sched.Effect]string{
	sched.Result: "done", sched.Failed: "failed", sched.Removed: "removed", sched.Expired: "pending",
}

func newWaits(host protocol.Host) *waits {
	w := &waits{closed: make(chan struct{}), ends: make(map[uint64]chan ending)}
	w.peer = host.NewLocalPeer(w.deliver)
	return w
}

// deliver takes the end of a job. It runs under a shard's lock.
func (w *waits) deliver(d *sched.Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end, ok := w.ends[d.Tag]; ok {
		delete(w.ends, d.Tag)
		end <- ending{d.Effect, bytes.Clone(d.Data)}
	}
}

// begin begins a wait under a new tag.
func (w *waits) begin() (tag uint64, end chan ending) {
	end = make(chan ending, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	w.ends[w.last] = end
	return w.last, end
}

// stop ends a wait without an end.
func (w *waits) stop(tag uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ends, tag)
}

// submitAndWait submits a job and waits for its end, at most so long. The job stays when the wait ends before.
func (i *Interface) submitAndWait(ctx context.Context, s *sched.Submission, limit time.Duration, answer *codec.Submitted, sink protocol.Sink) error {
	if limit > maxWait {
		return badf("the wait of %v is longer than %v", limit, maxWait)
	}
	tag, end := i.waits.begin()
	defer i.waits.stop(tag)
	s.Await, s.Tag, s.Stays = i.waits.peer, tag, true
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
	case <-i.waits.closed:
	}
	i.host.Sched().ExpireAwait(i.host.Now(), i.waits.peer, tag, s.Space, s.Queue, s.Name, sink)
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
