package journal

import (
	"bytes"
	"encoding/binary"
)

// Logs, and the store's manifests, are blocks of 32 KiB with chunks in them. A chunk
// has a sum (4 bytes), a length (2) and a kind (1), and in a log also the low half of
// the log's number (4). A record is a full chunk or a first one, any number of middle
// ones and a last one. Where a block has no room for another head it ends in zeros. A
// full log ends with a head of sum 0, length 0 and the next number. What follows may be
// left from the log that the file was before.
//
// A reader that took the first chunk that is wrong for the end would silently lose all
// that is behind damage in the middle of a log; this one goes on to the next that is good.
const (
	logBlock  = 32 << 10
	plainHead = 7  // of the kinds 1 to 4, in a manifest
	logHead   = 11 // of those from logKinds to 8, in a log
	logKinds  = 5
)

// The parts that a record may be of, in the order of the kinds.
const (
	fullChunk = iota
	firstChunk
	middleChunk
	lastChunk
)

// logPart is a record, whole or not, or a gap: bytes that are no record.
type logPart struct {
	offset, end int64
	data        []byte // nil: a gap
	whole       bool   // the record has all its chunks
}

// logScanner walks a log or a manifest.
type logScanner struct {
	b        []byte
	manifest bool
	number   uint32 // of the log
	parts    []logPart
	at       int
	closed   bool // the log's end was found
}

// scanLog cuts a log's bytes into records and gaps. What a log that was properly
// closed has behind its end is neither, and closed is set.
func scanLog(b []byte, number uint64) (parts []logPart, closed bool) {
	s := logScanner{b: b, number: uint32(number)}
	s.run()
	return s.parts, s.closed
}

// scanManifest does the same for a manifest, which is never closed.
func scanManifest(b []byte) []logPart {
	s := logScanner{b: b, manifest: true}
	s.run()
	return s.parts
}

func (s *logScanner) run() {
	for s.at < len(s.b) {
		if s.atEnd() {
			s.closed = true
			return
		}
		if !s.record() {
			s.gap()
		}
	}
}

// skip steps over the zeros at the end of a block.
func (s *logScanner) skip() {
	left := min(logBlock-s.at%logBlock, len(s.b)-s.at)
	room := logHead
	if s.manifest {
		room = plainHead
	}
	if left < plainHead || left < room && len(bytes.Trim(s.b[s.at:s.at+left], "\x00")) == 0 {
		s.at += left
	}
}

func (s *logScanner) atEnd() bool {
	s.skip()
	h := s.b[s.at:]
	return !s.manifest && len(h) >= logHead && h[6] == logKinds && binary.LittleEndian.Uint32(h) == 0 &&
		binary.LittleEndian.Uint16(h[4:]) == 0 && binary.LittleEndian.Uint32(h[7:]) == s.number+1
}

// chunk reads the chunk at s.b[at:]: which part of a record, its payload, its end.
func (s *logScanner) chunk(at int) (part int, data []byte, end int, ok bool) {
	limit := min(at-at%logBlock+logBlock, len(s.b))
	if at+plainHead > limit {
		return 0, nil, 0, false
	}
	h := s.b[at:limit]
	kind := int(h[6]) - 1
	if kind < 0 || kind > 7 || s.manifest != (kind < 4) {
		return 0, nil, 0, false
	}
	head := [...]int{plainHead, logHead}[kind/4]
	n := head + int(binary.LittleEndian.Uint16(h[4:]))
	if len(h) < n || !s.manifest && binary.LittleEndian.Uint32(h[7:]) != s.number {
		return 0, nil, 0, false
	}
	if binary.LittleEndian.Uint32(h) != chunkSum(h[6:n]) {
		return 0, nil, 0, false
	}
	return kind % 4, h[head:n], at + n, true
}

// record reads a record at s.at, or as many of its chunks as there are. Without a
// good chunk that begins one it returns false.
func (s *logScanner) record() bool {
	s.skip()
	part, data, end, ok := s.chunk(s.at)
	if !ok || part > firstChunk {
		return s.at == len(s.b)
	}
	p := logPart{offset: int64(s.at), data: data[:len(data):len(data)], whole: part == fullChunk}
	if p.data == nil {
		p.data = []byte{}
	}
	for s.at = end; !p.whole && s.at < len(s.b); s.at = end {
		s.skip()
		part, data, end, ok = s.chunk(s.at)
		if !ok || part < middleChunk {
			break
		}
		p.data, p.whole = append(p.data, data...), part == lastChunk
	}
	p.end = int64(s.at)
	s.parts = append(s.parts, p)
	return true
}

// gap steps over bytes that are no record to the next good chunk that begins one.
func (s *logScanner) gap() {
	p := logPart{offset: int64(s.at)}
	for s.at++; s.at < len(s.b); s.at++ {
		if !s.manifest {
			// Only places where the log's number stands can be a chunk's head.
			i := bytes.Index(s.b[min(s.at+7, len(s.b)):], binary.LittleEndian.AppendUint32(nil, s.number))
			if i < 0 {
				s.at = len(s.b)
				break
			}
			s.at += i
		}
		part, _, _, ok := s.chunk(s.at)
		if ok && part <= firstChunk {
			break
		}
	}
	p.end = int64(s.at)
	s.parts = append(s.parts, p)
}
