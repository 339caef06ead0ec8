package sched

import (
	"cmp"
	"errors"
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"
)

// Limits. Each bounds the memory that one peer, or one mistake, can cost. Clients of the protocols stay far below all
// of them.
const (
	// MaxSlots bounds the outstanding reserves of a peer: Reserve scans all of them for a repeated tag. Client
	// libraries have one for each thread.
	MaxSlots = 16 << 10
	// maxWatches bounds the queues that one peer serves: a Reserve scans all of them.
	maxWatches = 64 << 10
	// MaxAwaits bounds the awaits of one job.
	MaxAwaits = 4 << 10
	// defaultMaxQueues bounds the queues. An idle queue takes about 300 bytes.
	defaultMaxQueues = 1 << 20
	// DefaultWindow is how many bytes of jobs may be unsent to one peer before it is handed
	// no further job: several times what a fast link holds.
	DefaultWindow = 256 << 10
	// defaultBatch bounds the jobs that are moved under one hold of a shard's lock, which takes a fraction of a
	// millisecond.
	defaultBatch = 256
	// maxLocks bounds the named locks that are held or waited for.
	maxLocks = 64 << 10
	// maxJobLocks bounds the locks that one job holds: its end frees all of them at once.
	maxJobLocks = 256
	// maxSleep bounds the milliseconds to the next Tick, so that a step of the wall clock is
	// noticed.
	maxSleep = 1000
)

// Errors of the verbs.
var (
	ErrNotFound  = errors.New("no such job is reserved")
	errNotHolder = errors.New("the job is held by another peer")
	ErrNoWorker  = errors.New("no worker serves the queue")
	ErrDuplicate = errors.New("a job of that name is known")
	errStale     = errors.New("the revision is not the latest")
	errFull      = errors.New("no room for more jobs")
	errSpace     = errors.New("no protocol keeps jobs of space")
	errCostly    = errors.New("ordering the tasks takes too long: add fewer at a time, or add a task before the tasks that wait for it")
	ErrQueues    = errors.New("too many queues")
	ErrSlots     = errors.New("too many outstanding reserves on one session")
	ErrWatches   = errors.New("too many queues served by one session")
	ErrAwaits    = errors.New("too many sessions wait for one job's result")
	errQuota     = errors.New("too many queues served, jobs asked for and data received by all sessions together")
	ErrLocks     = errors.New("too many locks")
	ErrJobLocks  = errors.New("the job holds too many locks")
)

// MaxSpaces bounds the name spaces: one or two for each protocol.
const MaxSpaces = 16

// Rules say how the jobs of a space are treated. The zero value means: a name is unique in its queue, the next
// submission of a name replaces the pending job, a reservation ends with its time-out, and a failed job is tried for
// ever.
type Rules struct {
	// Durable jobs are saved in the Journal.
	Durable bool
	// Global names are unique in the whole space: a second submission returns ErrDuplicate.
	Global bool
	// Owned jobs end with the peer that awaits them, and are never broadcast.
	Owned bool
	// Untimed reservations last until the holder ends them or leaves.
	Untimed bool
	// Graph makes the jobs tasks, which wait for each other and have a line of their own. AddTasks, Transfer, Steal,
	// Complete and the verbs with a TaskRevision are for them. Tasks are never broadcast, their queue is never dropped,
	// and only RemoveTask removes them. Graph needs Untimed.
	Graph bool
	// Private tasks are handed out by Steal alone, never to a Reserve.
	Private bool
	// NeverDropped: a queue that has had a job of the space is never dropped. Graph implies it.
	NeverDropped bool
	// Numbered jobs have their sequence numbers as names, in decimal digits: each submission adds a job. Numbered jobs
	// of the same priority are handed out in the order of their numbers, also when they come back. They have Counts and
	// are never broadcast. A failed numbered job is kept until it is kicked or removed, unless a policy has KeepFailed.
	// Numbered excludes all other rules but Durable.
	Numbered bool
	// MaxFailures, when not 0, is the number of failures that end a job with Failed. Each earlier
	// failure adds one to the job's priority and puts it ahead of its equals.
	MaxFailures int32
	// RetryRules, when set, says what becomes of failed jobs. The policy of their queue comes first.
	RetryRules *RetryRules
	// LeaseNames lets FindLease find the leases of the jobs.
	LeaseNames bool
	// Traits, when set, reads the further properties of a job from its workload. It is called under a shard's lock.
	Traits func(workload []byte) Traits
	// Expiry returns the Unix milliseconds from which a job of Traits.Expires is not handed out any more. The job then
	// ends as expired. It is called under a shard's lock.
	Expiry func(workload []byte) int64
}

