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
type gather struct {
	mu    sync.Mutex
	group uint64 // that the next change belongs to
	buf   []byte // operations
	live  int    // operations in buf that are not dead
	dead  int    // bytes of buf that are
	grown int64  // jobs that the operations add to the store, less those they take
	top   uint64 // no job with a higher Seq has ever been in the store or in buf
	index index
	used  int // bytes taken lately, for letting go of a buffer that is too large
	told  int // bytes in buf when put last said that it is much

	last atomic.Uint64 // group of the last change
	_    [64]byte      // no neighbour in the cache line
}

// put appends a job that is new or has changed. It reports whether so much has been appended
// that somebody should see whether the disk has room for it.
func (g *gather) put(r *Record) (much bool) {
	g.mu.Lock()
	fresh := r.Seq > g.top
	g.top = max(g.top, r.Seq)
	e := g.index.find(r.Seq)
	if e != nil {
		fresh = e.fresh()
		g.undo(e)
	} else {
		e = g.index.add(r.Seq)
	}
	e.set(len(g.buf), fresh)
	g.buf = appendPut(g.buf, r)
	g.live++
	if fresh {
		g.grown++
	}
	g.squeeze()
	if much = len(g.buf) >= g.told+lookBytes; much {
		g.told = len(g.buf)
	}
	g.last.Store(g.group)
	g.mu.Unlock()
	return much
}

// remove appends the end of a job.
func (g *gather) remove(seq uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last.Store(g.group)
	e := g.index.find(seq)
	switch {
	case e != nil && e.fresh():
		g.undo(e)
		g.index.remove(seq)
		if g.live == 0 {
			g.clear()
		} else {
			g.squeeze()
		}
		return
	case e != nil:
		g.undo(e)
	case seq <= g.top:
		e = g.index.add(seq)
	default:
		return // there is no such job
	}
	e.set(len(g.buf), false)
	g.buf = append(g.buf, opDelete, jobKeySize, keyJob)
	g.buf = binary.BigEndian.AppendUint64(g.buf, seq)
	g.live++
	g.grown--
}

// undo takes back what e's operation did.
func (g *gather) undo(e *entry) {
	at := e.at()
	switch {
	case e.fresh():
		g.grown--
	case g.buf[at] == opDelete:
		g.grown++
	}
	g.dead += opSize(g.buf[at:])
	g.buf[at] |= opDead
	g.live--
}

// squeeze moves the live operations together when the buffer is mostly dead, so
// that jobs which come and go stay within the processor's cache.
func (g *gather) squeeze() {
	if g.dead < squeezeFrom || g.dead < len(g.buf)/4*3 {
		return
	}
	to := 0
	for at := 0; at < len(g.buf); {
		op := g.buf[at : at+opSize(g.buf[at:])]
		at += len(op)
		if op[0]&opDead != 0 {
			continue
		}
		e := g.index.find(binary.BigEndian.Uint64(op[3:]))
		e.set(to, e.fresh())
		to += copy(g.buf[to:], op)
	}
	g.buf, g.dead = g.buf[:to], 0
}

// raw appends an operation on a setting or a document, by its key in the store.
func (g *gather) raw(kind byte, key, value []byte) {
	g.mu.Lock()
	g.buf = append(g.buf, kind)
	g.buf = appendBytes(g.buf, key)
	if kind == opSet {
		g.buf = appendBytes(g.buf, value)
	}
	g.live++
	g.last.Store(g.group)
	g.mu.Unlock()
}

// count corrects the number of stored jobs.
func (g *gather) count(more int64) {
	g.mu.Lock()
	g.grown += more
	g.mu.Unlock()
}

// clear forgets all operations. The caller holds mu.
func (g *gather) clear() {
	g.buf, g.live, g.dead, g.grown, g.told = g.buf[:0], 0, 0, 0, 0
	g.index.clear()
}

// taking is what the committer took from one gather.
type taking struct {
	ops   []byte
	live  int
	dead  int
	grown int64
	top   uint64
}

// take hands over the operations and starts the next group with the buffer spare.
func (g *gather) take(next uint64, spare []byte) taking {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := taking{ops: g.buf, live: g.live, dead: g.dead, grown: g.grown, top: g.top}
	g.used = max(len(g.buf), g.used-g.used/8)
	if cap(spare) > 4*g.used+minBuffer {
		spare = nil
	}
	g.group = next
	g.buf = spare
	g.clear()
	g.index.shrink()
	return t
}

// shrink lets go of the buffer if it is empty and large.
func (g *gather) shrink() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.buf) == 0 && cap(g.buf) > minBuffer {
		g.buf = nil
	}
}

const (
	// minBuffer is kept whatever was used lately.
	minBuffer = 64 << 10
	// lookBytes is how much may be appended to a shard between two looks at the free space.
	lookBytes = 1 << 20
	// squeezeFrom is how much must be dead to be worth the move.
	squeezeFrom = 256 << 10
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
