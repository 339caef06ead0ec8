package journal

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// A change is encoded as the operation of a store's batch: a kind, the key's length, the key, and
// for a put the value's length and the value.
const (
	opDelete = 0
	opSet    = 1
	opDead   = 0x80 // a flag of the kind: the operation is cancelled and never reaches a batch

	jobOpSize = 2 + recordKeySize // of a delete, and of a put up to the value's length
)

// shardBuffer collects the changes of one shard until the committer drains it.
//
// Its index holds the jobs changed since the last drain. Of several changes of a job only the last
// one is kept, and none of a job that is new to the store and already deleted.
type shardBuffer struct {
	joined    sync.Mutex // held between Begin and End, and before mu by drain
	mu        sync.Mutex
	group     uint64 // group of the next change
	buf       []byte // operations
	live      int    // operations in buf that are not dead
	dead      int    // bytes of dead operations in buf
	added     int64  // jobs that the operations create, less those they delete
	maxSeq    uint64 // no job with a higher Seq has ever been in the store or in buf
	index     index
	recent    int // decaying maximum of the bytes drained, by which drain frees a large buffer
	checkedAt int // len(buf) when put last asked for a check of the free space

	last atomic.Uint64 // group of the last change
	_    [64]byte      // keeps the next shard's fields off this cache line
}

// put appends a new or changed record. It reports whether enough was appended since the last check
// of the free space for another one.
func (b *shardBuffer) put(r *Record) (checkSpace bool) {
	b.mu.Lock()
	fresh := r.Seq > b.maxSeq
	b.maxSeq = max(b.maxSeq, r.Seq)
	e := b.index.find(r.Seq)
	if e != nil {
		fresh = e.fresh()
		b.cancel(e)
	} else {
		e = b.index.add(r.Seq)
	}
	e.set(len(b.buf), fresh)
	b.buf = appendPut(b.buf, r)
	b.live++
	if fresh {
		b.added++
	}
	b.compact()
	if checkSpace = len(b.buf) >= b.checkedAt+shardCheckBytes; checkSpace {
		b.checkedAt = len(b.buf)
	}
	b.last.Store(b.group)
	b.mu.Unlock()
	return checkSpace
}

// remove appends the deletion of a job.
func (b *shardBuffer) remove(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last.Store(b.group)
	e := b.index.find(seq)
	switch {
	case e != nil && e.fresh():
		b.cancel(e)
		b.index.remove(seq)
		if b.live == 0 {
			b.clear()
		} else {
			b.compact()
		}
		return
	case e != nil:
		b.cancel(e)
	case seq <= b.maxSeq:
		e = b.index.add(seq)
	default:
		return // the job does not exist
	}
	e.set(len(b.buf), false)
	b.buf = append(b.buf, opDelete, recordKeySize, keyRecord)
	b.buf = binary.BigEndian.AppendUint64(b.buf, seq)
	b.live++
	b.added--
}

// cancel marks e's operation dead and reverses its effect on the counts.
func (b *shardBuffer) cancel(e *entry) {
	at := e.offset()
	switch {
	case e.fresh():
		b.added--
	case b.buf[at] == opDelete:
		b.added++
	}
	b.dead += opSize(b.buf[at:])
	b.buf[at] |= opDead
	b.live--
}

// compact removes dead operations when they fill most of the buffer, so that jobs which come and go
// stay within the processor's cache.
func (b *shardBuffer) compact() {
	if b.dead < compactFrom || b.dead < len(b.buf)/4*3 {
		return
	}
	to := 0
	for at := 0; at < len(b.buf); {
		op := b.buf[at : at+opSize(b.buf[at:])]
		at += len(op)
		if op[0]&opDead != 0 {
			continue
		}
		e := b.index.find(binary.BigEndian.Uint64(op[3:]))
		e.set(to, e.fresh())
		to += copy(b.buf[to:], op)
	}
	b.buf, b.dead = b.buf[:to], 0
}

// raw appends an operation on a setting or a document, by its key in the store.
func (b *shardBuffer) raw(kind byte, key, value []byte) {
	b.mu.Lock()
	b.buf = append(b.buf, kind)
	b.buf = appendBytes(b.buf, key)
	if kind == opSet {
		b.buf = appendBytes(b.buf, value)
	}
	b.live++
	b.last.Store(b.group)
	b.mu.Unlock()
}

// addJobs adds to the number of stored jobs without a change.
func (b *shardBuffer) addJobs(more int64) {
	b.mu.Lock()
	b.added += more
	b.mu.Unlock()
}

// clear removes all operations. The caller holds mu.
func (b *shardBuffer) clear() {
	b.buf, b.live, b.dead, b.added, b.checkedAt = b.buf[:0], 0, 0, 0, 0
	b.index.clear()
}

// drained is the content of a shardBuffer when the committer drained it.
type drained struct {
	ops    []byte
	live   int
	dead   int
	added  int64
	maxSeq uint64
}

// drain returns the operations and begins group next with the buffer spare. The buffer is locked.
func (b *shardBuffer) drain(next uint64, spare []byte) drained {
	t := drained{ops: b.buf, live: b.live, dead: b.dead, added: b.added, maxSeq: b.maxSeq}
	b.recent = max(len(b.buf), b.recent-b.recent/8)
	if cap(spare) > 4*b.recent+minBuffer {
		spare = nil
	}
	b.group = next
	b.buf = spare
	b.clear()
	b.index.shrink()
	return t
}

// shrink frees the buffer if it is empty and large.
func (b *shardBuffer) shrink() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.buf) == 0 && cap(b.buf) > minBuffer {
		b.buf = nil
	}
}

const (
	// minBuffer is the capacity up to which a buffer is never freed.
	minBuffer = 64 << 10
	// shardCheckBytes is how many bytes a shard may append between two checks of the free space.
	shardCheckBytes = 1 << 20
	// compactFrom is the number of dead bytes from which compact is worth its cost.
	compactFrom = 256 << 10
)

// appendPut appends the operation that stores r.
func appendPut(dst []byte, r *Record) []byte {
	size := recordSize(r)
	dst = slices.Grow(dst, jobOpSize+binary.MaxVarintLen32+size)
	dst = append(dst, opSet, recordKeySize, keyRecord)
	dst = binary.BigEndian.AppendUint64(dst, r.Seq)
	dst = binary.AppendUvarint(dst, uint64(size))
	return appendRecord(dst, r)
}

// opSize returns the size of the operation, live or dead, at the beginning of b.
func opSize(b []byte) int {
	klen, n := binary.Uvarint(b[1:])
	n += 1 + int(klen)
	if b[0]&^opDead == opDelete {
		return n
	}
	vlen, m := binary.Uvarint(b[n:])
	return n + m + int(vlen)
}
