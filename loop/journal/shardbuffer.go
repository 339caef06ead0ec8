package journal

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// A change is kept as the operation that a batch of the store holds: a kind, the
// key's length and the key, and for a put the value's length and the value.
const (
	opDelete = 0
	opSet    = 1
	opDead   = 0x80 // added to the kind: undone within its group, never reaches a batch

	keyJob     = 'j' // and the Seq in 8 bytes, big-endian
	keyMeta    = 'm'
	keySetting = 's' // and the setting's key
	// keyDocument stands ahead of what Document.key appends.
	keyDocument = 'p'

	jobKeySize = 9
	jobOpSize  = 2 + jobKeySize // of a delete, and of a put up to its value's length
)

// gather collects the changes of one shard until the committer takes them.
//
// Its index knows the jobs that were changed since the last taking, so that of
// several changes of one job only the last is kept, and nothing at all of a job
// that is new to the store and already gone.
type shardBuffer struct {
	mu        sync.Mutex
	group     uint64 // that the next change belongs to
	buf       []byte // operations
	live      int    // operations in buf that are not dead
	dead      int    // bytes of buf that are
	added     int64  // jobs that the operations add to the store, less those they take
	maxSeq    uint64 // no job with a higher Seq has ever been in the store or in buf
	index     index
	recent    int // bytes taken lately, for letting go of a buffer that is too large
	checkedAt int // bytes in buf when put last said that it is much

	last atomic.Uint64 // group of the last change
	_    [64]byte      // no neighbour in the cache line
}

// put appends a job that is new or has changed. It reports whether so much has been appended
// that somebody should see whether the disk has room for it.
func (b *shardBuffer) put(r *Record) (much bool) {
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
	if much = len(b.buf) >= b.checkedAt+shardCheckBytes; much {
		b.checkedAt = len(b.buf)
	}
	b.last.Store(b.group)
	b.mu.Unlock()
	return much
}

// remove appends the end of a job.
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
		return // there is no such job
	}
	e.set(len(b.buf), false)
	b.buf = append(b.buf, opDelete, jobKeySize, keyJob)
	b.buf = binary.BigEndian.AppendUint64(b.buf, seq)
	b.live++
	b.added--
}

// undo takes back what e's operation did.
func (b *shardBuffer) cancel(e *entry) {
	at := e.at()
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

// squeeze moves the live operations together when the buffer is mostly dead, so
// that jobs which come and go stay within the processor's cache.
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

// count corrects the number of stored jobs.
func (b *shardBuffer) addJobs(more int64) {
	b.mu.Lock()
	b.added += more
	b.mu.Unlock()
}

// clear forgets all operations. The caller holds mu.
func (b *shardBuffer) clear() {
	b.buf, b.live, b.dead, b.added, b.checkedAt = b.buf[:0], 0, 0, 0, 0
	b.index.clear()
}

// taking is what the committer took from one gather.
type drained struct {
	ops    []byte
	live   int
	dead   int
	added  int64
	maxSeq uint64
}

// take hands over the operations and starts the next group with the buffer spare.
func (b *shardBuffer) drain(next uint64, spare []byte) drained {
	b.mu.Lock()
	defer b.mu.Unlock()
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

// shrink lets go of the buffer if it is empty and large.
func (b *shardBuffer) shrink() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.buf) == 0 && cap(b.buf) > minBuffer {
		b.buf = nil
	}
}

const (
	// minBuffer is kept whatever was used lately.
	minBuffer = 64 << 10
	// lookBytes is how much may be appended to a shard between two looks at the free space.
	shardCheckBytes = 1 << 20
	// squeezeFrom is how much must be dead to be worth the move.
	compactFrom = 256 << 10
)

// appendPut appends the operation that stores r.
func appendPut(dst []byte, r *Record) []byte {
	size := recordSize(r)
	dst = slices.Grow(dst, jobOpSize+binary.MaxVarintLen32+size)
	dst = append(dst, opSet, jobKeySize, keyJob)
	dst = binary.BigEndian.AppendUint64(dst, r.Seq)
	dst = binary.AppendUvarint(dst, uint64(size))
	return AppendRecord(dst, r)
}

// opSize is the size of the operation that b begins with, dead or not.
func opSize(b []byte) int {
	klen, n := binary.Uvarint(b[1:])
	n += 1 + int(klen)
	if b[0]&^opDead == opDelete {
		return n
	}
	vlen, m := binary.Uvarint(b[n:])
	return n + m + int(vlen)
}
