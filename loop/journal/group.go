package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// meta is the head of a group, which every part of the group carries in front of its operations:
// the group's number, its predecessor and its writer.
type meta struct {
	group    uint64 // ascending across restarts, with gaps
	previous uint64 // the last written group; the same in every part
	part     uint16 // counts the batches of the group; enough for 128 GiB
	more     bool   // another part of the group follows
	epoch    uint64 // counts the openings of the journal: identifies the writer
	maxSeq   uint64 // the highest Seq ever put
	records  int64  // stored after this group
	// prevSynced reports whether all groups before this one were synced when this one was written.
	prevSynced bool
	sum        uint32 // over the fields above and the operations
}

// The stored form is a version, a byte of flags, the part in two bytes, the checksum, and five
// words.
const (
	metaVersion    = 1
	metaPrevSynced = 1
	metaMore       = 2
	metaSize       = 8 + 5*8
	metaOpSize     = 1 + 2 + 1 + metaSize
	batchHeader    = 12 // a sequence number that the store fills in, and a count
	metaValueAt    = batchHeader + metaOpSize - metaSize
	operationsAt   = batchHeader + metaOpSize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendMeta appends m's stored form, with a checksum over it and operations.
func appendMeta(dst []byte, m *meta, operations []byte) []byte {
	at := len(dst)
	dst = append(dst, metaVersion, 0, 0, 0, 0, 0, 0, 0)
	if m.prevSynced {
		dst[at+1] |= metaPrevSynced
	}
	if m.more {
		dst[at+1] |= metaMore
	}
	binary.LittleEndian.PutUint16(dst[at+2:], m.part)
	for _, v := range [...]uint64{m.group, m.previous, m.epoch, m.maxSeq, uint64(m.records)} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	binary.LittleEndian.PutUint32(dst[at+4:], metaSum(dst[at:], operations))
	return dst
}

// metaSum returns the checksum over operations and a stored meta without its own four bytes.
func metaSum(b, operations []byte) uint32 {
	sum := crc32.Checksum(b[:4], castagnoli)
	sum = crc32.Update(sum, castagnoli, b[8:metaSize])
	return crc32.Update(sum, castagnoli, operations)
}

// parseMeta parses the stored form of a group's head.
func parseMeta(b []byte) (m meta, err error) {
	if len(b) > 0 && b[0] != metaVersion {
		return m, fmt.Errorf("a group of version %d; this program knows version %d", b[0], metaVersion)
	}
	if len(b) != metaSize {
		return m, fmt.Errorf("a group's head of %d bytes instead of %d", len(b), metaSize)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	return meta{
		group: word(0), previous: word(1), epoch: word(2), maxSeq: word(3), records: int64(word(4)),
		part: binary.LittleEndian.Uint16(b[2:]), more: b[1]&metaMore != 0,
		prevSynced: b[1]&metaPrevSynced != 0, sum: binary.LittleEndian.Uint32(b[4:]),
	}, nil
}

// precedes reports whether m was written before o.
func (m *meta) precedes(o *meta) bool {
	return m.group < o.group || m.group == o.group && m.part < o.part
}

// lacksPart reports whether a part of last's group is missing between last and m. A group that its
// opening left incomplete is never continued: it was not acknowledged.
func (m *meta) lacksPart(last *meta) bool {
	if m.group == last.group {
		return m.part > last.part+1
	}
	return last.more && m.epoch == last.epoch && m.group > last.group
}

// startBatch begins a batch with room for the group's meta.
func startBatch(dst []byte) []byte {
	dst = append(dst[:0], make([]byte, batchHeader)...)
	dst = append(dst, opSet, 1, keyMeta, metaSize)
	return append(dst, make([]byte, metaSize)...)
}

// sealBatch writes the meta and the number of operations into a batch.
func sealBatch(b []byte, m *meta, count int) {
	binary.LittleEndian.PutUint32(b[8:], uint32(count+1))
	appendMeta(b[:metaValueAt], m, b[operationsAt:])
}

// errNotGroup reports a log record that the committer did not write.
var errNotGroup = errors.New("not a group of changes")

// batchMeta reads the meta of a sealed batch, whose end may be missing.
func batchMeta(b []byte) (meta, error) {
	if len(b) < operationsAt || b[batchHeader] != opSet || b[batchHeader+1] != 1 || b[batchHeader+2] != keyMeta {
		return meta{}, errNotGroup
	}
	return parseMeta(b[metaValueAt:operationsAt])
}

// intact reports whether a sealed batch matches its checksum.
func intact(b []byte, m *meta) bool {
	return m.sum == metaSum(b[metaValueAt:], b[operationsAt:])
}

// appendLive appends the live operations of from to dst until dst is longer than limit. It returns
// the number of operations appended and the rest of from.
func appendLive(dst, from []byte, limit int) (out []byte, count int, rest []byte) {
	start, at := 0, 0
	for at < len(from) && len(dst)+at-start < limit {
		n := opSize(from[at:])
		if from[at]&opDead != 0 {
			dst = append(dst, from[start:at]...)
			start = at + n
		} else {
			count++
		}
		at += n
	}
	return append(dst, from[start:at]...), count, from[at:]
}
