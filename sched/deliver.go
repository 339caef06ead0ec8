package sched

// Time is one reading of both clocks. Jobs become due by the wall clock, which an administrator may
// step. Reservations time out by the monotonic clock.
type Time struct {
	Wall       int64 // milliseconds since the Unix epoch
	Mono       int64 // milliseconds on a clock that only goes forward
	WallMicros int64 // wall clock in microseconds since the Unix epoch, for logs of tasks
}

// never is later than every time.
const never = int64(1<<63 - 1)

// SessionID is the address of a Delivery. The scheduler does not interpret it. The callers pack
// loop, slot and generation into it, so that the id of a closed session is recognised.
type SessionID uint64

// Space is a name space of jobs: names are unique per space and queue. Each protocol that submits
// jobs has at least one.
type Space uint8

// JobRef names one job for as long as it lives. The sequence number tells whether the job is gone:
// a JobRef never reaches another job.
type JobRef struct {
	Shard  uint16
	Space  Space
	Record uint32 // number of the job's record in its shard
	Seq    uint64
}

// Run names one reservation of one job, for as long as the job is held under it. The verbs of a
// holder take a Run and not a JobRef: a job is reserved again after its time-out, and the earlier
// Run then names nothing.
type Run struct {
	Shard  uint16
	Space  Space
	Record uint32 // number of the job's record in its shard
	Number uint64 // unique in this Scheduler; consecutive from a random start, so it is no secret; 0: no run
}

// Job is a view of one job. Its bytes are valid until the call that was given it returns.
type Job struct {
	Ref       JobRef
	Queue     string
	Space     Space
	Running   bool
	RunNumber uint64 // number of the Run, in an Assign
	Name      []byte
	Workload  []byte
	SchedAt   int64 // Unix seconds as submitted; 0: at once
	Due       int64 // Unix milliseconds, clamped to what fits
	Priority  int64
	Count     int32 // see Submission
	Timeout   int32 // seconds; 0: the scheduler's default
}

// Run returns the reservation with which an Assign hands the job out.
func (j *Job) Run() Run {
	return Run{Shard: j.Ref.Shard, Space: j.Ref.Space, Record: j.Ref.Record, Number: j.RunNumber}
}

// Effect is the kind of a Delivery.
type Effect uint8

// The effects.
const (
	// Assign hands Job to the session. It answers the Reserve with Tag.
	Assign Effect = iota + 1
	// Broadcast hands Job to the session. No report is expected: the job ends with the broadcast.
	Broadcast
	// Wake tells a sleeping session that a job is ready. It answers the Sleep with Tag.
	Wake
	// WakeWith is a Wake and a Broadcast in one, for a session that sleeps when a job is broadcast.
	// The session hands Job out at its next request.
	WakeWith
	// Result carries Data to the session that awaits the job under Tag.
	Result
	// Removed ends an await: the job was removed.
	Removed
	// Failed ends an await: the job failed for good, or failed once and the await asked for the
	// first failure.
	Failed
	// Chunk carries Data that a job's worker published to a listener under Tag.
	Chunk
	// End tells a listener that the job has ended: no Chunk follows.
	End
	// Proceed tells a publisher, under the Tag that it gave, that its listeners have caught up.
	Proceed
	// AwaitTimedOut ends an await by a TimeOutAwait of its peer.
	AwaitTimedOut
)

// Delivery is one effect on one session.
type Delivery struct {
	To     SessionID
	Tag    uint64
	Effect Effect
	Job    Job    // job of an Assign, a Broadcast, a WakeWith, or the end of an await in an Owned space
	Data   []byte // bytes of a Result or a Chunk
	// History is the history of an assigned job, for ParseHistory; nil: it has none. The Failed of a job that is given
	// up has the job's history too, if the deliveries of the peer are not taken to another event loop.
	History []byte
}

// Sink takes deliveries. Deliver may be called under a shard lock: it encodes or copies what it
// needs at once, and calls neither the scheduler nor the system. The scheduler reuses the Delivery
// and all bytes in it when Deliver returns.
type Sink interface {
	Deliver(d *Delivery)
}
