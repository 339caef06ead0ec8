package sched

import "math"

// JobEnd says how a job ended.
type JobEnd uint8

// The ends of a job.
const (
	EndDone     JobEnd = iota
	EndFailed          // given up after a failure, or because its worker left
	EndTimedOut        // given up after a time-out
	EndRemoved         // by a client, an operator, the end of its owner or of its queue
	EndExpired         // not handed out within Policy.JobTTL
	JobEnds            // the number of them
)

var jobEndLabels = [JobEnds]string{"done", "failed", "timeout", "removed", "expired"}

// String returns the end's label in the metrics.
func (e JobEnd) String() string { return jobEndLabels[e] }

// Tally counts what has happened to the jobs of a queue since it has the tally. The first Options.MaxTallies queues
// have a tally each. All other queues of a shard share one, so that any number of queues has a bounded number of
// counters. A queue that gets its own tally later begins at zero. No counter ever falls.
type Tally struct {
	Submitted [MaxSpaces]uint64 // submitted jobs, by their spaces
	Ended     [JobEnds]uint64
}

func (t *Tally) add(o *Tally) {
	for i, n := range o.Submitted {
		t.Submitted[i] += n
	}
	for i, n := range o.Ended {
		t.Ended[i] += n
	}
}

// giveTally gives a queue a tally of its own, or the shared tally of the shard.
func (sh *shard) giveTally(q *queue) {
	q.tally = &sh.sharedTally
	if s := sh.s; s.tallied(q.name) {
		if s.tallies.Add(1) > int64(s.maxTallies) {
			s.tallies.Add(-1)
			return
		}
		q.tally = new(Tally)
	}
}

// takeTally takes its tally from a queue that ends. The Ticks remove the jobs of the queue later and count them in the
// shared tally of the shard.
func (sh *shard) takeTally(q *queue) {
	if q.tally != &sh.sharedTally {
		q.tally = &sh.sharedTally
		sh.s.tallies.Add(-1)
	}
}

// jobEnd returns how a job ends that is given up after this attempt.
func (a *Attempt) jobEnd() JobEnd {
	if a.Outcome == attemptTimedOut {
		return EndTimedOut
	}
	return EndFailed
}

// durationBounds is the number of bounds of Durations.
const durationBounds = 14

// WaitBounds and RunBounds are the bounds of Stats.Waits and Stats.Runs in milliseconds, ascending and inclusive.
var (
	WaitBounds = [durationBounds]int64{1e3, 2e3, 5e3, 10e3, 20e3, 60e3, 120e3, 300e3, 600e3, 1800e3, 3600e3, 3 * 3600e3, 6 * 3600e3, 24 * 3600e3}
	RunBounds  = [durationBounds]int64{1, 5, 10, 50, 100, 500, 1e3, 5e3, 10e3, 60e3, 300e3, 1800e3, 3600e3, 6 * 3600e3}
)

// Durations counts durations by size.
type Durations struct {
	Counts [durationBounds + 1]uint64 // one a bound, and one above the last
	Sum    int64                      // sum in milliseconds
}

// observe counts one duration in milliseconds.
func (d *Durations) observe(bounds *[durationBounds]int64, ms int64) {
	ms, i := max(ms, 0), 0
	for i < durationBounds && ms > bounds[i] {
		i++
	}
	d.Counts[i]++
	d.Sum += ms
}

func (d *Durations) add(o *Durations) {
	for i, n := range o.Counts {
		d.Counts[i] += n
	}
	d.Sum += o.Sum
}

// observeWait counts how long a job that is handed out was due. Due times are seconds, so the duration is a whole
// number of seconds. For a single job it may be off by one second, and the mean is right. Tasks, and jobs that go ahead
// of their equals after a failure, have no due time.
func (sh *shard) observeWait(now Time, r *record) {
	if r.due >= firstDue {
		sh.waits.observe(&WaitBounds, 1000*(floorSecond(now.Wall)-r.due))
	}
}

// observeRun counts the run of a job that its worker reports.
func (sh *shard) observeRun(now Time, r *record) {
	sh.runs.observe(&RunBounds, now.Mono-sh.holdingWatch(r).held[r.heldIndex()].start)
}

