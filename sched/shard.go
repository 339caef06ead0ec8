package sched

import (
	"math"
	"slices"

	"treadle/sched/heap"
)

// shard is one part of the scheduler: the queues whose names hash to it, and all of their jobs.
type shard struct {
	mu stepMutex
	s  *Scheduler
	id uint16

	byName        map[string]*queue
	queues        []*queue // queues by id; nil: the id is free
	freeQueueIDs  []uint32
	watches       []*watch // watches by id; nil: the id is free
	freeWatchIDs  []uint32
	delayedQueues heap.Heap[*queue] // the queues that have delayed jobs, by the first due time
	dropped       []*queue          // queues whose jobs the Ticks remove

	slab            slab
	arena           arena
	names           hashIndex
	buckets         buckets
	numberedStats   stateCounts
	defaultTimed    index                      // jobs reserved under the default time-out, key {start}
	ownTimed        index                      // jobs reserved under their own time-out, key {deadline}
	byGraceEnd      heap.Heap[*unreportedName] // unreported names, by the time at which they are resolved
	changing        fifo[*queue]               // queues whose jobs go to other lanes, see laneChange
	offering        fifo[*queue]               // queues whose withheld jobs are offered to all watches in line, see withheldOffers
	deferredMatches fifo[*queue]               // queues whose match is deferred, see deferMatch
	broadcasting    fifo[*queue]               // queues with a broadcast under way
	notifications   fifo[notification]         // the awaits of ended jobs that are not answered yet
	parked          index                      // jobs that wait for a lock, key {start}
	awaits          map[uint32][]await
	topics          map[topic][]await
	untimedJobs     int                  // number of reserved jobs without a time-out, without tasks
	lastingLeases   int                  // number of leased jobs that countInterruptible does not count
	leasePeer       *Peer                // peer of all lease watches
	halted          bool                 // no job is handed out any more
	keeping         heap.Heap[*keptLine] // the lines of kept jobs, by the next check
	keptBySeq       hashIndex            // the kept jobs by sequence number, without those kept for a name alone; zero: none
	keptJobs        [keptUses]int
	endedNames      hashIndex // the last kept jobs of their names, see indexEndedName; zero: none
	histories       map[uint32]arenaRef
	results         map[uint32]arenaRef
	sweeps          heap.Heap[*sweep]   // sweeps of the queues with a job-ttl, by the time of the next sweep
	limiters        heap.Heap[*limiter] // limiters without credit, by refillAt
	policyCursor    int                 // the queues from this id on are still to get the present policies
	cron            cronTable
	freedLocks      []string // locks whose next waiter is woken when the shard is unlocked, see unlock
	counters        Counters
	sharedTally     Tally     // tally of all queues without a tally of their own
	waits, runs     Durations // see Stats

	graph graph

	digits []byte // digits of the number that a new job gets

	out   Delivery // the Delivery under way
	saved Saved    // the record being journaled
}

// init makes the tables of an empty shard.
func (sh *shard) init(s *Scheduler, id int) {
	sh.s, sh.id = s, uint16(id)
	sh.byName = make(map[string]*queue)
	sh.awaits = make(map[uint32][]await)
	sh.topics = make(map[topic][]await)
	sh.histories, sh.results = make(map[uint32]arenaRef), make(map[uint32]arenaRef)
	sh.slab, sh.arena, sh.names = newSlab(), newArena(), newHashIndex()
	sh.slab.memory, sh.arena.memory = &s.memory, &s.memory
	sh.defaultTimed, sh.ownTimed, sh.parked = newIndex(), newIndex(), newIndex()
	sh.leasePeer = &Peer{}
	sh.graph.init(sh)
}

// countSteps counts steps of work of which there may be very much. Batches are measured by this count.
func (sh *shard) countSteps(n int) { sh.mu.steps += n }

// unlock unlocks the shard and then wakes the jobs that wait for freed locks, since these jobs may be of other shards.
func (sh *shard) unlock(now Time, sink Sink) {
	if sh.freedLocks == nil { // fast path
		sh.mu.Unlock()
		return
	}
	sh.unlockAndWake(now, sink)
}

func (sh *shard) unlockAndWake(now Time, sink Sink) {
	sh.s.wakeWaiters(now, sh.unlockTakingFreed(), sink)
}

