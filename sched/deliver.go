package sched

// Time is one reading of both clocks. Jobs become due by the wall clock, which an
// administrator may step; reservations run out by the other, which never steps.
type Time struct {
	Wall   int64 // milliseconds since the Unix epoch
	Mono   int64 // milliseconds on a clock that only goes forward
	Micros int64 // the wall clock's, since the Unix epoch; what logs say
}

// never is later than every time.
const never = int64(1<<63 - 1)

// SessionID says whom a delivery is for. The scheduler hands it back as it came;
// the rooms above pack loop, slot and generation into it, so that an id that has
// outlived its session is recognised.
type SessionID uint64

// Space is a name space for jobs: names are unique per space and queue. Each
// protocol that submits jobs has one.
type Space uint8

// JobRef names one job for as long as it lives. A reference to a job that is gone
// is recognised by its sequence number and never reaches another job.
type JobRef struct {
	Shard uint16
	Space Space
	Slot  uint32
	Seq   uint64
}

// Run names one reservation of one job, for as long as the job is held under it. The verbs
// of a holder take a Run and not a JobRef: a job is handed out again after its time-out, and
// the name of the earlier reservation then names nothing.
type Run struct {
	Shard  uint16
	Space  Space
	Slot   uint32
	Number uint64 // unique in this Scheduler, and begun at a place that nobody can guess; 0: no run
}

// Job is a view of one job. Its bytes are valid until the call that was given it
// returns.
type Job struct {
	Ref      JobRef
	Queue    string
	Space    Space
	Running  bool
	Number   uint64 // Assign: that of its Run
	Name     []byte
	Workload []byte
	SchedAt  int64 // Unix seconds as submitted; 0: at once
	Due      int64 // Unix milliseconds, clamped to what fits
	Priority int64
	Count    int32
	Timeout  int32 // seconds; 0: the scheduler's default
}

// Run returns the reservation with which an Assign hands the job out.
func (j *Job) Run() Run {
	return Run{Shard: j.Ref.Shard, Space: j.Ref.Space, Slot: j.Ref.Slot, Number: j.Number}
}

// Effect is the kind of a Delivery.
type Effect uint8

// The effects.
const (
	// Assign hands Job to the session; it is the answer to the Reserve with Tag.
	Assign Effect = iota + 1
	// Broadcast hands Job to the session and forgets it: nothing is expected back.
	Broadcast
	// Wake tells a sleeping session that a job is ready; answer to Sleep with Tag.
	Wake
	// WakeWith is a Wake and a Broadcast in one, for a session that sleeps when a job is
	// broadcast: Job is the session's, to be handed out at its next request.
	WakeWith
	// Result carries Data to the session that awaits the job under Tag.
	Result
	// Removed ends an await: the job was removed before it was done.
	Removed
	// Failed ends an await whose owner asked to hear of the first failure.
	Failed
	// Chunk carries Data that a job's worker published to a listener under Tag.
	Chunk
	// End tells a listener that no more chunks follow: the job is gone.
	End
	// Proceed tells a publisher, under the Tag it gave, that its listeners caught up.
	Proceed
	// Expired ends an await by its owner's Expire.
	Expired
)

// Delivery is one effect on one session.
type Delivery struct {
	To     SessionID
	Tag    uint64
	Effect Effect
	Job    Job    // Assign, Broadcast, WakeWith; what ends an await of a job whose space is Owned
	Data   []byte // Result, Chunk
}

// Sink takes deliveries. Deliver may be called under a shard lock: it encodes or
// copies what it needs, at once, and calls neither the scheduler nor the system.
// The Delivery and all bytes in it are the scheduler's again when it returns.
type Sink interface {
	Deliver(d *Delivery)
}
