package sched

import "encoding/binary"

// Outcome is how one attempt at a job ended.
type Outcome uint8

// The outcomes. The numbers are on disk.
const (
	AttemptFailed   Outcome = iota + 1 // the worker reported a failure
	AttemptTimedOut                    // its time-out had passed
	AttemptLeft                        // the worker left
	AttemptRetried                     // no attempt: a person had the failed job tried again
	AttemptMoved                       // no attempt: the job came from another queue, whose name is the text
	AttemptDone                        // the worker did the job
	AttemptExpired                     // no attempt: the job was not handed out within its queue's job-ttl
)

var outcomeNames = [...]string{AttemptFailed: "failed", AttemptTimedOut: "timed out", AttemptLeft: "worker left", AttemptRetried: "retried by hand", AttemptMoved: "moved", AttemptDone: "done", AttemptExpired: "expired"}

// String returns the outcome as people read it.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) && o != 0 {
		return outcomeNames[o]
	}
	return "unknown"
}

// Attempt is an entry of the history of a job whose queue has a policy.
type Attempt struct {
	At      int64 // Unix milliseconds
	Outcome Outcome
	Worker  string // its protocol and address; empty: nobody
	Text    string // the error, in the worker's words
}

// Bounds of a history. With them a million failed jobs of three attempts take less than 400 MB beside their payloads.
const (
	// MaxAttemptText is how much of an error text is kept: its end, which says what happened.
	MaxAttemptText = 512
	// maxHistory bounds the bytes of a history: its oldest entries make room for new ones.
	maxHistory = 2 << 10
)

// A history is uvarint(tries), then the entries: the outcome, uvarint(At), and two texts, each behind its length. A text
// that is the same as in the entry before is left out, and the outcome has a bit for it: mostly a job fails again for the
// same reason. tries counts the attempts since the job was submitted or retried by hand.
const (
	sameWorker = 0x80
	sameText   = 0x40
)

// arenaRef is where a history or a result lies in the arena.
type arenaRef struct{ bytes, size uint32 }

// history returns a job's history as a view, nil when it has none.
func (sh *shard) history(job uint32, r *record) []byte {
	if r.flags&attempted == 0 {
		return nil
	}
	h := sh.histories[job]
	return sh.arena.view(h.bytes, int(h.size))
}

// setHistory replaces a job's history. Without memory for it the job has none: it is tried again from the start.
func (sh *shard) setHistory(job uint32, r *record, history []byte) {
	sh.dropHistory(job, r)
	bytes, room, ok := sh.arena.alloc(len(history))
	if !ok {
		return
	}
	copy(room, history)
	r.flags |= attempted
	sh.histories[job] = arenaRef{bytes, uint32(len(history))}
}

func (sh *shard) dropHistory(job uint32, r *record) {
	if r.flags&attempted == 0 {
		return
	}
	r.flags &^= attempted
	sh.freeBytes(sh.histories[job].bytes)
	if delete(sh.histories, job); len(sh.histories) == 0 {
		sh.histories = make(map[uint32]arenaRef) // a map keeps the room of all that it ever had
	}
}

// addAttempt adds an entry to a job's history and returns the tries with it.
func (sh *shard) addAttempt(job uint32, r *record, a Attempt) (tries int32) {
	history, n := withAttempt(sh.history(job, r), a)
	sh.setHistory(job, r, history)
	return int32(n)
}

// withAttempt returns a history with one more entry, and the tries with it.
func withAttempt(old []byte, a Attempt) (history []byte, n uint64) {
	n, all := ParseHistory(old)
	switch a.Outcome {
	case AttemptRetried, AttemptMoved:
		n = 0
	case AttemptExpired:
	default:
		n++
	}
	return AppendHistory(nil, n, append(all, a)), n
}