// unlockTakingFreed unlocks the shard and returns the locks that were freed under it.
func (sh *shard) unlockTakingFreed() (freed []string) {
	freed, sh.freedLocks = sh.freedLocks, nil
	sh.mu.Unlock()
	return freed
}

// queue returns the queue of a name. It makes a missing queue.
func (sh *shard) queue(name []byte) (*queue, error) {
	if q := sh.byName[string(name)]; q != nil {
		return q, nil
	}
	if n := sh.s.queueCount.Add(1); n > int64(sh.s.maxQueues) {
		sh.s.queueCount.Add(-1)
		return nil, ErrQueues
	}
	q := &queue{name: string(name), heapIndex: -1}
	for _, x := range q.indexes() {
		*x = newIndex()
	}
	sh.giveTally(q)
	q.id = assignID(&sh.queues, &sh.freeQueueIDs, q)
	sh.byName[q.name] = q
	if sh.s.policies.Load() != nil {
		sh.setPolicy(Time{}, q)
	}
	return q, nil
}

// queueFor returns the queue of a name. It makes a missing queue with this autoDelete.
func (sh *shard) queueFor(name []byte, autoDelete bool) (*queue, error) {
	if q := sh.byName[string(name)]; q != nil {
		return q, nil
	}
	q, err := sh.queue(name)
	if err == nil {
		q.autoDelete = autoDelete
	}
	return q, err
}

// assignID puts v in the first free place of all and returns its index.
func assignID[T any](all *[]T, free *[]uint32, v T) uint32 {
	if n := len(*free); n > 0 {
		i := (*free)[n-1]
		*free = (*free)[:n-1]
		(*all)[i] = v
		return i
	}
	*all = append(*all, v)
	return uint32(len(*all) - 1)
}

// queueOf returns the queue of a job in any state.
func (sh *shard) queueOf(r *record) *queue {
	if r.state == reserved {
		return sh.holdingWatch(r).queue
	}
	return sh.queues[r.container]
}

// holdingWatch returns the watch that holds a reserved job.
func (sh *shard) holdingWatch(r *record) *watch { return sh.watches[r.container] }

func (sh *shard) ref(job uint32, r *record) JobRef {
	return JobRef{Shard: sh.id, Space: r.space, Record: job, Seq: r.seq}
}

// view fills a Job with the view of a job that callers have.
func (sh *shard) view(job uint32, r *record, q *queue, j *Job) {
	// The fields are set one by one: a literal of Job would be built elsewhere and copied.
	j.Ref, j.Queue, j.Space, j.Running, j.RunNumber = sh.ref(job, r), q.name, r.space, r.state == reserved, 0
	j.Name, j.Workload = unpack(sh.arena.view(r.bytes, int(r.size)))
	j.SchedAt, j.Due, j.Priority, j.Count, j.Timeout = r.schedAt(), r.dueWall(), r.priority, r.count, r.timeout
}

// enqueue puts a detached job in its queue's ready or delayed index. millis is how many
// milliseconds after its due second the job is due.
func (sh *shard) enqueue(now Time, job uint32, r *record, q *queue, millis uint32) {
	due := sh.isDue(now, r, millis)
	if r.flags&task != 0 && sh.graph.place(now, job, r, q, millis, due) {
		return
	}
	r.container = q.id
	if r.flags&immediate != 0 {
		q.immediate++
	}
	if due {
		r.state = ready
		sh.pushReady(job, r, q, back)
		return
	}
	r.state, r.stateData = delayed, millis
	sh.countDelayed(r, 1)
	q.retrying += oneIf(r.flags&hasHistory != 0)
	q.delayed.pushBack(&sh.buckets, &sh.slab, sortKey{r.due, int64(millis)}, job)
	sh.resetFirstDelayed(q)
}

// isDue reports whether a job's due time has come. The due time is millis milliseconds after the due second.
func (sh *shard) isDue(now Time, r *record, millis uint32) bool {
	if r.due > never/1000-1 || r.due < -never/1000 { // outside of the range of milliseconds
		return r.due < 0
	}
	return r.due*1000+int64(millis) <= now.Wall
}

