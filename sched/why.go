package sched

// Reason is why a job does not run, or what became of it.
type Reason uint8

// The reasons, with the fields of Why that they have beside Reason.
const (
	WhyRunning        Reason = iota // Worker, At the hand-out, Until its time-out
	WhyLeased                       // Worker, At the hand-out, Until the end of the lease
	WhyBroadcast                    // it is being sent to all workers
	WhyDone                         // At, Worker
	WhyExpired                      // At
	WhyFailed                       // At, Worker, Count of attempts, Text the last error
	WhyDelayed                      // Until it is due
	WhyLock                         // Name of the lock, empty if no job gets it; At the begin of the wait, Jobs that hold it
	WhyLockFree                     // Name of the lock, which is free: the job was woken for it
	WhyPredecessors                 // Count of its Total predecessors are not complete, Jobs: some of them
	WhyHalted                       // the server stops
	WhyPaused                       // the queue hands out nothing; Until when, if it is a PauseFor
	WhyConcurrency                  // Count jobs of the queue run, Total may
	WhyKeyConcurrency               // Count jobs of its key run, Total may
	WhyRate                         // Until the queue hands out again
	WhyNoWorker                     // no worker serves the queue
	WhyLongName                     // no worker of the queue takes names of such a length
	WhyNameClash                    // each worker that asks for a job knows another job by the name
	WhyStealOnly                    // workers must steal the task, none is handed it
	WhyBusy                         // no worker asks for a job; Count of the Total workers have jobs of the queue
	WhyBehind                       // Count jobs come first
	WhyNext                         // it is handed out next
	reasons
)

var reasonNames = [reasons]string{
	"running", "leased", "broadcast", "done", "expired", "failed", "delayed", "locked", "lock-free", "predecessors", "halted",
	"paused", "concurrency", "key-concurrency", "rate", "no-worker", "long-name", "name-clash", "steal-only", "busy", "behind", "next",
}

// String returns the name of the reason in answers.
func (r Reason) String() string { return reasonNames[r] }

// Why is a reason with its details.
type Why struct {
	Reason       Reason
	At, Until    int64 // Unix milliseconds; 0: none
	Worker       string
	Name         string
	Text         string
	Count, Total int
	More         bool // there are more than Count; of WhyLock: there are more than Jobs
	Jobs         []WhyJob
}

// WhyJob is a job that another job waits for.
type WhyJob struct {
	Ref         JobRef
	Queue, Name string
	Worker      string // worker that holds it
	Since       int64  // hand-out in Unix milliseconds
}

const (
	// maxWhyJobs bounds Why.Jobs: a person reads a few.
	maxWhyJobs = 5
	// maxWhySteps bounds what is counted for one reason, under one hold of a shard's lock.
	maxWhySteps = 256
)

// Why returns the reasons why a job does not run. Reasons that only a person can end come first. For a job that runs or
// has ended, the reason is that state. ok is false if the job does not exist.
func (s *Scheduler) Why(now Time, ref JobRef) (all []Why, ok bool) {
	sh, job, r := s.lockJob(ref)
	if sh == nil {
		return nil, false
	}
	all = sh.whyOf(now, job, r, sh.queueOf(r))
	sh.mu.Unlock()
	for i := range all { // the holders of a lock may be of other shards
		for k := range all[i].Jobs {
			j := &all[i].Jobs[k]
			s.View(now, j.Ref, func(v *JobView) {
				j.Queue, j.Name, j.Worker, j.Since = v.Queue, string(v.Name), v.Worker, v.Since
			})
		}
	}
	return all, true
}

// whyOf returns the reasons for the state of a job.
func (sh *shard) whyOf(now Time, job uint32, r *record, q *queue) []Why {
	switch r.state {
	case reserved:
		w := Why{Worker: sh.workerOf(r), At: sh.sinceOf(now, job, r), Until: sh.untilOf(now, r)}
		if sh.leaseOf(r) != nil {
			w.Reason = WhyLeased
		}
		return []Why{w}
	case broadcasting:
		return []Why{{Reason: WhyBroadcast}}
	case failed, finished:
		return []Why{sh.whyEnded(job, r)}
	case parked:
		return []Why{sh.s.locks.why(sh.ref(job, r), sh.sinceOf(now, job, r))}
	case waiting:
		return []Why{sh.graph.whyWaiting(job)}
	case delayed:
		return append([]Why{{Reason: WhyDelayed, Until: r.dueWall()}}, sh.whyQueue(now, q)...)
	}
	return sh.whyReady(now, r, q)
}

