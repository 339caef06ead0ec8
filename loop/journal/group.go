package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// meta is the small key that every group writes beside its operations: which group
// it is, on which one it builds and who wrote it.
type meta struct {
	group    uint64 // ascending over restarts, not dense
	previous uint64 // the group written before; the same in a group's second part
	part     uint16 // counts the batches of one group; so many hold 128 GiB
	more     bool   // another part of the group was to follow
	epoch    uint64 // counts the journal's openings: who wrote it
	maxSeq   uint64 // the highest Seq ever put
	jobs     int64  // stored after this group
	// settled: all groups before this one were synced when this one was written.
	prevSynced bool
	sum        uint32 // over the fields above and the operations
}

// The form: a version, a byte of flags, the part in two bytes, the sum, five words.
const (
	metaVersion    = 1
	metaPrevSynced = 1
	metaMore       = 2
	metaSize       = 8 + 5*8
	metaOpSize     = 1 + 2 + 1 + metaSize
	batchHeader    = 12 // a sequence number that the store fills in, a count
	metaValueAt    = batchHeader + metaOpSize - metaSize
	operationsAt   = batchHeader + metaOpSize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendMeta appends m's stored form, with the sum over it and operations.
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
	for _, v := range [...]uint64{m.group, m.previous, m.epoch, m.maxSeq, uint64(m.jobs)} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	binary.LittleEndian.PutUint32(dst[at+4:], metaSum(dst[at:], operations))
	return dst
}

// metaSum is the sum over a stored meta, its own four bytes left out, and operations.
func metaSum(b, operations []byte) uint32 {
	sum := crc32.Checksum(b[:4], castagnoli)
	sum = crc32.Update(sum, castagnoli, b[8:metaSize])
	return crc32.Update(sum, castagnoli, operations)
}

func parseMeta(b []byte) (m meta, err error) {
	if len(b) > 0 && b[0] != metaVersion {
		return m, fmt.Errorf("a group of version %d; this program knows version %d", b[0], metaVersion)
	}
	if len(b) != metaSize {
		return m, fmt.Errorf("a group's head of %d bytes instead of %d", len(b), metaSize)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	return meta{
		group: word(0), previous: word(1), epoch: word(2), maxSeq: word(3), jobs: int64(word(4)),
		part: binary.LittleEndian.Uint16(b[2:]), more: b[1]&metaMore != 0,
		prevSynced: b[1]&metaPrevSynced != 0, sum: binary.LittleEndian.Uint32(b[4:]),
	}, nil
}

// before reports whether m was written before o.
func (m *meta) before(o *meta) bool {
	return m.group < o.group || m.group == o.group && m.part < o.part
}

// lacksPart reports whether a part of last's group is missing between last and m. A group
// that an opening did not complete is never completed: it had not been acknowledged.
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

// sealBatch completes a batch of count operations with its group's meta.
func sealBatch(b []byte, m *meta, count int) {
	binary.LittleEndian.PutUint32(b[8:], uint32(count+1))
	appendMeta(b[:metaValueAt], m, b[operationsAt:])
}

// errNotGroup is a log's record that the committer did not write.
var errNotGroup = errors.New("not a group of changes")

// batchMeta reads the meta of a sealed batch, of which the end may be missing.
func batchMeta(b []byte) (meta, error) {
	if len(b) < operationsAt || b[batchHeader] != opSet || b[batchHeader+1] != 1 || b[batchHeader+2] != keyMeta {
		return meta{}, errNotGroup
	}
	return parseMeta(b[metaValueAt:operationsAt])
}

// intact reports whether a sealed batch's sum is right.
func intact(b []byte, m *meta) bool {
	return m.sum == metaSum(b[metaValueAt:], b[operationsAt:])
}

// appendLive appends to dst the operations of from that are not dead, until dst is
// longer than limit. It returns how many they were and what is left of from.
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