// dequeue detaches a pending job.
func (sh *shard) dequeue(job uint32, r *record, q *queue) {
	if r.flags&immediate != 0 {
		q.immediate--
	}
	if r.state == ready {
		q.readyTasks -= oneIf(r.flags&task != 0)
		sh.removeReady(job, r, q)
		return
	}
	sh.countDelayed(r, -1)
	q.retrying -= oneIf(r.flags&hasHistory != 0)
	q.delayed.remove(&sh.buckets, &sh.slab, job)
	sh.resetFirstDelayed(q)
}

// detach takes a job in any state from where it stands.
func (sh *shard) detach(job uint32, r *record, q *queue) {
	switch r.state {
	case reserved:
		sh.unhold(job, r)
	case parked:
		sh.unpark(job, q)
	case waiting:
		q.waiting--
	case broadcasting:
		sh.stopBroadcast(q)
		sh.deferMatch(q)
	case failed, finished:
		sh.unkeep(job, r, q)
	default:
		sh.dequeue(job, r, q)
	}
}

// resetFirstDelayed moves a queue in delayedQueues after its delayed jobs changed.
func (sh *shard) resetFirstDelayed(q *queue) {
	if q.dropped {
		return
	}
	k, ok := q.delayed.min(&sh.buckets)
	switch {
	case !ok && q.heapIndex >= 0:
		sh.delayedQueues.Remove(q)
	case ok && q.heapIndex < 0:
		q.firstDelayed = k
		sh.delayedQueues.Push(q)
		sh.s.alarmWall(wallOf(k))
	case ok && q.firstDelayed != k:
		q.firstDelayed = k
		sh.delayedQueues.Fix(q)
		sh.s.alarmWall(wallOf(k))
	}
}

// fail gives back a job that was just taken from its holder and is not done. delay is in milliseconds:
//
//	job                   ends                       else, with defaultDelay   0             more than 0
//	a task                never                      goes first                goes first    is delayed by it
//	of Rules.MaxFailures  after so many failures,    goes first                goes first    is delayed by it
//	                      or when its owner has left
//	of hasRetries         without retries left       is delayed by a back-off  is ready      is delayed by it
//	any other             when its owner has left    is ready                  is ready      is delayed by it
//
// A task that has got predecessors waits instead of being ready. The caller matches the queue afterwards. A caller that
// gives back several jobs matches after the last of them: a job that goes first goes ahead of the jobs given back
// before it.
func (sh *shard) fail(now Time, job uint32, r *record, q *queue, a Attempt, delay int64, sink Sink) {
	if r.flags&task != 0 {
		if delay > 0 {
			sh.release(now, job, r, q, now.Wall+delay, sink)
		} else {
			sh.graph.release(now, job, r, q, front)
		}
		return
	}
	rules := &sh.s.rules[r.space]
	if rules.MaxFailures == 0 {
		if sh.hasRetries(r, q) {
			sh.failWithRetries(now, job, r, q, a, delay, sink)
			return
		}
		sh.release(now, job, r, q, now.Wall+max(delay, 0), sink)
		return
	}
	r.count++
	switch {
	case r.flags&orphan != 0:
		sh.endRemoved(job, r, q, Failed, sink)
		return
	case r.count >= rules.MaxFailures:
		q.tally.Ended[a.jobEnd()]++
		sh.end(job, r, q, Failed, nil, sink)
		return
	}
	if r.priority < math.MaxInt64 {
		r.priority++
	}
	if delay > 0 {
		sh.release(now, job, r, q, now.Wall+delay, sink)
		return
	}
	r.due, r.flags = aheadOfAll, r.flags|immediate
	q.immediate++
	r.state, r.container = ready, q.id
	sh.pushReady(job, r, q, front)
}

// aheadOfAll is the due second of a job that failed. It is earlier than any other due second, so the job goes ahead of
// all jobs of its priority.
const aheadOfAll = math.MinInt64

// release makes a job that was just taken from its holder pending again, due at wall. A task that is due goes to the
// front of its line, or waits. An orphan ends. The caller matches the queue afterwards.
func (sh *shard) release(now Time, job uint32, r *record, q *queue, wall int64, sink Sink) {
	if r.flags&task != 0 && wall <= now.Wall {
		sh.graph.release(now, job, r, q, front)
		return
	}
	if r.flags&orphan != 0 {
		sh.endRemoved(job, r, q, Failed, sink)
		return
	}
	r.flags &^= immediate
	r.due = floorSecond(wall)
	sh.enqueue(now, job, r, q, uint32(wall-r.due*1000))
	sh.save(job, r, q)
}

