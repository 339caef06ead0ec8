package sched

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync/atomic"
)

// The geometry of the arena. Sizes up to 256 bytes have a class every 8 bytes. Larger sizes have eight
// classes to a doubling, so that at most an eighth is lost. From ownChunk on, bytes have a chunk of
// their own size.
const (
	arenaChunk = 64 << 10
	slotBits   = 13 // a chunk of the smallest class has 8192 slots
	fineStep   = 8
	fineMax    = 256
	fineCount  = fineMax / fineStep
	ownChunk   = 16 << 10
	// arenaClasses: 32 classes of 8 bytes, then 8 for each doubling from 256 bytes to 16 KiB.
	arenaClasses = fineCount + 8*6
	// keepEmpty is how many empty chunks the arena of a shard keeps for new jobs, and how many its slab keeps: 256 KiB
	// each. The backlog of a pipelining load varies by as much.
	keepEmpty = 4
	// keepOwn is how many bytes of chunks of their own size a shard keeps for new jobs. Large jobs
	// that come and go would otherwise be garbage: the heap of a server without a backlog is so
	// small that it would be collected all the time.
	keepOwn = 2 << 20
	// maxChunks is the number of chunks that a reference has bits for: a shard holds 32 GiB of
	// small jobs, or half a million jobs of 16 KiB and more.
	maxChunks = 1 << (32 - slotBits)
)

// arena keeps the bytes of jobs in size-classed chunks without pointers. It keeps no length: the
// user of a reference knows it.
type arena struct {
	chunks    []arenaPart
	spare     []uint32
	classes   [arenaClasses]chain // chunks with room, by class
	bytes     int                 // size of all chunks
	memory    *atomic.Int64       // bytes of all arenas and slabs, see Scheduler.Memory
	empty     int                 // number of chunks without a slot in use
	ownChunks [][]byte            // kept chunks of their own size, oldest first
	ownSize   int                 // bytes of ownChunks
	serial    uint64              // serial of the last chunk
}

type arenaPart struct {
	buf    []byte
	serial uint64 // no two chunks have the same
	link   link
	class  int16 // ownClass for a chunk of its own
	free   uint16
	fresh  uint16
	live   uint16
	slots  uint16
}

const (
	ownClass = -1
	noSlot   = ^uint16(0)
)

func newArena() arena {
	a := arena{memory: new(atomic.Int64)}
	for i := range a.classes {
		a.classes[i].first = noLink
	}
	return a
}

// classOf returns the class for n bytes; n is below ownChunk.
func classOf(n int) int {
	if n <= fineMax {
		return max(n-1, 0) / fineStep
	}
	shift := bits.Len(uint(n-1)) - 4 // n-1 has its top four bits in 8..15
	return fineCount + (shift-5)*8 + (n-1)>>shift - 8
}

// classSize returns the slot size of a class.
func classSize(c int) int {
	if c < fineCount {
		return (c + 1) * fineStep
	}
	c -= fineCount
	return (c%8 + 9) << (c/8 + 5)
}

// alloc returns room for n bytes. ok is false when the arena is out of references.
func (a *arena) alloc(n int) (ref uint32, dst []byte, ok bool) {
	if n >= ownChunk {
		if len(a.spare) == 0 && len(a.chunks) == maxChunks {
			return 0, nil, false
		}
		c, _ := a.grow(arenaPart{buf: a.allocOwn(n), class: ownClass, slots: 1, live: 1})
		return uint32(c) << slotBits, a.chunks[c].buf, true
	}
	class := classOf(n)
	size := classSize(class)
	c := a.classes[class].first
	if c == noLink {
		slots := arenaChunk / size
		c, ok = a.grow(arenaPart{buf: make([]byte, slots*size), class: int16(class), free: noSlot, slots: uint16(slots)})
		if !ok {
			return 0, nil, false
		}
		a.classes[class].push(a, c)
		a.empty++
	}
	p := &a.chunks[c]
	a.empty -= oneIf(p.live == 0)
	i := p.free
	if i != noSlot {
		p.free = binary.LittleEndian.Uint16(p.buf[int(i)*size:])
	} else {
		i = p.fresh
		p.fresh++
	}
	p.live++
	if p.live == p.slots {
		a.classes[class].remove(a, c)
	}
	at := int(i) * size
	return uint32(c)<<slotBits | uint32(i), p.buf[at : at+n], true
}

