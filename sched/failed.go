package sched

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// Outcome is how one attempt at a job ended.
type Outcome uint8

// The outcomes. The numbers are on disk.
const (
	attemptFailed   Outcome = iota + 1 // the worker reported a failure
	attemptTimedOut                    // its time-out had passed
	attemptLeft                        // the worker left
	attemptRetried                     // no attempt: a person had the failed job tried again
	attemptMoved                       // no attempt: the job came from another queue, whose name is the text
	attemptDone                        // the worker did the job
	attemptExpired                     // no attempt: the job was not handed out within its queue's job-ttl
	attemptBuried                      // the worker asked that the job is not tried again before it is kicked
)

var outcomeNames = [...]string{attemptFailed: "failed", attemptTimedOut: "timed out", attemptLeft: "worker left",
	attemptRetried: "retried by hand", attemptMoved: "moved", attemptDone: "done", attemptExpired: "expired", attemptBuried: "buried"}

// String returns the outcome as people read it.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) && o != 0 {
		return outcomeNames[o]
	}
	return "unknown"
}

// Attempt is an entry of the history of a job: how an attempt ended, or what an operator did.
type Attempt struct {
	At      int64 // Unix milliseconds
	Outcome Outcome
	Worker  string // its protocol and address; empty: none
	Text    string // the error, in the worker's words
}

// Failed reports whether the entry is a failure.
func (a *Attempt) Failed() bool {
	return a.Outcome == attemptFailed || a.Outcome == attemptTimedOut || a.Outcome == attemptLeft
}

// TimedOut reports whether the attempt failed because its time-out had passed.
func (a *Attempt) TimedOut() bool { return a.Outcome == attemptTimedOut }

// Left reports whether the attempt failed because its worker left.
func (a *Attempt) Left() bool { return a.Outcome == attemptLeft }

// Cause returns the error text of an entry. For a failure without a text it says how the attempt ended. It is empty
// when the entry has no error.
func (a *Attempt) Cause() string {
	switch {
	case a.Outcome == attemptMoved: // the text is the name of a queue
		return ""
	case a.Text == "" && a.Failed():
		return a.Outcome.String()
	}
	return a.Text
}

// LastCause returns the last error of a history; empty: there is none.
func LastCause(all []Attempt) string {
	for i := range slices.Backward(all) {
		if cause := all[i].Cause(); cause != "" {
			return cause
		}
	}
	return ""
}

// FailedAttempt returns the entry of a failure that a worker reported.
func FailedAttempt(at int64, worker, text string) Attempt {
	return Attempt{At: at, Outcome: attemptFailed, Worker: worker, Text: text}
}

// Bounds of a history. A million failed jobs of four attempts by four workers, with four error texts of 30 bytes, take
// less than 400 MB beside their payloads: see TestFailedMemory.
const (
	// lastTextBytes is how much of an error text is kept without Rules.RetryRules: its end, which says what happened.
	lastTextBytes = 512
	// commonAttempts is how many attempts are read without another allocation: garbage of many sizes would leave holes
	// between what a million failed jobs keep.
	commonAttempts = 8
	// maxHistory bounds the bytes of a history. New entries displace the oldest ones. With Rules.RetryRules the bound
	// is larger by RetryRules.Text, and the first entry stays.
	maxHistory = 2 << 10
	// MaxFailureText bounds RetryRules.Text: the kept beginning may have fifty lines of a stack trace.
	MaxFailureText = 8 << 10
	// olderText is how much RetryRules leaves of an error text when the job fails again: its beginning.
	olderText = 200
)

// A history is uvarint(tries), then the entries: the outcome, varint(milliseconds since the entry before) and two
// texts, the worker and the error. A text is uvarint(length of the prefix that it shares with the text of the entry
// before), uvarint(length of the rest) and the rest. The prefix saves most of the bytes when a job fails again for the
// same reason. tries counts the attempts since the job was submitted, moved or retried by hand.

// arenaRef is where a history or a result lies in the arena.
type arenaRef struct{ bytes, size uint32 }

// history returns a job's history as a view, nil when it has none.
func (sh *shard) history(job uint32, r *record) []byte {
	if r.flags&hasHistory == 0 {
		return nil
	}
	h := sh.histories[job]
	return sh.arena.view(h.bytes, int(h.size))
}

