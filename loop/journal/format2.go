package journal

import (
	"encoding/binary"
	"hash/crc32"
)

// Format 2 logs had no key. A log had no head: its chunks began at the first byte. A chunk's head
// held a CRC in four bytes, the length in two, a kind from 5 to 8 in one, and the low half of the
// log's number in four. Without a key, chunks behind the last one may be left from an earlier log
// or forged by a client. So a format 2 log ends before the first group that does not follow its
// predecessor, and chunks behind a gap are evidence of damage only.
const (
	format2Head  = 11
	format2Kinds = 4 // a stored kind less format2Kinds is one of the kinds of chunks
)

// format2Framing returns the framing of a format 2 log.
func format2Framing(number uint64) *framing {
	numbered := func(h []byte) bool {
		return len(h) >= format2Head && binary.LittleEndian.Uint32(h[7:]) == uint32(number)
	}
	read := func(b []byte, at int, _ int64) (kind byte, payload []byte, end int, ok bool) {
		h := b[at:]
		if binary.LittleEndian.Uint32(h) == 0 && binary.LittleEndian.Uint16(h[4:]) == 0 && h[6] == format2Kinds+1 &&
			binary.LittleEndian.Uint32(h[7:]) == uint32(number)+1 {
			return logEnd, nil, at + format2Head, true
		}
		if !numbered(h) {
			return 0, nil, 0, false
		}
		kind, payload, end, ok = summedChunk(b, at, format2Head)
		return kind - format2Kinds, payload, end, ok && kind > format2Kinds
	}
	return &framing{head: format2Head, read: read, used: numbered}
}

// followsInFormat2 reports whether the part m of a group may follow the part before in one log.
func followsInFormat2(before, m *meta) bool {
	switch {
	case before.group == 0: // m is the first in the log
		return true
	case m.epoch != before.epoch:
		return false
	case m.part > 0:
		return m.group == before.group && m.part == before.part+1
	}
	return m.previous == before.group && m.group > before.group
}

// summedChunk reads a chunk with a masked CRC over everything behind its length.
func summedChunk(b []byte, at, head int) (kind byte, payload []byte, end int, ok bool) {
	h := b[at:]
	n := head + int(binary.LittleEndian.Uint16(h[4:]))
	if kind = h[6]; kind < fullChunk || kind > format2Kinds+lastChunk || n > len(h) {
		return 0, nil, 0, false
	}
	sum := crc32.Checksum(h[6:n], castagnoli)
	if sum = (sum>>15 | sum<<17) + 0xa282ead8; sum != binary.LittleEndian.Uint32(h) {
		return 0, nil, at + n, false
	}
	return kind, h[head:n], at + n, true
}
