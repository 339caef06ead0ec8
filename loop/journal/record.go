package journal

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// recordVersion is the first byte of a stored record. A change of the form takes
// the next number, and ParseRecord goes on reading the old ones.
const recordVersion = 1

// Record is one job, or another durable thing of a protocol.
type Record struct {
	// Seq is the identity: unique for ever, above zero, and ascending in order of
	// creation, across restarts too (see Journal.LastSeq).
	Seq uint64
	// Space says whose rules it follows: 1 is Periodic.
	Space    uint8
	Queue    []byte
	Name     []byte
	Workload []byte
	SchedAt  int64 // as submitted, in the protocol's unit; 0: at once
	Due      int64 // milliseconds since the Unix epoch; 0: its time had come
	Priority int64
	Count    int32
	Timeout  int32 // in the protocol's unit
	// Holder is who has it, for protocols whose jobs stay assigned over a restart.
	Holder   []byte
	Revision int64
	// Extra is the protocol's own: dependencies and the like.
	Extra []byte
}

// AppendRecord appends r's stored form to dst: a version byte, then varints and
// length-prefixed bytes.
func AppendRecord(dst []byte, r *Record) []byte {
	dst = append(dst, recordVersion, r.Space)
	dst = binary.AppendUvarint(dst, r.Seq)
	dst = binary.AppendVarint(dst, r.SchedAt)
	dst = binary.AppendVarint(dst, r.Due)
	dst = binary.AppendVarint(dst, r.Priority)
	dst = binary.AppendVarint(dst, int64(r.Count))
	dst = binary.AppendVarint(dst, int64(r.Timeout))
	dst = binary.AppendVarint(dst, r.Revision)
	dst = appendBytes(dst, r.Queue)
	dst = appendBytes(dst, r.Name)
	dst = appendBytes(dst, r.Holder)
	dst = appendBytes(dst, r.Extra)
	return appendBytes(dst, r.Workload)
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// recordSize is how much AppendRecord appends.
func recordSize(r *Record) int {
	n := 2 + uvarintSize(r.Seq) + varintSize(r.SchedAt) + varintSize(r.Due) + varintSize(r.Priority) +
		varintSize(int64(r.Count)) + varintSize(int64(r.Timeout)) + varintSize(r.Revision)
	for _, l := range [...]int{len(r.Queue), len(r.Name), len(r.Holder), len(r.Extra), len(r.Workload)} {
		n += uvarintSize(uint64(l)) + l
	}
	return n
}

func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

func varintSize(v int64) int { return uvarintSize(uint64(v)<<1 ^ uint64(v>>63)) }

// ParseRecord reads one stored record, the whole of b, into r. The bytes of r are
// views of b. It never panics, whatever b holds; an unknown version is an error
// that names it.
func ParseRecord(b []byte, r *Record) error {
	if len(b) < 2 {
		return fmt.Errorf("a record of %d bytes is too short", len(b))
	}
	if b[0] != recordVersion {
		return fmt.Errorf("a record of version %d; this program knows version %d", b[0], recordVersion)
	}
	p := parser{rest: b[2:]}
	*r = Record{Space: b[1], Seq: p.uvarint()}
	r.SchedAt, r.Due, r.Priority = p.varint(), p.varint(), p.varint()
	r.Count, r.Timeout = p.varint32(), p.varint32()
	r.Revision = p.varint()
	r.Queue, r.Name, r.Holder, r.Extra, r.Workload = p.bytes(), p.bytes(), p.bytes(), p.bytes(), p.bytes()
	switch {
	case p.bad:
		return fmt.Errorf("a record of %d bytes is cut short or garbled", len(b))
	case len(p.rest) > 0:
		return fmt.Errorf("a record of %d bytes has %d too many", len(b), len(p.rest))
	}
	return nil
}

// parser reads fields from rest until one is bad; after that it reads zeros.
type parser struct {
	rest []byte
	bad  bool
}

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.rest)
	if n <= 0 {
		p.rest, p.bad = nil, true
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

func (p *parser) varint() int64 {
	v := p.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (p *parser) varint32() int32 {
	v := p.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		p.bad = true
	}
	return int32(v)
}

func (p *parser) bytes() []byte {
	n := p.uvarint()
	if n > uint64(len(p.rest)) {
		p.rest, p.bad = nil, true
		return nil
	}
	b := p.rest[:n:n]
	p.rest = p.rest[n:]
	return b
}