// view returns the n bytes of a reference.
func (a *arena) view(ref uint32, n int) []byte {
	p := &a.chunks[ref>>slotBits]
	if p.class == ownClass {
		return p.buf[:n:n]
	}
	at := int(ref&(1<<slotBits-1)) * classSize(int(p.class))
	return p.buf[at : at+n : at+n]
}

// version returns a number for the bytes of a reference. Later bytes of the same reference have another number, if they
// have a chunk of their own. Smaller bytes may have the same number.
func (a *arena) version(ref uint32) uint64 {
	if i := int(ref >> slotBits); i < len(a.chunks) {
		return a.chunks[i].serial
	}
	return 0
}

// free frees a reference. A class keeps its last open chunk even when that is empty, and the arena
// keeps some more, so that jobs that come and go cost no allocation. released reports whether memory was
// freed: a view that is left over would keep it alive.
func (a *arena) free(ref uint32) (released bool) {
	c := int32(ref >> slotBits)
	p := &a.chunks[c]
	if p.class == ownClass {
		released = a.freeOwn(p.buf)
		a.drop(c)
		return released
	}
	i := uint16(ref & (1<<slotBits - 1))
	binary.LittleEndian.PutUint16(p.buf[int(i)*classSize(int(p.class)):], p.free)
	p.free = i
	list := &a.classes[p.class]
	if p.live == p.slots {
		list.push(a, c)
	}
	p.live--
	if p.live > 0 {
		return false
	}
	if a.empty >= keepEmpty && (list.first != c || p.link.next != noLink) {
		list.remove(a, c)
		a.drop(c)
		return true
	}
	a.empty++
	return false
}

// allocOwn returns n bytes, not zeroed, in a kept chunk that is at most twice as large, or in a
// new one.
func (a *arena) allocOwn(n int) []byte {
	for i, b := range a.ownChunks {
		if n <= cap(b) && cap(b) <= 2*n {
			a.ownChunks = slices.Delete(a.ownChunks, i, i+1)
			a.ownSize -= cap(b)
			return b[:n]
		}
	}
	return make([]byte, n)
}

// freeOwn keeps a chunk of allocOwn for the next, and frees the oldest kept chunks beyond keepOwn. released reports
// whether it freed any.
func (a *arena) freeOwn(b []byte) (released bool) {
	if cap(b) > keepOwn {
		return true
	}
	a.ownChunks = append(a.ownChunks, b)
	for a.ownSize += cap(b); a.ownSize > keepOwn; {
		a.ownSize -= cap(a.ownChunks[0])
		a.ownChunks = slices.Delete(a.ownChunks, 0, 1)
		released = true
	}
	return released
}

// grow adds a part to the first free chunk number, and returns that number. It returns false when the arena has
// maxChunks chunks.
func (a *arena) grow(p arenaPart) (int32, bool) {
	var c int32
	if n := len(a.spare); n > 0 {
		c = int32(a.spare[n-1])
		a.spare = a.spare[:n-1]
		a.chunks[c] = p
	} else if len(a.chunks) < maxChunks {
		c = int32(len(a.chunks))
		a.chunks = append(a.chunks, p)
	} else {
		return 0, false
	}
	a.serial++
	a.chunks[c].serial = a.serial
	a.bytes += len(p.buf)
	a.memory.Add(allocated(len(p.buf)))
	return c, true
}

// allocated returns about how many bytes the runtime takes for a chunk: it allocates whole pages of 8 KiB.
func allocated(n int) int64 {
	const page = 8 << 10
	return int64(n+page-1) &^ (page - 1)
}

func (a *arena) drop(c int32) {
	a.bytes -= len(a.chunks[c].buf)
	a.memory.Add(-allocated(len(a.chunks[c].buf)))
	a.chunks[c] = arenaPart{}
	a.spare = append(a.spare, uint32(c))
}

func (a *arena) linkOf(c int32) *link { return &a.chunks[c].link }

// freeBytes frees bytes in the arena. When the arena frees memory, it also clears the views that
// the shard reuses: they would keep the memory alive until their next use.
func (sh *shard) freeBytes(ref uint32) {
	if sh.arena.free(ref) {
		for _, j := range [...]*Job{&sh.out.Job, &sh.saved.Job} {
			j.Name, j.Workload = nil, nil
		}
		sh.out.History = nil
		sh.graph.forgetViews()
	}
}
