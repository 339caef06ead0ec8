package journal

import (
	"encoding/binary"
	"hash/crc32"
)

// Logs of format 2, as they were written until the logs had keys: no head, chunks from the
// first byte on, and in a chunk's head a sum without a key in four bytes, the length in two,
// a kind of 5 to 8 and the low half of the log's number in four. What stands behind the last
// chunk may be left from another log, and what clients sent can look like a chunk there. So a
// log ends with the first group that does not follow the one before, and what is behind a
// gap is no more than a sign of damage.
const (
	format2Head  = 11
	format2Kinds = 4 // less than the kind that stands for fullChunk
)

// format2Framing is that of a log.
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

// followsInFormat2 reports whether a part of a group may stand behind another in a log.
func followsInFormat2(before, m *meta) bool {
	switch {
	case before.group == 0: // the log's first
		return true
	case m.epoch != before.epoch:
		return false
	case m.part > 0:
		return m.group == before.group && m.part == before.part+1
	}
	return m.previous == before.group && m.group > before.group
}

// summedChunk reads a chunk with a sum over what follows its length.
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