// ParseHistory reads a history: the attempts since the job was submitted or retried by hand, and the entries that are
// kept, the oldest first. What is damaged of it is left out.
func ParseHistory(history []byte) (tries uint64, all []Attempt) {
	tries, n := binary.Uvarint(history)
	for b := history[max(n, 0):]; len(b) > 0; {
		a := Attempt{Outcome: Outcome(b[0] &^ (sameWorker | sameText))}
		at, n := binary.Uvarint(b[1:])
		if n <= 0 {
			break
		}
		var before Attempt
		if len(all) > 0 {
			before = all[len(all)-1]
		}
		a.At = int64(at)
		flags := b[0]
		b = b[1+n:]
		var workerOK, textOK bool
		a.Worker, b, workerOK = readText(b, flags&sameWorker != 0, before.Worker)
		a.Text, b, textOK = readText(b, flags&sameText != 0, before.Text)
		if !workerOK || !textOK {
			break
		}
		all = append(all, a)
	}
	return tries, all
}

// readText reads a text of a history, which is not there when it is the same as before.
func readText(b []byte, same bool, before string) (text string, rest []byte, ok bool) {
	if same {
		return before, b, true
	}
	l, n := binary.Uvarint(b)
	if n <= 0 || l > uint64(len(b)-n) {
		return "", nil, false
	}
	return string(b[n : n+int(l)]), b[n+int(l):], true
}

// AppendHistory appends a history that ParseHistory reads, of as many of the last entries as one has room for.
func AppendHistory(dst []byte, tries uint64, all []Attempt) []byte {
	start := len(dst)
	for {
		dst = binary.AppendUvarint(dst[:start], tries)
		var before Attempt
		for i := range all {
			dst = appendAttempt(dst, all[i], &before)
		}
		if len(dst)-start <= maxHistory {
			return dst
		}
		all = all[1:]
	}
}

// appendAttempt appends an entry. before is the one before it, and becomes this one.
func appendAttempt(dst []byte, a Attempt, before *Attempt) []byte {
	a.Worker, a.Text = lastText(a.Worker), lastText(a.Text)
	outcome := byte(a.Outcome)
	if a.Worker == before.Worker {
		outcome |= sameWorker
	}
	if a.Text == before.Text {
		outcome |= sameText
	}
	dst = binary.AppendUvarint(append(dst, outcome), uint64(max(a.At, 0)))
	if outcome&sameWorker == 0 {
		dst = append(binary.AppendUvarint(dst, uint64(len(a.Worker))), a.Worker...)
	}
	if outcome&sameText == 0 {
		dst = append(binary.AppendUvarint(dst, uint64(len(a.Text))), a.Text...)
	}
	*before = a
	return dst
}

// failUnder is fail for a job whose queue's policy rules its failures: it is delayed, or given up.
func (sh *shard) failUnder(now Time, job uint32, r *record, q *queue, a Attempt, sink Sink) {
	a.At = now.Wall
	tries := sh.addAttempt(job, r, a)
	if p := q.policy; !p.Limited || tries <= p.Retries {
		sh.release(now, job, r, q, now.Wall+p.Backoff.Delay(int(tries), sh.s.chance(r.seq, tries)), sink)
		return
	}
	sh.giveUp(now, job, r, q, sink)
}

// retriesUnder reports whether the policy of a queue, and not the job's space, rules its failures. Jobs of other rules
// for failures keep them: an orphan's owner has gone, and nobody would hear of it.
func (sh *shard) retriesUnder(r *record, q *queue) bool {
	p := q.policy
	return p != nil && (p.Limited || p.Backoff.First > 0) && r.flags&(task|orphan) == 0 && !sh.s.rules[r.space].Owned
}

// giveUp ends a job that has failed too often: it is kept as failed, unless the policy keeps none.
func (sh *shard) giveUp(now Time, job uint32, r *record, q *queue, sink Sink) {
	sh.counters.GivenUp++
	if p := q.policy; p.KeepFailed == (Keep{}) && p.DeadLetter == "" {
		sh.end(job, r, q, Failed, nil, sink)
		return
	}
	sh.retire(job, r, q, Failed, nil, sink)
	r.due = now.Wall
	sh.keep(job, r, q, keptFailed)
	sh.save(job, r, q)
}

// lastText returns the end of a text that a history keeps.
func lastText[T string | []byte](text T) string {
	return string(text[max(0, len(text)-MaxAttemptText):])
}
