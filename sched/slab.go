package sched

import (
	"reflect"
	"sync/atomic"
)

// Records come in chunks of 1024, 64 or 72 KiB of pointer-free memory each. The chunks are few enough
// for the garbage collector and small enough that some of them empty.
const (
	slabBits  = 10
	slabChunk = 1 << slabBits
)

// The bytes of a chunk's records, and of the nodes that its tasks add.
var (
	recordBytes = int64(reflect.TypeFor[[slabChunk]record]().Size())
	nodeBytes   = int64(reflect.TypeFor[[slabChunk]node]().Size())
)

// slab allocates record slots. A job keeps its slot's number until the slot is freed.
type slab struct {
	chunks []slabPart
	spare  []uint32 // numbers of chunks that were freed
	open   chain    // chunks with room
	live   int
	empty  int           // number of chunks without a record in use
	memory *atomic.Int64 // bytes of the chunks of all slabs and arenas, see Scheduler.Memory
}

type slabPart struct {
	records *[slabChunk]record
	nodes   *[slabChunk]node // nil as long as the chunk has had no task
	link    link
	free    uint32 // first slot of the free list through next, or none
	fresh   uint32 // the slots from here on were never used
	live    uint32
}

// size returns the bytes of a chunk.
func (p *slabPart) size() int64 {
	return recordBytes*int64(oneIf(p.records != nil)) + nodeBytes*int64(oneIf(p.nodes != nil))
}

// at returns the record of a slot that is in use.
func (s *slab) at(slot uint32) *record {
	return &s.chunks[slot>>slabBits].records[slot&(slabChunk-1)]
}

// find returns the record of any slot number, nil if the slab has no such slot.
func (s *slab) find(slot uint32) *record {
	if c := slot >> slabBits; c < uint32(len(s.chunks)) && s.chunks[c].records != nil {
		return &s.chunks[c].records[slot&(slabChunk-1)]
	}
	return nil
}

// alloc returns a zeroed record.
func (s *slab) alloc() (uint32, *record) {
	c := s.open.first
	if c == noLink {
		c = s.grow()
	}
	p := &s.chunks[c]
	s.empty -= oneIf(p.live == 0)
	i := p.free
	if i != none {
		p.free = p.records[i].next
		p.records[i] = record{}
	} else {
		i = p.fresh
		p.fresh++
	}
	p.live++
	s.live++
	if p.live == slabChunk {
		s.open.remove(s, c)
	}
	return uint32(c)<<slabBits | i, &p.records[i]
}

// free frees a slot. It also frees the slot's chunk when that is empty, if keepEmpty other chunks are empty and it is
// not the only open chunk.
func (s *slab) free(slot uint32) {
	c := int32(slot >> slabBits)
	p := &s.chunks[c]
	i := slot & (slabChunk - 1)
	p.records[i] = record{next: p.free}
	if p.nodes != nil {
		p.nodes[i] = node{}
	}
	p.free = i
	if p.live == slabChunk {
		s.open.push(s, c)
	}
	p.live--
	s.live--
	if p.live > 0 {
		return
	}
	if s.empty >= keepEmpty && (s.open.first != c || p.link.next != noLink) {
		s.open.remove(s, c)
		s.memory.Add(-p.size())
		*p = slabPart{}
		s.spare = append(s.spare, uint32(c))
		return
	}
	s.empty++
}

// grow adds a chunk of free records and returns its number. It reuses the numbers of freed chunks first.
func (s *slab) grow() int32 {
	p := slabPart{records: new([slabChunk]record), free: none}
	s.memory.Add(recordBytes)
	var c int32
	if n := len(s.spare); n > 0 {
		c = int32(s.spare[n-1])
		s.spare = s.spare[:n-1]
		s.chunks[c] = p
	} else {
		c = int32(len(s.chunks))
		s.chunks = append(s.chunks, p)
	}
	s.open.push(s, c)
	s.empty++
	return c
}

func (s *slab) linkOf(c int32) *link { return &s.chunks[c].link }

// chain is a doubly linked list of chunk numbers. The links stand in the chunks.
type chain struct{ first int32 }

type link struct{ prev, next int32 }

const noLink = int32(-1)

// linked has the chunks of a chain.
type linked interface{ linkOf(c int32) *link }

func (l *chain) push(of linked, c int32) {
	*of.linkOf(c) = link{prev: noLink, next: l.first}
	if l.first != noLink {
		of.linkOf(l.first).prev = c
	}
	l.first = c
}

func (l *chain) remove(of linked, c int32) {
	k := *of.linkOf(c)
	if k.prev != noLink {
		of.linkOf(k.prev).next = k.next
	} else {
		l.first = k.next
	}
	if k.next != noLink {
		of.linkOf(k.next).prev = k.prev
	}
}

func newSlab() slab { return slab{open: chain{noLink}, memory: new(atomic.Int64)} }
