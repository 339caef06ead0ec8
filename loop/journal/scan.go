package journal

import (
	"bytes"
	"encoding/binary"
)

// logPart is a record, whole or not, or a gap: bytes that are no record.
type logPart struct {
	offset, end int64
	data        []byte // nil: a gap
	whole       bool   // the record has all its chunks
}

// chunkReader reads the chunk at b[at:]. Its bytes end with the block or with b. ok is false
// when there is no good chunk; end is then where the next one may begin, 0 where nothing can
// be told.
type chunkReader func(b []byte, at int) (kind byte, payload []byte, end int, ok bool)

// scanChunks cuts b, from an offset on, into records and gaps. A chunk that is not good ends what
// can be read of its block, unless a good one stands where its length says that it ends: the
// scan goes on with the next block, which begins with a chunk. It never looks for a chunk
// where none was put. closed says that the end of a full log was found; what is behind it is neither record
// nor gap. head is the size of a chunk's head.
//
// Bytes at b's end that were never written, because the places of chunks' heads are zeros,
// are no gap either.
func scanChunks(b []byte, at, head int, read chunkReader) (parts []logPart, closed bool) {
	var record *logPart // the one that lacks chunks
	written := at       // all behind it is zeros, as far as chunks may begin there
	gap := func(from, to int) {
		record = nil
		if n := len(parts); n > 0 && parts[n-1].data == nil && parts[n-1].end == int64(from) {
			parts[n-1].end = int64(to)
		} else {
			parts = append(parts, logPart{offset: int64(from), end: int64(to)})
		}
		if len(bytes.Trim(b[from:min(from+head, to)], "\x00")) > 0 {
			written = to
		}
	}
	for at < len(b) {
		block := min(at-at%logBlock+logBlock, len(b))
		if block-at < head {
			if block%logBlock != 0 { // the file ends within a head
				gap(at, block)
			}
			at = block
			continue
		}
		kind, payload, end, ok := read(b, at)
		switch {
		case !ok:
			next := block
			if end > 0 && block-end >= head {
				if _, _, _, good := read(b, end); good {
					next = end
				}
			}
			gap(at, next)
			at = next
			continue
		case kind == logEnd:
			return parts, true
		case kind == fullChunk || kind == firstChunk:
			parts = append(parts, logPart{offset: int64(at), data: payload[:len(payload):len(payload)], whole: kind == fullChunk})
			record = &parts[len(parts)-1]
		case record == nil || record.whole: // of a record whose first chunk is lost
			gap(at, end)
			written = end
		default:
			record.data, record.whole = append(record.data, payload...), kind == lastChunk
		}
		at, written = end, end
		if record != nil {
			record.end = int64(end)
		}
	}
	if n := len(parts); n > 0 && parts[n-1].data == nil {
		if parts[n-1].end = int64(written); parts[n-1].end <= parts[n-1].offset {
			parts = parts[:n-1]
		}
	}
	return parts, false
}

// scanLog reads a log of the present form, or says why it has no head.
func scanLog(b []byte, number uint64) (parts []logPart, closed bool, err error) {
	key, err := parseHead(b, number)
	if err != nil {
		return nil, false, err
	}
	parts, closed = scanChunks(b, logStart, chunkHead, key.read)
	return parts, closed, nil
}

// read is the chunkReader of a log.
func (k *logKey) read(b []byte, at int) (kind byte, payload []byte, end int, ok bool) {
	h := b[at:min(at-at%logBlock+logBlock, len(b))]
	n := chunkHead + int(binary.LittleEndian.Uint16(h[sealedAt:]))
	kind = h[chunkHead-1]
	if kind >= fullChunk && kind <= logEnd && n <= len(h) && bytes.Equal(h[:tagSize], k.tag(int64(at), h[sealedAt:n])) {
		return kind, h[chunkHead:n], at + n, true
	}
	if n = chunkHead + int(binary.LittleEndian.Uint16(h[tagSize:])); n > len(h) {
		return 0, nil, 0, false
	}
	return 0, nil, at + n, false
}

// wasUsed reports whether anything was ever written behind the head of a log: its first
// chunk's place is not zeros.
func wasUsed(b []byte) bool {
	return len(b) > logStart && len(bytes.Trim(b[logStart:min(logStart+chunkHead, len(b))], "\x00")) > 0
}

// manifestHead is the size of a chunk's head in the store's manifest: a sum in four bytes,
// the length in two, the kind.
const manifestHead = 7

// scanManifest cuts a manifest of the store into records and gaps. Its kinds are those of
// logs up to lastChunk.
func scanManifest(b []byte) []logPart {
	parts, _ := scanChunks(b, 0, manifestHead, func(b []byte, at int) (kind byte, payload []byte, end int, ok bool) {
		kind, payload, end, ok = summedChunk(b, at, manifestHead)
		return kind, payload, end, ok && kind <= lastChunk
	})
	return parts
}
