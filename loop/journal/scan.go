package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// logPart is a record, whole or not, or a gap: bytes that are no record.
type logPart struct {
	offset, end int64
	data        []byte // nil: a gap. It is valid until the function that is given it returns
	whole       bool   // the record has all its chunks
}

// framing says how records stand in a kind of file: in chunks, which never reach over the end
// of a block.
type framing struct {
	start int64 // the first chunk's offset
	head  int   // the size of a chunk's head
	// read reads the chunk at b[at:], where b is a block, or the last part of one, and stands
	// at base in the file. ok is false when there is no good chunk; end is then where the next
	// one may begin, 0 where nothing can be told.
	read func(b []byte, at int, base int64) (kind byte, payload []byte, end int, ok bool)
	// used reports whether something was written where a chunk should begin: b holds its head,
	// or as much of it as there is.
	used func(b []byte) bool
	// keyed: a good chunk is one wherever it is found, for nobody else can have made it.
	keyed bool
}

// scanner is one walk over a file.
type scanner struct {
	*framing
	each   func(logPart) error
	block  []byte
	base   int64 // of block in the file
	part   logPart
	open   bool   // part is a record that lacks chunks, or a gap that may go on
	used   int64  // where in a gap the last thing ends that was written
	buffer []byte // of part.data, reused; never nil, for a first chunk may be empty
}

// scan cuts a file of that size into records and gaps, in order. A chunk that is not good
// ends what can be read of its block, unless a good one stands where its length says that it
// ends or, in a file with keys, anywhere behind it: the scan goes on there, or with the next
// block. closed says that the end of a full log was found; what is behind it is neither record
// nor gap. Nor are bytes at the file's end that were never written.
func (f *framing) scan(file io.ReaderAt, size int64, each func(logPart) error) (closed bool, err error) {
	s := scanner{framing: f, each: each, block: make([]byte, logBlock), buffer: []byte{}}
	for s.base = f.start - f.start%logBlock; s.base < size && !closed; s.base += logBlock {
		b := s.block[:min(logBlock, size-s.base)]
		if _, err := file.ReadAt(b, s.base); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if closed, err = s.walk(b, int(max(f.start-s.base, 0))); err != nil {
			return false, err
		}
	}
	return closed, s.finish(closed)
}

// walk cuts a block, from a place on.
func (s *scanner) walk(b []byte, at int) (closed bool, err error) {
	for at < len(b) {
		if len(b)-at < s.head {
			if len(b) < logBlock { // the file ends within a head
				err = s.gap(at, len(b), s.framing.used(b[at:]))
			}
			return false, err
		}
		kind, payload, end, ok := s.read(b, at, s.base)
		switch {
		case !ok:
			next := s.next(b, at, end)
			err = s.gap(at, next, next < len(b) || s.framing.used(b[at:at+s.head]))
			end = next
		case kind == logEnd:
			return true, nil
		case kind == fullChunk:
			if err = s.finish(true); err == nil {
				err = s.each(logPart{s.base + int64(at), s.base + int64(end), payload, true})
			}
		case kind == firstChunk:
			err = s.finish(true)
			s.buffer = append(s.buffer[:0], payload...)
			s.part, s.open = logPart{s.base + int64(at), s.base + int64(end), s.buffer, false}, true
		case !s.open || s.part.data == nil: // of a record whose first chunk is lost
			err = s.gap(at, end, true)
		default:
			s.buffer = append(s.buffer, payload...)
			s.part.data, s.part.end = s.buffer, s.base+int64(end)
			if s.part.whole = kind == lastChunk; s.part.whole {
				err = s.finish(true)
			}
		}
		if err != nil {
			return false, err
		}
		at = end
	}
	return false, nil
}

// next is where to go on behind a chunk at b[at:] that is not good and may end at end.
func (s *scanner) next(b []byte, at, end int) int {
	if end > 0 && end+s.head <= len(b) {
		if _, _, _, ok := s.read(b, end, s.base); ok {
			return end
		}
	}
	if !s.keyed {
		return len(b)
	}
	for at++; at+s.head <= len(b); at++ {
		if !bytes.Equal(b[at+tagSize:at+sealedAt], b[at+sealedAt:at+sealedAt+2]) { // its lengths
			continue
		}
		if _, _, _, ok := s.read(b, at, s.base); ok {
			return at
		}
	}
	return len(b)
}

// gap adds bytes of the block that are no record.
func (s *scanner) gap(from, to int, used bool) error {
	if !s.open || s.part.data != nil {
		if err := s.finish(true); err != nil {
			return err
		}
		s.part, s.open, s.used = logPart{offset: s.base + int64(from)}, true, 0
	}
	if s.part.end = s.base + int64(to); used {
		s.used = s.part.end
	}
	return nil
}

// finish hands out the part that was open; more says that something follows it. Else a gap
// ends where something was written last.
func (s *scanner) finish(more bool) error {
	if !s.open {
		return nil
	}
	s.open = false
	if s.part.data == nil && !more {
		if s.part.end = s.used; s.used == 0 {
			return nil
		}
	}
	return s.each(s.part)
}

func notZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) > 0 }

// framing is that of a log under the key.
func (k *logKey) framing() *framing {
	return &framing{start: logStart, head: chunkHead, read: k.read, used: notZero, keyed: true}
}

func (k *logKey) read(b []byte, at int, base int64) (kind byte, payload []byte, end int, ok bool) {
	h := b[at:]
	n := chunkHead + int(binary.LittleEndian.Uint16(h[sealedAt:]))
	kind = h[chunkHead-1]
	if kind >= fullChunk && kind <= logEnd && n <= len(h) && bytes.Equal(h[:tagSize], k.tag(base+int64(at), h[sealedAt:n])) {
		return kind, h[chunkHead:n], at + n, true
	}
	if n = chunkHead + int(binary.LittleEndian.Uint16(h[tagSize:])); n > len(h) {
		return 0, nil, 0, false
	}
	return 0, nil, at + n, false
}

// manifestHead is the size of a chunk's head in the store's manifest: a sum in four bytes,
// the length in two, the kind.
const manifestHead = 7

// manifests is the framing of the store's manifests, whose kinds are those of logs up to
// lastChunk.
var manifests = framing{head: manifestHead, used: notZero, read: func(b []byte, at int, _ int64) (byte, []byte, int, bool) {
	kind, payload, end, ok := summedChunk(b, at, manifestHead)
	return kind, payload, end, ok && kind <= lastChunk
}}