// endRemoved ends a detached job that is removed: by a client or an operator, with its queue, or because its owner has
// left. Its awaits end with e.
func (sh *shard) endRemoved(job uint32, r *record, q *queue, e Effect, sink Sink) {
	sh.countRemoved(q)
	sh.end(job, r, q, e, nil, sink)
}

// countRemoved counts a removed job of q.
func (sh *shard) countRemoved(q *queue) {
	sh.counters.Removed++
	q.tally.Ended[EndRemoved]++
}

// end frees a detached job and answers its awaits.
func (sh *shard) end(job uint32, r *record, q *queue, e Effect, data []byte, sink Sink) {
	sh.retire(job, r, q, e, data, sink)
	if r.flags&hasHistory != 0 {
		sh.dropHistory(job, r)
	}
	sh.dropSaved(r)
	sh.freeBytes(r.bytes)
	sh.slab.free(job)
	sh.discardUnused(q)
}

// retire takes from a detached job its name, its awaits and its locks.
func (sh *shard) retire(job uint32, r *record, q *queue, e Effect, data []byte, sink Sink) {
	name, _ := unpack(sh.arena.view(r.bytes, int(r.size)))
	if sh.s.rules[r.space].Global { // before the awaits: an answered peer may submit a job of the same name at once
		sh.s.freeGlobalName(globalName{r.space, string(name)})
	}
	if r.flags&awaited != 0 {
		sh.notifyAll(job, r, q, e, data, sink)
	}
	if r.flags&locking != 0 {
		sh.dropLocks(job, r)
	}
	if r.flags&hooked != 0 {
		sh.view(job, r, q, &sh.saved.Job)
		sh.s.jobHook(&sh.saved.Job, e)
	}
	if len(sh.topics) > 0 {
		sh.endTopic(topic{r.space, q.name, string(name)}, sink)
	}
	r.flags &^= awaited | immediate | awaitedBySubmitter
	q.bytes -= int64(r.size)
	sh.names.remove(sh.s.nameHash(q.id, r.space, name), job)
	if len(data) >= ownChunk {
		sh.out.Data = nil // the caller owns it
	}
}

// notify answers one await of a job that ends.
func (sh *shard) notify(a await, job uint32, r *record, q *queue, e Effect, data []byte, sink Sink) {
	a.peer.dropAwait(sh.ref(job, r))
	sh.out = Delivery{To: a.peer.id, Tag: a.tag, Effect: e, Data: data}
	if e == Failed {
		sh.out.History = sh.history(job, r)
	}
	if sh.s.rules[r.space].Owned {
		sh.view(job, r, q, &sh.out.Job)
	}
	sink.Deliver(&sh.out)
}

// failAwaits answers the awaits that end with the first failure.
func (sh *shard) failAwaits(job uint32, r *record, sink Sink) {
	if r.flags&awaited == 0 {
		return
	}
	sh.countSteps(len(sh.awaits[job]))
	sh.keepAwaits(job, r, func(a await) bool {
		if a.onFail {
			sh.notify(a, job, r, sh.queueOf(r), Failed, nil, sink)
		}
		return !a.onFail
	})
}

// keepAwaits drops the awaits of a job for which keep returns false.
func (sh *shard) keepAwaits(job uint32, r *record, keep func(await) bool) {
	kept := slices.DeleteFunc(sh.awaits[job], func(a await) bool { return !keep(a) })
	if len(kept) > 0 {
		sh.awaits[job] = kept
		return
	}
	delete(sh.awaits, job)
	r.flags &^= awaited
}

// grain is the resolution of time-outs in milliseconds: jobs that are reserved within one grain share a bucket. A
// time-out is late by at most one grain, and never early.
const grain = 128

func roundUp(ms int64) int64 { return (ms + grain - 1) &^ (grain - 1) }

func floorSecond(ms int64) int64 {
	s := ms / 1000
	if ms%1000 < 0 {
		s--
	}
	return s
}

// wallOf returns the wall time of a key of a delayed index, clamped to the range of milliseconds.
func wallOf(k sortKey) int64 {
	if k.major > never/1000-1 {
		return never
	}
	return k.major*1000 + k.minor
}
