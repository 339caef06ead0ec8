package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// logPart is a record, complete or not, or a gap: bytes that belong to no record.
type logPart struct {
	offset, end int64
	data        []byte // nil: a gap. It is valid until the callback returns
	whole       bool   // the record has all its chunks
}

// framing describes how a kind of file divides records into chunks. A chunk never crosses the end
// of a block.
type framing struct {
	start int64 // offset of the first chunk
	head  int   // size of a chunk's head
	// read decodes the chunk at b[at:]. b is a block, or a prefix of the last block, at offset base
	// of the file. ok is false for a bad chunk; end is then where the next chunk may begin, or 0 if
	// unknown.
	read func(b []byte, at int, base int64) (kind byte, payload []byte, end int, ok bool)
	// used reports whether anything was written to b, the place of a chunk's head or a prefix of
	// it.
	used func(b []byte) bool
	// keyed reports whether chunks have tags under a secret key, so a good chunk is genuine at any
	// offset.
	keyed bool
}

// scanner scans one file.
type scanner struct {
	*framing
	each   func(logPart) error
	block  []byte
	base   int64 // offset of block in the file
	part   logPart
	open   bool   // part is an incomplete record, or a gap that may continue
	used   int64  // end of the last written bytes in the gap
	buffer []byte // backs part.data, reused; not nil even when empty
}

// scan divides a file of that size into records and gaps, in order. Behind a bad chunk it continues
// where the chunk's length says the next one begins, if that one is good. In a keyed file it
// otherwise searches the rest of the block for a good chunk. Else it continues with the next block.
// closed reports whether the end mark of a full log was found; bytes behind the mark are ignored.
// Bytes at the end of the file that were never written are no gap.
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

// walk divides a block from offset at on.
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
		case !s.open || s.part.data == nil: // the record's first chunk is lost
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

// next returns where to continue behind a bad chunk at b[at:] that may end at end.
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
		if !bytes.Equal(b[at+tagSize:at+sealedAt], b[at+sealedAt:at+sealedAt+2]) { // the two lengths
			continue
		}
		if _, _, _, ok := s.read(b, at, s.base); ok {
			return at
		}
	}
	return len(b)
}

// gap extends or begins a gap.
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

// finish passes on the open part. more reports whether something follows it; otherwise a gap ends with
// its last written bytes.
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

// framing returns the framing of a log under the key.
func (k *logKey) framing() *framing {
	return &framing{start: logStart, head: chunkHead, read: k.read, used: notZero, keyed: true}
}

// read reads the chunk at b[at:], and returns its kind, its payload and where the next one begins. base is the offset
// of b in the file. ok is false if no chunk begins there.
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

// manifestHead is the size of a chunk's head in the store's manifest: a CRC in four bytes, the
// length in two, the kind in one.
const manifestHead = 7

// manifests is the framing of the store's manifests. Their kinds of chunks are those of logs up to
// lastChunk.
var manifests = framing{head: manifestHead, used: notZero, read: func(b []byte, at int, _ int64) (byte, []byte, int, bool) {
	kind, payload, end, ok := summedChunk(b, at, manifestHead)
	return kind, payload, end, ok && kind <= lastChunk
}}
