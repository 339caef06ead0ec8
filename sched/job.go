package sched

import "encoding/binary"

// state is where a job stands, and so what a verb may do with it.
type state uint8

// The states. A slab slot in state free holds no job.
const (
	free state = iota
	delayed
	ready
	reserved
	parked       // was refused a lock, and waits for it
	waiting      // a task whose predecessors are not complete
	remembered   // a complete task that can be looked up for a while
	ending       // a complete task whose successors are not all free yet
	broadcasting // being broadcast, see onAir
)

// Flags of a record.
const (
	// immediate: submitted with sched_at 0, which is what is shown; due then
	// holds the second of submission.
	immediate = 1 << iota
	// awaited: the shard's waiters have an entry for the job.
	awaited
	// ownDeadline: reserved under the job's own time-out, in the deadlines
	// index; without it under the default, in the running index.
	ownDeadline
	// locking: the named locks know the job, which holds one, waits for one or was
	// called for one: they are told of its end.
	locking
	// untimed: reserved without any time-out, in neither index.
	untimed
	// wide: its name or its queue's is too long for peers that are not Wide.
	longName
	// orphan: its owner has gone; it ends with its present run.
	orphan
	// task: it is part of a graph, see node.
	task
	// private: it is never matched with a Reserve, only stolen.
	private
	// withheld: it is ready, and its name clashes for all Named peers in line.
	withheld
	// asked: whoever has submitted it awaits it, see Expire.
	asked
)

// none is no slot, no bucket, no queue.
const none = ^uint32(0)

// record is a job's fixed part, pointer-free. Where one field serves two states,
// both are named.
type record struct {
	seq        uint64
	due        int64 // Unix seconds
	priority   int64
	bytes      uint32 // arena reference of uvarint(len(name)) name workload
	size       uint32 // of these bytes
	prev, next uint32 // neighbours in the bucket's list
	bucket     uint32 // the bucket it stands in
	home       uint32 // its queue; reserved: its watch
	count      int32
	timeout    int32  // seconds
	place      uint32 // delayed, waiting: milliseconds past due; reserved, parked: index in its watch's held, its queue's parked
	state      state
	space      Space
	flags      uint16
}

// schedAt is the record's sched_at as a client sees it.
func (r *record) schedAt() int64 {
	if r.flags&immediate != 0 {
		return 0
	}
	return r.due
}

// dueWall is when the job is due, in Unix milliseconds.
func (r *record) dueWall() int64 {
	past := int64(0)
	if r.state == delayed || r.state == waiting {
		past = int64(r.place)
	}
	return wallOf(key{max(r.due, -never/1000), past})
}

// notBefore is now, or when the job is due, if the clock was set back since its time came.
func (r *record) notBefore(now Time) Time {
	now.Wall = max(now.Wall, r.dueWall())
	return now
}

// packedLen is the arena room that a name and a workload take.
func packedLen(name, workload []byte) int {
	n := 1
	for l := len(name); l >= 0x80; l >>= 7 {
		n++
	}
	return n + len(name) + len(workload)
}

// pack writes what unpack reads. dst has packedLen bytes.
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