// Traits are the properties that a job has by its workload, see Rules.Traits.
type Traits struct {
	Expires bool // the job may start until Rules.Expiry
	Hooked  bool // hand-outs and ends of the job are reported to Options.JobHook
}

// RetryRules says what becomes of failed jobs of a space. The Submission.Count of such a job is how often it is tried
// again before it is given up. With a negative Count it is given up at its first failure. A job of Count 0 is not kept
// when it fails.
type RetryRules struct {
	// Retries is how often a job of Count AnyRetries is tried again, unless the policy of its queue limits that.
	Retries int32
	// Backoff returns the milliseconds before a retry, by the number of the retry from 1 on, unless the policy of the
	// queue has a back-off. chance is any bits; they spread equal delays.
	Backoff func(retry int32, chance uint64) int64
	// Keep bounds the kept jobs that were given up, unless the policy of the queue bounds them.
	Keep Keep
	// Text is how many bytes are kept of the newest error text of a job, from its beginning; at most MaxFailureText.
	Text int
}

// AnyRetries is a Submission.Count, see RetryRules.
const AnyRetries = math.MinInt32

// broadcastable reports whether a job may be broadcast.
func (r *Rules) broadcastable() bool { return !r.Owned && !r.Graph && !r.Numbered }

// Options are a Scheduler's settings; the zero value of a field means its default.
type Options struct {
	Shards    int    // default 1
	MaxQueues int    // default defaultMaxQueues
	Window    int    // bytes, default DefaultWindow
	Batch     int    // jobs moved under one hold of a shard's lock, default defaultBatch; tests make it small
	FirstRun  uint64 // the first number of a run; default: a number that differs in every process
	// PeerMemory bounds the bytes of reserves, watches and topics that all peers have beyond small parts of their own;
	// default and most: maxShared.
	PeerMemory int64
	// MaxTallies is how many queues have a Tally of their own. Tallied, when set, reports by the name of a queue
	// whether it may have one.
	MaxTallies int
	Tallied    func(queue string) bool
	// Rules are the rules of each space, by its number; default: the zero value.
	Rules [MaxSpaces]Rules
	// Journal, when set, is told of every change of a durable job.
	Journal Journal
	// CheckCapacity, when set, returns an error while the journal has no room for new jobs. It is called under a shard
	// lock and must not block. The scheduler asks it only for jobs of cron entries: for all other jobs the callers ask.
	CheckCapacity func() error
	// Grace is how many milliseconds after its time-out a reservation ends. The report of a holder
	// that stops on time still counts.
	Grace int64
	// Alarm, when set, is called when the next Tick is due earlier than the last Tick said. It is
	// called under a shard lock and must not block.
	Alarm func()
	// TimedOut, when set, is called for each reservation that its time-out ends, before the job is handed out again. It
	// is called under a shard lock: it copies what it keeps of the job and does not block. worker names the holder if
	// it has no session: the worker of a lease, or a request.
	TimedOut func(job *Job, holder SessionID, worker string)
	// JobHook, when set, is called for each job of Traits.Hooked that is handed out (Assign) or ends (Result, Failed,
	// Removed). It is called under a shard's lock: it copies what it keeps and does not block.
	JobHook func(job *Job, e Effect)
}

// Scheduler has all queues and jobs. It is safe for concurrent use.
type Scheduler struct {
	shards        []shard
	seed          hashSeed
	alarm         func()
	timedOut      func(*Job, SessionID, string)
	journal       Journal
	jobHook       func(*Job, Effect)
	checkCapacity func() error
	maxQueues     int
	window        int
	maxTallies    int
	tallied       func(queue string) bool
	batch         int
	grace         int64
	salt          uint64 // see jitterBits
	policies      atomic.Pointer[Policies]

	rules          [MaxSpaces]Rules
	undroppable    uint16            // spaces whose queues are never dropped, as bits
	failSpaces     uint16            // spaces with Rules.RetryRules, as bits
	numberedSpaces uint16            // spaces of Rules.Numbered, as bits
	queueMasks     [MaxSpaces]uint32 // see nameHash
	locks          namedLocks
	globalNames    [globalNameShards]globalNames
	leases         leases
	leaseNames     leaseNames
	moves          moves
	departures     departures

	timeout     atomic.Int64 // default time-out in milliseconds, 0: none
	lockTimeout atomic.Int64 // milliseconds; 0: a job waits for ever
	remember    atomic.Int64 // milliseconds; 0: complete tasks are not remembered
	queueCount  atomic.Int64
	tallies     atomic.Int64 // number of queues that have a tally of their own
	cronEntries atomic.Int64
	sharedQuota quota        // see charge
	memory      atomic.Int64 // bytes of the chunks of all slabs and arenas
	wakeWall    atomic.Int64 // time of the next Tick by Wall
	wakeMono    atomic.Int64 // time of the next Tick by Mono

	_ [64]byte // keeps the cache line of the sequences below, which change with every job, apart
	// lastSeq is the last sequence number: of a job, of a record of the Journal, or of a task's topological order
	// (graph_order.go).
	lastSeq     atomic.Uint64
	lastSlotSeq atomic.Uint64 // the last seq of a slot; the run that answers the slot has it as its number

	lastPlace atomic.Int64 // the last place in line that was given to a task, of all queues
}

