package sched

import (
	"encoding/binary"
	"strconv"
)

// A job of a space with Rules.Numbered is named by its sequence number. Ready jobs of a priority are in the order of
// their numbers, also a job that comes back: they stand in an index of their own, whose buckets have up to 256
// neighbouring numbers. Among jobs of other spaces, and of other queues, a numbered job has the place of the second of
// its submission. Its Counts change in place and are saved with the next record of the job.
//
// Clients see failed numbered jobs, too: Kick makes the jobs ready again that failed first. No policy but an explicit
// KeepFailed evicts such a job.

// The counts of a job of Rules.Numbered are behind its bytes: the time of its submission, then uint32s, all big-endian.
// The record's size does not include them.
const (
	atSubmitted = 0
	atDelay     = 8
	atRuns      = 12
	atTimedOut  = 16
	atReleased  = 20
	atBuried    = 24
	atKicked    = 28
	countsSize  = 32
)

// numberBits is the number of low bits in which the numbers of one bucket may differ, in an index by number. So a
// bucket has at most 256 jobs, and at most these are passed to find a job's place. With fewer bits the index would have
// more keys.
const numberBits = 8

// maxDigits is the length of the longest number in digits.
const maxDigits = 20

// Counts say what has happened to a job of Rules.Numbered. All but Submitted and Delay begin again above 2^32.
type Counts struct {
	Submitted int64  // Unix milliseconds
	Delay     uint32 // seconds: of the submission, or of the last Return
	Runs      uint32 // how often it was handed out
	TimedOut  uint32
	Released  uint32 // how often its workers gave it back by Release
	Buried    uint32 // how often it has failed, by Bury or by a policy
	Kicked    uint32 // how often it was made ready by Kick, KickNumber or an operator
}

// countBytes returns a view of the counts of a numbered job.
func (sh *shard) countBytes(r *record) []byte {
	return sh.arena.view(r.bytes, int(r.size)+countsSize)[r.size:]
}

// countsOf reads the counts of a numbered job.
func (sh *shard) countsOf(r *record) Counts {
	b := sh.countBytes(r)
	at := func(i int) uint32 { return binary.BigEndian.Uint32(b[i:]) }
	return Counts{int64(binary.BigEndian.Uint64(b)), at(atDelay), at(atRuns), at(atTimedOut), at(atReleased), at(atBuried), at(atKicked)}
}

// setCounts writes the counts of a numbered job.
func (sh *shard) setCounts(r *record, c *Counts) {
	b := sh.countBytes(r)
	binary.BigEndian.PutUint64(b, uint64(c.Submitted))
	for i, n := range [...]uint32{c.Delay, c.Runs, c.TimedOut, c.Released, c.Buried, c.Kicked} {
		binary.BigEndian.PutUint32(b[atDelay+4*i:], n)
	}
}

// addCount adds one to a count of a job, if the job is numbered.
func (sh *shard) addCount(r *record, at int) {
	if r.flags&numbered != 0 {
		sh.increment(r, at)
	}
}

// increment is addCount for a numbered job. It stays out of addCount, so that the check for other jobs is inlined.
//
//go:noinline
func (sh *shard) increment(r *record, at int) {
	b := sh.countBytes(r)[at:]
	binary.BigEndian.PutUint32(b, binary.BigEndian.Uint32(b)+1)
}

// numberKey returns the key of a job in the index by number of its queue: larger priority first, then the smaller
// number.
func numberKey(r *record) sortKey { return sortKey{^r.priority, int64(r.seq >> numberBits)} }

// numberedStanding is standing for a numbered job.
//
//go:noinline
func (sh *shard) numberedStanding(r *record) sortKey {
	submitted := binary.BigEndian.Uint64(sh.countBytes(r))
	return sortKey{^r.priority, floorSecond(int64(submitted))}
}

// stateCounts counts the numbered jobs of a shard by their states, without the kept jobs.
type stateCounts struct{ ready, urgent, delayed, reserved int }

// countReady counts a numbered job that enters a ready index (n is 1) or leaves it (n is -1).
func (sh *shard) countReady(q *queue, r *record, n int) {
	if r.flags&numbered == 0 {
		return
	}
	sh.numberedStats.ready += n
	if r.priority > 0 {
		sh.numberedStats.urgent += n
		q.urgent += n
	}
}

// countDelayed is countReady for the delayed index.
func (sh *shard) countDelayed(r *record, n int) {
	if r.flags&numbered != 0 {
		sh.numberedStats.delayed += n
	}
}

// countReserved is countReady for reserved jobs.
func (sh *shard) countReserved(r *record, n int) {
	if r.flags&numbered != 0 {
		sh.numberedStats.reserved += n
	}
}

// maxBuriedAhead is how many milliseconds the time of a burial may be ahead of the clock.
const maxBuriedAhead = 1000

// afterBuried returns the time of a burial: now, or the millisecond after the last burial of the queue, so that jobs
// that are buried in the same millisecond keep their order. After the clock was set back by more than maxBuriedAhead it
// is now.
func (sh *shard) afterBuried(q *queue, now int64) int64 {
	if q.kept != nil {
		if last := q.kept[keptBuried].jobs.last(); last != none {
			if after := sh.slab.at(last).endedAt() + 1; after > now && after <= now+maxBuriedAhead {
				return after
			}
		}
	}
	return now
}

// NumberedStats counts the jobs of Rules.Numbered.
type NumberedStats struct{ Ready, Urgent, Delayed, Reserved, Buried int } // Urgent are ready and have a priority above 0

func (t *NumberedStats) add(sh *shard) {
	t.Ready += sh.numberedStats.ready
	t.Urgent += sh.numberedStats.urgent
	t.Delayed += sh.numberedStats.delayed
	t.Reserved += sh.numberedStats.reserved
	t.Buried += sh.keptJobs[keptBuried]
}

// numberHash is the hash of a numbered job's name. The hash has no queue, since the number alone finds the job.
func (s *Scheduler) numberHash(space Space, number uint64) uint32 {
	var b [maxDigits]byte
	return s.nameHash(0, space, strconv.AppendUint(b[:0], number, 10))
}

// submitNumbered is Submit for a job of Rules.Numbered.
func (sh *shard) submitNumbered(now Time, q *queue, j *Submission, sink Sink) error {
	j.Number = sh.s.lastSeq.Add(1)
	sh.digits = strconv.AppendUint(sh.digits[:0], j.Number, 10)
	j.Name = sh.digits
	err := sh.add(now, j.Number, sh.s.nameHash(0, j.Space, j.Name), q, j, sink)
	j.Name = nil
	return err
}
