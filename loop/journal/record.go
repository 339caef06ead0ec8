package journal

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// recordVersion is the first byte of a stored record. A change of the form takes
// the next number, and ParseRecord goes on reading the old ones.
const recordVersion = 2

// Kind says what a record or a document is. The numbers are on disk.
type Kind uint8

// The kinds of records, then those of documents.
const (
	KindJob     Kind = iota // a job, which may be a task of a graph
	KindQueue               // a queue exists, with or without jobs
	KindDropped             // the jobs of a queue with a lower Seq were dropped with it
	KindEdge                // the task Task waits for After as well
	KindExit                // the tasks of a queue that a holder, Name, has are being given back

	KindProject    // of kts46
	KindNumbers    // what the scheduler needs of a job's definition
	KindDefinition // of a job in a project
	KindProgress   // how far the job is

	kinds
)

var kindNames = [kinds]string{"job", "queue", "dropped", "edge", "exit", "project", "numbers", "definition", "progress"}

// String is the kind's name in an export.
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Record is a job, or a note of the scheduler, known by a number.
type Record struct {
	Kind Kind // up to KindExit
	// Seq is the identity: unique for ever, above zero, and ascending in order of
	// creation, across restarts too (see Journal.LastSeq).
	Seq uint64
	// Space says whose rules a job follows: 1 is Periodic.
	Space    uint8
	Queue    []byte
	Name     []byte
	Workload []byte
	SchedAt  int64 // as submitted, in the protocol's unit; 0: at once
	Due      int64 // milliseconds since the Unix epoch; 0: its time had come
	Priority int64
	Count    int32
	Timeout  int32 // in the protocol's unit

	// The others are for tasks of a graph and for edges.

	Holder   []byte   // the worker that has the task, over a restart too
	Revision int64    // of the task's last lease
	Log      []Event  // what has happened to the task
	After    []uint64 // the Seqs of the tasks that it waits for
	Task     uint64   // of an edge: the Seq of the task that waits
}

// Event is an entry of a task's log.
type Event struct {
	Stage  uint8 // 1 ready, 2 reserved, 3 done; others are the protocol's
	Micros int64 // since the Unix epoch
}

// graphPart is added to the stored kind of a record with any of the fields of tasks and edges.
const graphPart = 0x80

func (r *Record) hasGraphPart() bool {
	return len(r.Holder) > 0 || r.Revision != 0 || len(r.Log) > 0 || len(r.After) > 0 || r.Task != 0
}

// AppendRecord appends r's stored form to dst: a version byte, the kind, the space,
// then varints and length-prefixed bytes.
func AppendRecord(dst []byte, r *Record) []byte {
	if r.hasGraphPart() {
		dst = append(dst, recordVersion, byte(r.Kind)|graphPart, r.Space)
	} else {
		dst = append(dst, recordVersion, byte(r.Kind), r.Space)
	}
	dst = binary.AppendUvarint(dst, r.Seq)
	dst = binary.AppendVarint(dst, r.SchedAt)
	dst = binary.AppendVarint(dst, r.Due)
	dst = binary.AppendVarint(dst, r.Priority)
	dst = binary.AppendVarint(dst, int64(r.Count))
	dst = binary.AppendVarint(dst, int64(r.Timeout))
	dst = appendBytes(dst, r.Queue)
	dst = appendBytes(dst, r.Name)
	if r.hasGraphPart() {
		dst = appendGraphPart(dst, r)
	}
	return appendBytes(dst, r.Workload)
}

func appendGraphPart(dst []byte, r *Record) []byte {
	dst = appendBytes(dst, r.Holder)
	dst = binary.AppendVarint(dst, r.Revision)
	dst = binary.AppendUvarint(dst, uint64(len(r.Log)))
	for _, e := range r.Log {
		dst = binary.AppendVarint(append(dst, e.Stage), e.Micros)
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.After)))
	for _, seq := range r.After {
		dst = binary.AppendUvarint(dst, seq)
	}
	return binary.AppendUvarint(dst, r.Task)
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// recordSize is how much AppendRecord appends.
func recordSize(r *Record) int {
	n := 3 + uvarintSize(r.Seq) + varintSize(r.SchedAt) + varintSize(r.Due) + varintSize(r.Priority) +
		varintSize(int64(r.Count)) + varintSize(int64(r.Timeout))
	for _, l := range [...]int{len(r.Queue), len(r.Name), len(r.Workload)} {
		n += uvarintSize(uint64(l)) + l
	}
	if r.hasGraphPart() {
		n += graphPartSize(r)
	}
	return n
}

func graphPartSize(r *Record) int {
	n := uvarintSize(uint64(len(r.Holder))) + len(r.Holder) + varintSize(r.Revision) +
		uvarintSize(uint64(len(r.Log))) + uvarintSize(uint64(len(r.After))) + uvarintSize(r.Task)
	for _, e := range r.Log {
		n += 1 + varintSize(e.Micros)
	}
	for _, seq := range r.After {
		n += uvarintSize(seq)
	}
	return n
}

func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

func varintSize(v int64) int { return uvarintSize(uint64(v)<<1 ^ uint64(v>>63)) }

// ParseRecord reads one stored record, the whole of b, into r. The bytes of r are
// views of b; Log and After keep their arrays. It never panics, whatever b holds; an
// unknown version is an error that names it. A record of an older version is read as
// the present one has it.
func ParseRecord(b []byte, r *Record) error {
	if len(b) < 3 {
		return fmt.Errorf("a record of %d bytes is too short", len(b))
	}
	switch b[0] {
	case recordVersion:
	case recordVersion1:
		return parseV1(b, r)
	default:
		return fmt.Errorf("a record of version %d; this program knows version %d", b[0], recordVersion)
	}
	p := parser{rest: b[3:]}
	*r = Record{Kind: Kind(b[1] &^ graphPart), Space: b[2], Seq: p.uvarint(), Log: r.Log[:0], After: r.After[:0]}
	if r.Kind > KindExit {
		return fmt.Errorf("a record of an unknown kind, %d", r.Kind)
	}
	r.SchedAt, r.Due, r.Priority = p.varint(), p.varint(), p.varint()
	r.Count, r.Timeout = p.varint32(), p.varint32()
	r.Queue, r.Name = p.bytes(), p.bytes()
	if b[1]&graphPart != 0 {
		p.graphPart(r)
	}
	r.Workload = p.bytes()
	return p.end(b)
}

// graphPart reads what appendGraphPart has appended.
func (p *parser) graphPart(r *Record) {
	if holder := p.bytes(); len(holder) > 0 {
		r.Holder = holder
	}
	r.Revision = p.varint()
	for n := p.uvarint(); n > 0 && !p.bad; n-- {
		r.Log = append(r.Log, Event{p.byte(), p.varint()})
	}
	for n := p.uvarint(); n > 0 && !p.bad; n-- {
		r.After = append(r.After, p.uvarint())
	}
	r.Task = p.uvarint()
}

// parser reads fields from rest until one is bad; after that it reads zeros.
type parser struct {
	rest []byte
	bad  bool
}

// end says whether all of b was read and nothing was bad.
func (p *parser) end(b []byte) error {
	switch {
	case p.bad:
		return fmt.Errorf("a record of %d bytes is cut short or garbled", len(b))
	case len(p.rest) > 0:
		return fmt.Errorf("a record of %d bytes has %d too many", len(b), len(p.rest))
	}
	return nil
}

func (p *parser) byte() byte {
	if len(p.rest) == 0 {
		p.bad = true
		return 0
	}
	b := p.rest[0]
	p.rest = p.rest[1:]
	return b
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
