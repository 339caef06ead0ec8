package sched

import (
	"errors"
	"fmt"
)

// ErrPolicy is the error of a job that the policy of its queue refuses. The error of Submit wraps it and says why.
var ErrPolicy = errors.New("the policy of the queue refuses the job")

// Errors of admit that protocols tell apart.
var (
	ErrPaused   = fmt.Errorf("%w: it is paused for submits", ErrPolicy)
	ErrPayload  = fmt.Errorf("%w: the workload is larger than max-payload", ErrPolicy)
	ErrMaxJobs  = fmt.Errorf("%w: max-jobs are pending", ErrPolicy)
	ErrMaxBytes = fmt.Errorf("%w: its jobs have max-bytes", ErrPolicy)
)

// admit returns why a new job is refused, or nil. replaced is the size of the pending job that the new job replaces, or
// negative if there is no pending job of the same name.
func (q *queue) admit(name, workload []byte, replaced int64) error {
	p := q.policy
	size := int64(packedLen(name, workload))
	switch {
	case p.Paused&pauseSubmits != 0:
		return ErrPaused
	case p.MaxPayload > 0 && int64(len(workload)) > p.MaxPayload:
		return ErrPayload
	case p.MaxJobs > 0 && replaced < 0 && int64(q.unstarted()) >= p.MaxJobs:
		return ErrMaxJobs
	case p.MaxBytes > 0 && q.bytes+size-max(replaced, 0) > p.MaxBytes:
		return ErrMaxBytes
	}
	return nil
}

// CheckSubmits returns ErrPaused if a queue is paused for submits. AddTasks does not ask: its caller decides which
// tasks are submitted.
func (s *Scheduler) CheckSubmits(queue []byte) error {
	table := s.policies.Load()
	if table == nil {
		return nil
	}
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var p *Policy
	if q := sh.byName[string(queue)]; q != nil {
		p = q.policy
	} else {
		p = table.forQueue(string(queue))
	}
	if p != nil && p.Paused&pauseSubmits != 0 {
		return ErrPaused
	}
	return nil
}

// unstarted counts the jobs that Policy.MaxJobs bounds: the pending and the parked ones, without tasks.
func (q *queue) unstarted() int {
	return q.pending() + len(q.parked) - (q.tasks - q.reservedTasks - q.waiting)
}

// limiter bounds what a queue hands out: nothing while the queue is paused, otherwise by a number of running jobs and a
// number of jobs in a time. A queue whose policy bounds nothing has no limiter.
type limiter struct {
	queue       *queue
	paused      bool
	concurrency int
	rate        Rate
	credit      int64 // jobs that may start, times rate.Per
	last        int64 // Mono up to which credit was counted
	pausedUntil int64 // Mono when a PauseFor ends
	refillAt    int64 // Mono when there is credit again, and no PauseFor
	heapIndex   int   // place among the shard's limiters that wait for refillAt, -1: not there
}

func (l *limiter) Ahead(o *limiter) bool { return l.refillAt < o.refillAt }
func (l *limiter) HeapIndex() int        { return l.heapIndex }
func (l *limiter) SetHeapIndex(i int)    { l.heapIndex = i }

// throttled reports whether the queue may hand out nothing now.
func (q *queue) throttled() bool {
	g := q.limiter
	return g != nil && (g.heapIndex >= 0 || g.stops(q))
}

// stops reports whether a pause or the concurrency limit holds the queue back. Unlike a wait for credit, neither ends
// at a known time.
func (l *limiter) stops(q *queue) bool {
	return l.paused || l.concurrency > 0 && q.running >= l.concurrency
}

// spendCredit counts a job that was handed out. Without credit for another job the queue is throttled until the Tick of
// refillAt.
func (sh *shard) spendCredit(now Time, g *limiter) {
	if g.rate.Jobs == 0 {
		return
	}
	g.fill(now)
	g.credit -= g.rate.Per
	if g.heapIndex < 0 {
		sh.waitForCredit(now, g)
	}
}