// setHistory replaces a job's history. Without memory for it the job has none: it is tried again from the start.
func (sh *shard) setHistory(job uint32, r *record, history []byte) {
	bytes, dst, ok := sh.arena.alloc(len(history))
	if !ok {
		sh.dropHistory(job, r)
		return
	}
	copy(dst, history)
	if r.flags&hasHistory != 0 {
		sh.freeBytes(sh.histories[job].bytes)
	}
	r.flags |= hasHistory
	sh.histories[job] = arenaRef{bytes, uint32(len(history))}
}

func (sh *shard) dropHistory(job uint32, r *record) {
	if r.flags&hasHistory == 0 {
		return
	}
	r.flags &^= hasHistory
	sh.freeBytes(sh.histories[job].bytes)
	if delete(sh.histories, job); len(sh.histories) == 0 {
		sh.histories = make(map[uint32]arenaRef) // a map keeps the room of all that it ever had
	}
}

// addAttempt adds an entry to a job's history and returns the tries with it.
func (sh *shard) addAttempt(job uint32, r *record, a Attempt) (tries int32) {
	history, n := withAttempt(sh.history(job, r), a, sh.s.rules[r.space].RetryRules)
	sh.setHistory(job, r, history)
	return int32(n)
}

// withAttempt returns a history with one more entry, and the tries with it. f is the rule of the job's space or nil.
func withAttempt(old []byte, a Attempt, f *RetryRules) (history []byte, n uint64) {
	n, all := ParseHistory(old)
	switch a.Outcome {
	case attemptRetried, attemptMoved:
		n = 0
	case attemptExpired:
	default:
		n++
	}
	if f == nil {
		return appendHistory(nil, n, append(all, a), maxHistory, 0), n
	}
	if last := len(all) - 1; last >= 0 {
		all[last].Text = firstText(all[last].Text, olderText)
	}
	return appendHistory(nil, n, append(all, a), maxHistory+f.Text, 1), n
}

// ParseHistory reads a history: the number of attempts since the job was submitted, moved or retried by hand, and the
// entries, the oldest first. It leaves out the entries from a damaged one on.
func ParseHistory(history []byte) (tries uint64, all []Attempt) {
	tries, n := binary.Uvarint(history)
	all = make([]Attempt, 0, commonAttempts)
	var a Attempt
	for b := history[max(n, 0):]; len(b) > 0; {
		a.Outcome = Outcome(b[0])
		since, n := binary.Varint(b[1:])
		if n <= 0 {
			break
		}
		a.At += since
		b = b[1+n:]
		var workerOK, textOK bool
		a.Worker, b, workerOK = readText(b, a.Worker)
		a.Text, b, textOK = readText(b, a.Text)
		if !workerOK || !textOK {
			break
		}
		all = append(all, a)
	}
	return tries, all
}

// readText reads a text of an entry. before is the same text of the entry before.
func readText(b []byte, before string) (text string, rest []byte, ok bool) {
	shared, n := binary.Uvarint(b)
	if n <= 0 || shared > uint64(len(before)) {
		return "", nil, false
	}
	b = b[n:]
	more, n := binary.Uvarint(b)
	if n <= 0 || more > uint64(len(b)-n) {
		return "", nil, false
	}
	end := n + int(more)
	return before[:shared] + string(b[n:end]), b[end:], true
}

// AppendHistory appends a history that ParseHistory reads. It drops the oldest entries if there is no room for all.
func AppendHistory(dst []byte, tries uint64, all []Attempt) []byte {
	return appendHistory(dst, tries, all, maxHistory+MaxFailureText, 0)
}

// appendHistory appends a history. It drops entries from index keepFirst on until the rest fits maxBytes. all is
// overwritten.
func appendHistory(dst []byte, tries uint64, all []Attempt, maxBytes, keepFirst int) []byte {
	start := len(dst)
	for {
		dst = binary.AppendUvarint(dst[:start], tries)
		var before Attempt
		for i := range all {
			dst = appendAttempt(dst, all[i], &before)
		}
		if len(dst)-start <= maxBytes {
			return dst
		}
		drop := min(keepFirst, len(all)-1)
		all = slices.Delete(all, drop, drop+1)
	}
}

// appendAttempt appends an entry. before is the entry before it, and becomes this entry.
func appendAttempt(dst []byte, a Attempt, before *Attempt) []byte {
	a.At, a.Worker, a.Text = max(a.At, 0), lastText(a.Worker), firstText(a.Text, MaxFailureText)
	dst = binary.AppendVarint(append(dst, byte(a.Outcome)), a.At-before.At)
	dst = appendText(appendText(dst, a.Worker, before.Worker), a.Text, before.Text)
	*before = a
	return dst
}