// whyEnded says what became of a kept job.
func (sh *shard) whyEnded(job uint32, r *record) Why {
	w := Why{Reason: WhyDone, At: r.endedAt()}
	tries, history := ParseHistory(sh.history(job, r))
	if n := len(history); n > 0 {
		w.Worker = history[n-1].Worker
	}
	switch {
	case r.state == failed:
		w.Reason, w.Count, w.Text = WhyFailed, int(tries), LastCause(history)
	case sh.jobStateOf(job, r) == JobExpired:
		w.Reason = WhyExpired
	}
	return w
}

// whyQueue returns the reasons that hold for all jobs of a queue.
func (sh *shard) whyQueue(now Time, q *queue) (all []Why) {
	if sh.halted {
		all = append(all, Why{Reason: WhyHalted})
	}
	if g := q.limiter; g != nil {
		switch paused := g.pausedUntil > now.Mono; {
		case g.paused:
			all = append(all, Why{Reason: WhyPaused})
		case paused:
			all = append(all, Why{Reason: WhyPaused, Until: now.wallAt(g.pausedUntil)})
		}
		if g.concurrency > 0 && q.running >= g.concurrency {
			all = append(all, Why{Reason: WhyConcurrency, Count: q.running, Total: g.concurrency})
		}
		if g.heapIndex >= 0 && g.refillAt > g.pausedUntil {
			all = append(all, Why{Reason: WhyRate, Until: now.wallAt(g.refillAt)})
		}
	}
	if q.workers == oneIf(q.leaseWatch != nil) {
		all = append(all, Why{Reason: WhyNoWorker})
	}
	return all
}

// whyReady returns the reasons of a ready job.
func (sh *shard) whyReady(now Time, r *record, q *queue) []Why {
	all := sh.whyQueue(now, q)
	leases := oneIf(q.leaseWatch != nil)
	if r.flags&private != 0 {
		all = []Why{{Reason: WhyStealOnly}}
	}
	if k := q.keyed; r.flags&(laned|withheld) == laned && k.limit > 0 {
		if l := k.lanes[r.laneID()]; l.taken >= k.limit {
			all = append(all, Why{Reason: WhyKeyConcurrency, Count: int(l.taken), Total: int(k.limit)})
		}
	}
	switch {
	case q.workers == leases || r.flags&private != 0:
	case r.flags&longName != 0 && !sh.anyTakesLongNames(q):
		all = append(all, Why{Reason: WhyLongName})
	case r.flags&withheld != 0:
		all = append(all, Why{Reason: WhyNameClash})
	case q.lineEmpty():
		all = append(all, Why{Reason: WhyBusy, Count: q.busy - leases, Total: q.workers - leases})
	}
	n, more := sh.countAhead(r, q)
	switch {
	case n > 0:
		all = append(all, Why{Reason: WhyBehind, Count: n, More: more})
	case len(all) == 0:
		all = []Why{{Reason: WhyNext}}
	}
	return all
}

// anyTakesLongNames reports whether a worker of a queue takes names of any length. Of very many workers it looks at a
// part, and returns true if it finds none there.
func (sh *shard) anyTakesLongNames(q *queue) bool {
	sh.countSteps(min(len(sh.watches)/entriesPerStep, maxWhySteps))
	for i, w := range sh.watches {
		if i == maxWhySteps*entriesPerStep || w != nil && w.queue == q && !w.ended && w.peer.capabilities&LongNames != 0 {
			return true
		}
	}
	return false
}

// countAhead counts the jobs ahead of a ready job in its index. It looks no further than maxWhySteps.
func (sh *shard) countAhead(r *record, q *queue) (n int, more bool) {
	n, more = sh.readyFor(q, r).jobsBefore(&sh.buckets, sh.buckets.at(r.bucket).key, maxWhySteps)
	sh.countSteps(2 * maxWhySteps)
	steps := 0
	for job := r.prev; job != none; job = sh.slab.at(job).prev {
		if steps++; steps > maxWhySteps {
			return n, true
		}
		n++
	}
	return n, more
}