// QueueStats is what Measure reads of a queue, or the sum over several.
type QueueStats struct {
	Name    string
	Waiting int // tasks
	Delayed int // not due yet
	Ready   int
	Parked  int // waiting for a lock
	Running int
	Failed  int // given up and kept
	Done    int // done or expired, and kept
	Workers int
	Busy    int // workers that hold a job of the queue
	Paused  int // 1: hands out nothing until it is resumed
	// PausedUntil is the Mono at which a PauseFor ends; 0: there is none. Add leaves it out.
	PausedUntil int64
	Bytes       int64 // bytes of the jobs' names and workloads, without tasks and kept jobs
	// Oldest is the least due second of the ready jobs, or math.MaxInt64 when no job has one. Tasks have no due second,
	// nor have jobs that go ahead of their equals after a failure. Of the numbered jobs only the first one counts. If a
	// queue has more priorities and keys than maxOldest, only maxOldest of them count, the lowest priorities first.
	Oldest int64
	// Counted reports whether the queue has a tally of its own, in Tally; otherwise Tally is zero.
	Counted bool
	Tally   Tally
}

// Add adds the numbers of another queue.
func (s *QueueStats) Add(o *QueueStats) {
	s.Waiting += o.Waiting
	s.Delayed += o.Delayed
	s.Ready += o.Ready
	s.Parked += o.Parked
	s.Running += o.Running
	s.Failed += o.Failed
	s.Done += o.Done
	s.Workers += o.Workers
	s.Busy += o.Busy
	s.Paused += o.Paused
	s.Bytes += o.Bytes
	s.Oldest = min(s.Oldest, o.Oldest)
	s.Tally.add(&o.Tally)
}

// Measure calls fn for each queue, and returns the sum of the shared tallies. It holds a shard's lock for a batch of
// steps, and calls fn under it. A queue gets its own tally here when one is free.
func (s *Scheduler) Measure(fn func(*QueueStats)) (folded Tally) {
	for i := range s.shards {
		sh := &s.shards[i]
		for next := 0; next >= 0; {
			next = sh.measure(next, &folded, fn)
		}
	}
	return folded
}

// measure is Measure for a batch of the shard's queues from a number on. It returns the next number, or -1 at the end.
func (sh *shard) measure(from int, folded *Tally, fn func(*QueueStats)) (next int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if from == 0 {
		folded.add(&sh.sharedTally)
	}
	var st QueueStats
	for stepLimit := sh.mu.steps + sh.s.batch; from < len(sh.queues); from++ {
		if sh.mu.steps >= stepLimit {
			return from
		}
		sh.countSteps(1)
		if q := sh.queues[from]; q != nil && !q.dropped {
			if q.tally == &sh.sharedTally {
				sh.giveTally(q)
			}
			sh.read(q, &st)
			fn(&st)
		}
	}
	return -1
}

// StatsOf returns what Measure reads of one queue. ok is false when there is no queue of this name.
func (s *Scheduler) StatsOf(queue []byte) (st QueueStats, ok bool) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(queue)]
	if q == nil {
		return st, false
	}
	sh.read(q, &st)
	return st, true
}

// read reads a queue.
func (sh *shard) read(q *queue, st *QueueStats) {
	*st = QueueStats{
		Name: q.name, Waiting: q.waiting, Delayed: q.delayed.jobs, Ready: q.pending() - q.delayed.jobs, Parked: len(q.parked), Running: q.running,
		Failed: q.failedJobs(), Done: q.keptFor(keptDone, keptResult), Workers: q.workers, Busy: q.busy, Bytes: q.bytes, Oldest: sh.oldestDue(q),
	}
	if q.policy != nil {
		st.Paused = oneIf(q.policy.Paused&pauseHandOut != 0)
	}
	if q.limiter != nil {
		st.PausedUntil = q.limiter.pausedUntil
	}
	if st.Counted = q.tally != &sh.sharedTally; st.Counted {
		st.Tally = *q.tally
	}
}

// maxOldest bounds the priorities and keys that oldestDue looks at. Each costs a few steps in a tree.
const maxOldest = 256

// oldestDue returns the least due second of a queue's ready jobs, see QueueStats.Oldest.
func (sh *shard) oldestDue(q *queue) int64 {
	least, budget := int64(math.MaxInt64), maxOldest
	for _, x := range [...]*index{&q.ready, &q.longNames, &q.withheld} {
		least = min(least, x.minOfEach(&sh.buckets, firstDue, &budget))
	}
	if job := q.byNumber.head(&sh.buckets); job != none {
		least = min(least, sh.slab.at(job).due)
	}
	looked := 0
	if q.keyed != nil {
		for all := q.keyed.lanes; looked < min(len(all), 4*maxOldest) && budget > 0; looked++ { // many may have no ready job
			if l := all[looked]; l != nil {
				least = min(least, l.jobs.minOfEach(&sh.buckets, firstDue, &budget))
			}
		}
	}
	sh.countSteps((maxOldest - budget + looked) / entriesPerStep)
	return least
}
