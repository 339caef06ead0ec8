package sched

import (
	"errors"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// Limits. Each keeps one peer, or one mistake, from costing memory without bound;
// all are far beyond what clients of the protocols do.
const (
	// MaxSlots bounds the outstanding reserves of a peer: the repeated-request
	// check reads them all. Client libraries use one per thread.
	MaxSlots = 16 << 10
	// maxWatches bounds the queues that one peer serves: a Reserve looks at each.
	maxWatches = 64 << 10
	// MaxAwaits bounds the sessions waiting for one job's result.
	MaxAwaits = 4 << 10
	// defaultMaxQueues bounds the queues; an idle one takes about 300 bytes.
	defaultMaxQueues = 1 << 20
	// DefaultWindow is how many bytes of jobs may wait to be sent to one peer
	// before it is given no more: several times what a fast link holds.
	DefaultWindow = 256 << 10
	// defaultBatch bounds the jobs moved under one hold of a shard's lock: a fraction of a
	// millisecond.
	defaultBatch = 256
	// maxLocks bounds the named locks that are held or waited for.
	maxLocks = 64 << 10
	// maxJobLocks bounds the locks that one job holds: they are unlocked together.
	maxJobLocks = 256
	// maxSleep bounds the time to the next Tick, so that a wall clock that was
	// stepped is noticed.
	maxSleep = 1000
)

// Errors of the verbs.
var (
	ErrNotFound  = errors.New("no such job is reserved")
	errNotOwner  = errors.New("the job is held by another peer")
	ErrNoWorker  = errors.New("no worker serves the queue")
	ErrDuplicate = errors.New("a job of that name is known")
	errStale     = errors.New("the revision is not the latest")
	errFull      = errors.New("no room for more jobs")
	errSpace     = errors.New("no protocol keeps jobs of space")
	errCostly    = errors.New("tasks are to wait for younger ones, and to find their order takes too long: name fewer at a time, or make first what others wait for")
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

// Rules are what a job follows by the space that it was submitted in. The zero value:
// names are unique per queue, a pending job is replaced by the next of its name, a
// reservation ends with its time-out, and a failed job is tried for ever.
type Rules struct {
	// Durable: jobs are told to the Journal.
	Durable bool
	// Global: names are unique in the whole space; a second one is ErrDuplicate.
	Global bool
	// Owned: a job goes with the peer that awaits it, and is never broadcast.
	Owned bool
	// Untimed: a reservation lasts until its holder ends it or leaves.
	Untimed bool
	// Graph: its jobs are tasks, which wait for each other and stand in a line of their
	// own. Extend, Transfer, Steal, Complete and those of a Lease are their verbs; they
	// are never broadcast or dropped with their queue, and RemoveTask alone removes them. It
	// needs Untimed.
	Graph bool
	// Private: its tasks are handed out by Steal alone, never to a Reserve.
	Private bool
	// Kept: a queue that has had one of its jobs is never dropped. Graph implies it.
	Kept bool
	// Deaths, when not 0: each failure gives the job one more priority and puts it
	// ahead of its equals, and so many failures end it with Failed.
	Deaths int32
}

// shared says that a job may go to many peers at once.
func (r *Rules) shared() bool { return !r.Owned && !r.Graph }

// Options are a Scheduler's settings; the zero value of a field means its default.
type Options struct {
	Shards    int          // default 1
	MaxQueues int          // default defaultMaxQueues
	Window    int          // bytes, default DefaultWindow
	Batch     int          // jobs moved under one hold of a shard's lock, default defaultBatch; tests make it small
	Seed      maphash.Seed // of the name hashes; by default a new one
	// Rules are those of each name space, by its number; default: none special.
	Rules [MaxSpaces]Rules
	// Journal, when set, is told what the jobs of durable spaces come to.
	Journal Journal
	// Grace is how many milliseconds behind its time-out a reservation ends: a holder that
	// stops on time still has its word counted.
	Grace int64
	// Alarm, when set, is called when Tick has something to do earlier than it
	// last said. It is called under a shard lock and must not block.
	Alarm func()
	// TimedOut, when set, is told of each reservation that its time-out has ended, before the
	// job goes to anybody else. It is called under a shard lock: it copies what it keeps of
	// the job, and does not block.
	TimedOut func(job *Job, holder SessionID)
}

// Scheduler is the door to all jobs. It is safe for concurrent use.
type Scheduler struct {
	shards    []shard
	seed      maphash.Seed
	alarm     func()
	timedOut  func(*Job, SessionID)
	journal   Journal
	maxQueues int
	window    int
	batch     int
	grace     int64

	rules      [MaxSpaces]Rules
	keptSpaces uint16 // those whose queues are never dropped
	locks      locks
	ids        [idShards]idTable
	departed   departures

	timeout     atomic.Int64 // default time-out in milliseconds, 0: none
	lockTimeout atomic.Int64 // how long a job waits for a lock, in milliseconds, 0: for ever
	remember    atomic.Int64 // how long a complete task is known, in milliseconds
	queueCount  atomic.Int64
	sharedQuota atomic.Int64 // see register
	wakeWall    atomic.Int64 // when the next Tick is due, by either clock
	wakeMono    atomic.Int64

	_     [64]byte // the two sequences below change with every job
	jobs  atomic.Uint64
	slots atomic.Uint64

	lastPlace atomic.Int64 // the last place in line that was given, of all queues
}

// New returns an empty scheduler.
func New(o Options) *Scheduler {
	s := &Scheduler{
		shards: make([]shard, max(o.Shards, 1)), seed: o.Seed, alarm: o.Alarm, timedOut: o.TimedOut,
		maxQueues: o.MaxQueues, window: o.Window, rules: o.Rules, journal: o.Journal, grace: o.Grace,
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
	if s.alarm == nil {
		s.alarm = func() {}
	}
	if s.seed == (maphash.Seed{}) {
		s.seed = maphash.MakeSeed()
	}
	for i := range s.rules {
		s.keptSpaces |= uint16(count(s.rules[i].Graph || s.rules[i].Kept)) << i
	}
	for i := range s.shards {
		s.shards[i].init(s, i)
	}
	s.locks.init()
	// Runs are numbered by the slots that they fill: a handle of the process before this one
	// must not fit by chance.
	s.slots.Store(maphash.String(s.seed, "runs") >> 8)
	s.wakeWall.Store(never)
	s.wakeMono.Store(never)
	return s
}

// SetTimeout sets the default time-out of reserved jobs in milliseconds, 0 for
// none. It counts at once, for jobs that are already reserved too.
func (s *Scheduler) SetTimeout(ms int64) {
	s.timeout.Store(ms)
	s.alarmMono(0)
}

// Timeout returns the default time-out in milliseconds, 0 for none.
func (s *Scheduler) Timeout() int64 { return s.timeout.Load() }

// SetLockTimeout sets how long a job waits for a lock, in milliseconds, before it is
// ready again without it; 0 for ever.
func (s *Scheduler) SetLockTimeout(ms int64) {
	s.lockTimeout.Store(ms)
	s.alarmMono(0)
}

func (s *Scheduler) shardOf(queue []byte) *shard {
	if len(s.shards) == 1 {
		return &s.shards[0]
	}
	i, _ := bits.Mul64(maphash.Bytes(s.seed, queue), uint64(len(s.shards))) // cheaper than a remainder
	return &s.shards[i]
}

// tag is the hash of a job's name in its queue and space.
func (s *Scheduler) tag(queue uint32, space Space, name []byte) uint32 {
	h := maphash.Bytes(s.seed, name) ^ (uint64(queue)<<8|uint64(space))*0x9e3779b97f4a7c15
	h *= 0xd6e8feb86659fd93
	return uint32(h >> 32)
}

// alarmWall and alarmMono call the alarm when a time lies before the next Tick.
func (s *Scheduler) alarmWall(at int64) { s.alarmAt(&s.wakeWall, at) }
func (s *Scheduler) alarmMono(at int64) { s.alarmAt(&s.wakeMono, at) }

func (s *Scheduler) alarmAt(wake *atomic.Int64, at int64) {
	if lower(wake, at) {
		s.alarm()
	}
}

// lower sets v to at when that is less, and says whether it was.
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