// New returns an empty scheduler.
func New(o Options) *Scheduler {
	s := &Scheduler{
		shards: make([]shard, max(o.Shards, 1)), seed: newHashSeed(), alarm: o.Alarm, timedOut: o.TimedOut, jobHook: o.JobHook,
		maxQueues: o.MaxQueues, window: o.Window, rules: o.Rules, journal: o.Journal, checkCapacity: o.CheckCapacity, grace: o.Grace,
		maxTallies: o.MaxTallies, tallied: o.Tallied,
	}
	if s.sharedQuota.limit = maxShared; o.PeerMemory > 0 {
		s.sharedQuota.limit = min(maxShared, o.PeerMemory)
	}
	if s.maxQueues == 0 {
		s.maxQueues = defaultMaxQueues
	}
	if s.window == 0 {
		s.window = DefaultWindow
	}
	if s.batch = o.Batch; s.batch == 0 {
		s.batch = defaultBatch
	}
	if s.checkCapacity == nil {
		s.checkCapacity = func() error { return nil }
	}
	if s.tallied == nil {
		s.tallied = func(string) bool { return true }
	}
	if s.alarm == nil {
		s.alarm = func() {}
	}
	if s.jobHook == nil {
		s.jobHook = func(*Job, Effect) {}
	}
	for i := range s.rules {
		s.undroppable |= uint16(oneIf(s.rules[i].Graph || s.rules[i].NeverDropped)) << i
		s.numberedSpaces |= uint16(oneIf(s.rules[i].Numbered)) << i
		s.queueMasks[i] = uint32(oneIf(s.rules[i].Numbered)) - 1
		s.failSpaces |= uint16(oneIf(s.rules[i].RetryRules != nil)) << i
	}
	for i := range s.shards {
		s.shards[i].init(s, i)
	}
	s.locks.init()
	s.salt = s.seed.hash([]byte("chance"))
	// A run's number is the sequence number of its slot. These numbers start at another one in every process, so that
	// no run of an earlier process is found.
	s.lastSlotSeq.Store(cmp.Or(o.FirstRun, maphash.String(maphash.MakeSeed(), "runs")>>8))
	s.wakeWall.Store(never)
	s.wakeMono.Store(never)
	return s
}

// SetTimeout sets the default time-out of reservations in milliseconds, 0 for none, also of jobs that are reserved
// already.
func (s *Scheduler) SetTimeout(ms int64) {
	s.timeout.Store(ms)
	s.alarmMono(0)
}

// Timeout returns the default time-out in milliseconds, 0 for none.
func (s *Scheduler) Timeout() int64 { return s.timeout.Load() }

// SetLockTimeout sets in milliseconds how long a job waits for a lock before it is ready again without the lock; 0: for
// ever.
func (s *Scheduler) SetLockTimeout(ms int64) {
	s.lockTimeout.Store(ms)
	s.alarmMono(0)
}

func (s *Scheduler) shardOf(queue []byte) *shard {
	if len(s.shards) == 1 {
		return &s.shards[0]
	}
	i, _ := bits.Mul64(s.seed.hash(queue), uint64(len(s.shards))) // cheaper than a remainder
	return &s.shards[i]
}

// nameHash returns the hash of a job's name in its queue and space. In a space of Rules.Numbered the queue does not
// count.
func (s *Scheduler) nameHash(queue uint32, space Space, name []byte) uint32 {
	h := s.seed.hash(name) ^ (uint64(queue&s.queueMasks[space])<<8|uint64(space))*0x9e3779b97f4a7c15
	h *= 0xd6e8feb86659fd93
	return uint32(h >> 32)
}

// alarmWall and alarmMono call the alarm if the given time is earlier than that of the next Tick.
func (s *Scheduler) alarmWall(at int64) { s.alarmAt(&s.wakeWall, at) }
func (s *Scheduler) alarmMono(at int64) { s.alarmAt(&s.wakeMono, at) }

func (s *Scheduler) alarmAt(wake *atomic.Int64, at int64) {
	if lower(wake, at) {
		s.alarm()
	}
}

// lower sets v to at if at is less, and reports whether it was less.
func lower(v *atomic.Int64, at int64) bool {
	for {
		old := v.Load()
		if at >= old {
			return false
		}
		if v.CompareAndSwap(old, at) {
			return true
		}
	}
}
