package admin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// maxWait bounds how long a submission waits for the end of its job: proxies close connections without a byte after
// about a minute, others after five.
const maxWait = 5 * time.Minute

// jobEnd is how a job ended, for one wait.
type jobEnd struct {
	came   chan struct{} // holds a token when the job has ended; the others are set before
	effect sched.Effect
	data   []byte // the result, which counts among results until it is in an answer
	lost   bool   // there was no room for the result
	// history is the history of a failed job, a few KiB at most.
	history []byte
}

// memoryBudget bounds the bytes of copies that are held for a moment. A copy that is alone may have any size.
type memoryBudget struct {
	used atomic.Int64
	max  int64
}

// take reports whether there is room for a copy of n bytes. It counts them if there is.
func (r *memoryBudget) take(n int) bool {
	if used := r.used.Add(int64(n)); used > max(r.max, int64(n)) {
		r.give(n)
		return false
	}
	return true
}

// give ends the count of a copy.
func (r *memoryBudget) give(n int) { r.used.Add(-int64(n)) }

// waited is the answer to a submission that has waited. Its result counts among results until it is encoded.
type waited struct {
	codec.Submitted
	resultBytes int
}

// lostResult is the error of a wait whose result did not fit beside those of others.
type lostResult struct{ error }

// states are the words for the ends of a wait.
var states = map[sched.Effect]string{
	sched.Result: "done", sched.Failed: "failed", sched.Removed: "removed", sched.AwaitTimedOut: "pending",
}

// deliverEnd takes the end of a job that a submission waits for. It runs under a shard's lock.
func (api *API) deliverEnd(d *sched.Delivery) {
	end, ok := api.waits.remove(d.Tag)
	if !ok {
		return
	}
	end.effect, end.history = d.Effect, bytes.Clone(d.History)
	if d.Effect == sched.Result {
		if end.lost = !api.results.take(len(d.Data)); !end.lost {
			end.data = bytes.Clone(d.Data)
		}
	}
	end.came <- struct{}{} // it has room for one
}

// submitAndWait submits a job, calls submitted, and waits for the job's end, at most so long. The job stays when the
// wait ends before.
func (api *API) submitAndWait(ctx context.Context, s *sched.Submission, limit time.Duration, answer codec.Submitted,
	sink protocol.Sink, submitted func()) (any, error) {
	if limit > maxWait {
		return nil, badf("the wait of %v is longer than %v", limit, maxWait)
	}
	end := &jobEnd{came: make(chan struct{}, 1)}
	tag := api.waits.add(end)
	defer api.waits.remove(tag)
	s.Await, s.Tag, s.Stays = api.awaiter, tag, true
	if err := api.submit(s, sink); err != nil {
		return nil, err
	}
	sink.Wake()
	s.Queue, s.Name, s.Workload = bytes.Clone(s.Queue), bytes.Clone(s.Name), nil // a wait does not hold the body
	submitted()
	if err := api.commitOf(s.Queue); err != nil {
		return nil, err
	}
	if api.host.Wait(ctx, api.closed, end.came, limit) {
		return waitAnswer(answer, end)
	}
	api.host.Sched().TimeOutAwait(api.host.Now(), api.awaiter, tag, s.Space, s.Queue, s.Name, sink)
	sink.Wake()
	select {
	case <-end.came: // the job may have ended before
		return waitAnswer(answer, end)
	default:
		answer.State = states[sched.AwaitTimedOut]
		return &answer, nil
	}
}

// waitAnswer returns the answer to a submission whose wait has ended.
func waitAnswer(answer codec.Submitted, e *jobEnd) (any, error) {
	if e.lost {
		return nil, &lostResult{errors.New("the job is done, but there is no room for its result beside those of other waits")}
	}
	switch answer.State = states[e.effect]; e.effect {
	case sched.Result:
	case sched.Failed:
		answer.Error = failure(e.history)
		return &answer, nil
	default:
		return &answer, nil
	}
	if text := string(e.data); utf8.ValidString(text) {
		answer.Result = &text
	} else {
		answer.ResultBytes = e.data
	}
	return &waited{answer, len(e.data)}, nil
}

// failure returns why a job has failed for good: the last error of its attempts. A job without one has expired.
func failure(history []byte) string {
	_, all := sched.ParseHistory(history)
	return strings.ToValidUTF8(cmp.Or(sched.LastCause(all), "expired"), "�")
}