// waitForCredit puts a limiter into the heap until it has credit and its PauseFor has ended. It does nothing if the
// limiter waits for neither. The limiter must not be in the heap.
func (sh *shard) waitForCredit(now Time, g *limiter) {
	g.refillAt = g.pausedUntil
	if g.rate.Jobs > 0 && g.credit < g.rate.Per {
		g.refillAt = max(g.refillAt, now.Mono+(g.rate.Per-g.credit+g.rate.Jobs-1)/g.rate.Jobs)
	}
	if g.refillAt > now.Mono {
		sh.limiters.Push(g)
		sh.s.alarmMono(g.refillAt)
	}
}

// fill adds the credit of the time that has passed.
func (l *limiter) fill(now Time) {
	if l.rate.Jobs == 0 {
		return
	}
	most := l.rate.Burst * l.rate.Per
	passed := max(now.Mono-l.last, 0)
	l.last = max(now.Mono, l.last)
	if passed > (most-l.credit)/l.rate.Jobs { // also where the product would overflow
		l.credit = most
		return
	}
	l.credit += passed * l.rate.Jobs
}

// refillLimiters matches the queues whose limiters have credit again.
func (sh *shard) refillLimiters(now Time, stepLimit int, sink Sink) {
	for sh.mu.steps < stepLimit && len(sh.limiters) > 0 && sh.limiters[0].refillAt <= now.Mono {
		g := sh.limiters[0]
		sh.limiters.Remove(g)
		sh.countSteps(1)
		q := g.queue
		if q.dropped || q.limiter != g {
			continue
		}
		if g.fill(now); g.unlimited() {
			q.limiter = nil
		}
		sh.matchUntil(now, q, stepLimit, sink)
		sh.offerWithheld(q)
		sh.discardUnused(q)
	}
}

// offerWithheld has the withheld jobs of a queue offered again, unless it is throttled: throttled queues offer none.
func (sh *shard) offerWithheld(q *queue) {
	if q.withheld.jobs > 0 && q.nameOnly > 0 && !q.throttled() {
		sh.startOffers(q)
	}
}

// matchFreed is called when a running job of a queue with a limiter has ended. The next Tick matches the queue if the
// running jobs were at the limit.
func (sh *shard) matchFreed(q *queue) {
	if g := q.limiter; g.concurrency == 0 || q.running+1 < g.concurrency {
		return
	}
	sh.deferMatch(q)
	sh.offerWithheld(q)
}

// setLimiter gives a queue the limiter that its policy asks for, or none. A rate that has not changed keeps its credit.
func (sh *shard) setLimiter(now Time, q *queue) {
	old := q.limiter
	if old != nil && old.heapIndex >= 0 {
		sh.limiters.Remove(old)
	}
	q.limiter = nil
	g := &limiter{queue: q, heapIndex: -1, last: now.Mono}
	if p := q.policy; p != nil {
		g.paused, g.concurrency, g.rate = p.Paused&pauseHandOut != 0, int(p.Concurrency), p.Rate
	}
	g.credit = g.rate.Burst * g.rate.Per
	if old != nil {
		g.pausedUntil = old.pausedUntil
		if old.rate == g.rate { // the rate continues as it was
			g.credit, g.last = old.credit, old.last
			g.fill(now)
		}
	}
	if sh.waitForCredit(now, g); !g.unlimited() || g.heapIndex >= 0 {
		q.limiter = g
	}
}

// unlimited reports whether a limiter that does not wait bounds nothing.
func (l *limiter) unlimited() bool { return !l.paused && l.concurrency == 0 && l.rate.Jobs == 0 }

// PauseFor makes a queue hand out nothing for ms milliseconds from now on. It replaces the time of an earlier call. A
// restart ends the pause. PauseFor returns ErrQueues if the queue does not exist and no further queue may be made.
func (s *Scheduler) PauseFor(now Time, queue []byte, ms int64) error {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q, err := sh.queueFor(queue, true)
	if err != nil {
		return err
	}
	g := q.limiter
	if g == nil {
		g = &limiter{queue: q, heapIndex: -1, last: now.Mono}
		q.limiter = g
	} else if g.heapIndex >= 0 {
		sh.limiters.Remove(g)
	}
	g.fill(now)
	g.pausedUntil = now.Mono + max(ms, 1)
	sh.waitForCredit(now, g)
	return nil
}
