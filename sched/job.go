package sched

import "encoding/binary"

// state says in which place a job stands.
type state uint8

// The states of a job. A record in state free holds no job.
const (
	free state = iota
	delayed
	ready
	reserved
	parked       // was refused a lock, and waits for it
	waiting      // a task whose predecessors are not complete
	remembered   // a complete task that can be looked up for a while
	freeing      // a complete task whose successors are not all free yet
	broadcasting // is being broadcast, see activeBroadcast
	failed       // was given up and is kept, see keptLine
	finished     // is done or has expired, and is kept, see keptLine
)

// The flags of a record.
const (
	// immediate: the job was submitted with sched_at 0, and views show 0. due is the second of its submission.
	immediate = 1 << iota
	// awaited: the shard's awaits have an entry for the job.
	awaited
	// ownDeadline: the job is reserved under its own time-out and stands in ownTimed. Without this flag a
	// reserved job has the default time-out and stands in defaultTimed.
	ownDeadline
	// locking: the job holds a named lock, waits for one or was woken for one. Its end reaches the
	// locks.
	locking
	// untimed: the job is reserved without a time-out and stands in neither of the two.
	untimed
	// longName: the name of the job or of its queue is too long for peers that are not LongNames.
	longName
	// orphan: the job's owner has left. The job ends with its present run.
	orphan
	// task: the job is part of a graph, see node.
	task
	// private: the task is never handed to a Reserve, only stolen.
	private
	// withheld: the job is ready, and its name clashes for all NameOnly peers in line.
	withheld
	// awaitedBySubmitter: every submission of the job so far had an await without Stays, see TimeOutAwait.
	awaitedBySubmitter
	// hasHistory: the job has a history.
	hasHistory
	// laned: a lane has the ready job, or counts the job as taken because it is withheld, broadcasting or being handed
	// out, see laneID. The lane of a reserved job stands in the held jobs of its holder's watch instead.
	laned
	// numbered: the job's sequence number is its name, and its counts are behind its bytes, see Counts.
	numbered
	// expires: the workload says until when the job may start, see Rules.Expiry.
	expires
	// hooked: Options.JobHook is called for the job.
	hooked
)

// none is the number of no record, no bucket and no queue.
const none = ^uint32(0)

// record is the fixed, pointer-free part of a job. The comment of a field that serves several states
// names them.
type record struct {
	seq        uint64
	due        int64 // Unix seconds; failed, finished: see endedAt
	priority   int64
	bytes      uint32 // arena reference of uvarint(len(name)) name workload
	size       uint32 // number of these bytes
	prev, next uint32 // neighbours in its bucket's list
	bucket     uint32 // number of its bucket
	container  uint32 // index of its queue; reserved: of the watch that holds it, see holder
	count      int32  // see Submission.Count
	timeout    int32  // seconds
	stateData  uint32 // a number that some states need: read it by the accessor of the state
	state      state
	space      Space
	flags      uint16
}

// costShift sets the cost of a match: one step, and another for each 4 KiB of the job, since its bytes are copied under
// the lock.
const costShift = 12

func (r *record) cost() int { return 1 + int(r.size>>costShift) }

// dueMillis returns how many milliseconds after the second due a delayed or waiting job is due.
func (r *record) dueMillis() uint32 { return r.stateData }

// heldIndex returns the index of a reserved job in the held jobs of its watch.
func (r *record) heldIndex() uint32 { return r.stateData }

// parkedIndex returns the index of a parked job in the parked jobs of its queue.
func (r *record) parkedIndex() uint32 { return r.stateData }

// laneID returns the id of the lane of a laned job.
func (r *record) laneID() uint32 { return r.stateData }

// use returns what a failed or finished job is kept for.
func (r *record) use() keptUse { return keptUse(r.stateData) }

// endedAt returns when a failed or finished job ended, in Unix milliseconds. It takes the place of the due time.
func (r *record) endedAt() int64 { return r.due }

// schedAt is the record's sched_at as a client sees it.
func (r *record) schedAt() int64 {
	if r.flags&immediate != 0 {
		return 0
	}
	return r.due
}

// dueWall returns when the job is due, in Unix milliseconds.
func (r *record) dueWall() int64 {
	millis := int64(0)
	if r.state == delayed || r.state == waiting {
		millis = int64(r.dueMillis())
	}
	return wallOf(sortKey{max(r.due, -never/1000), millis})
}

// notBefore returns now, or the job's due time if the clock was set back to a time before that.
func (r *record) notBefore(now Time) Time {
	now.Wall = max(now.Wall, r.dueWall())
	return now
}

// packedLen returns the bytes that a packed name and workload take.
func packedLen(name, workload []byte) int {
	n := 1
	for l := len(name); l >= 0x80; l >>= 7 {
		n++
	}
	return n + len(name) + len(workload)
}

// pack writes a name and a workload for unpack. dst has packedLen bytes.
func pack(dst, name, workload []byte) {
	n := binary.PutUvarint(dst, uint64(len(name)))
	n += copy(dst[n:], name)
	copy(dst[n:], workload)
}

// unpack splits a job's bytes into views of its name and workload.
func unpack(b []byte) (name, workload []byte) {
	if n := int(b[0]); n < 0x80 {
		return b[1 : 1+n : 1+n], b[1+n:]
	}
	l, n := binary.Uvarint(b)
	end := n + int(l)
	return b[n:end:end], b[end:]
}