// appendText appends a text of an entry. before is the same text of the entry before.
func appendText(dst []byte, text, before string) []byte {
	shared := 0
	for shared < min(len(text), len(before)) && text[shared] == before[shared] {
		shared++
	}
	dst = binary.AppendUvarint(dst, uint64(shared))
	return append(binary.AppendUvarint(dst, uint64(len(text)-shared)), text[shared:]...)
}

// failWithRetries is fail for a job whose retries the policy of its queue counts, or the Rules.RetryRules of its space:
// the job is delayed, or given up.
func (sh *shard) failWithRetries(now Time, job uint32, r *record, q *queue, a Attempt, delay int64, sink Sink) {
	a.At = now.Wall
	tries, f := sh.addAttempt(job, r, a), sh.s.rules[r.space].RetryRules
	if retries, limited := r.retries(q.policy, f); !limited || tries <= retries {
		if delay < 0 {
			delay = backoff(q.policy, f, tries, sh.s.jitterBits(r.seq, tries))
		}
		sh.release(now, job, r, q, now.Wall+min(delay, longestDelay), sink)
		return
	}
	q.tally.Ended[a.jobEnd()]++
	if sh.counters.GivenUp++; f != nil && r.count == 0 {
		sh.end(job, r, q, Failed, nil, sink)
		return
	}
	sh.giveUp(now, job, r, q, sink)
}

// retries returns how often a job is tried again, unless that has no limit.
func (r *record) retries(p *Policy, f *RetryRules) (n int32, limited bool) {
	switch {
	case f != nil && r.count != AnyRetries:
		return max(r.count, 0), true
	case f != nil && (p == nil || !p.Limited):
		return f.Retries, true
	}
	return p.Retries, p.Limited
}

// backoff returns the milliseconds before a retry.
func backoff(p *Policy, f *RetryRules, retry int32, chance uint64) int64 {
	if f != nil && (p == nil || p.Backoff.First == 0) {
		return f.Backoff(retry, chance)
	}
	return p.Backoff.delay(int(retry), chance)
}

// hasRetries reports whether failWithRetries handles a failure of a job, whose space has no Rules.MaxFailures. It does
// in a space with Rules.RetryRules, policy or not. Under a policy with retries or a back-off it does too, except for
// tasks and for jobs that end with their owner.
func (sh *shard) hasRetries(r *record, q *queue) bool {
	p := q.policy
	return sh.s.rules[r.space].RetryRules != nil || p != nil && (p.Limited || p.Backoff.First > 0) && r.flags&(task|orphan) == 0 && !sh.s.rules[r.space].Owned
}

// giveUp ends a detached job that is not tried again: it is kept as failed, unless the policy keeps none.
func (sh *shard) giveUp(now Time, job uint32, r *record, q *queue, sink Sink) {
	if p := q.policy; q.keepFor(keptFailed, sh.s) == (Keep{}) && (p == nil || p.DeadLetter == "") {
		sh.end(job, r, q, Failed, nil, sink)
		return
	}
	use := keptFailed
	if p := q.policy; r.flags&numbered != 0 && (p == nil || p.DeadLetter == "") {
		use = keptBuried
	}
	sh.addCount(r, atBuried)
	sh.keepFailed(now, job, r, q, use, sink)
}

// keepFailed keeps a detached job as failed.
func (sh *shard) keepFailed(now Time, job uint32, r *record, q *queue, use keptUse, sink Sink) {
	sh.retire(job, r, q, Failed, nil, sink)
	r.due = now.Wall
	if use == keptBuried {
		r.due = sh.afterBuried(q, now.Wall)
	}
	sh.indexEndedName(job, r, q, false)
	sh.keep(job, r, q, use)
	sh.save(job, r, q)
}

// lastText returns the end of a text that a history keeps.
func lastText[T string | []byte](text T) string {
	return string(text[max(0, len(text)-lastTextBytes):])
}

// errorText returns what may be kept of the error text of a job.
func (sh *shard) errorText(r *record, text []byte) string {
	if f := sh.s.rules[r.space].RetryRules; f != nil {
		return firstText(string(text[:min(len(text), f.Text+utf8.UTFMax)]), f.Text)
	}
	return lastText(text)
}

// firstText returns the beginning of a text, without a part of a character at the end.
func firstText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
