package journal

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// recordVersion2 is the first byte of a record without attempts, end or lease. recordVersion3 to recordVersion5 add
// these (attempts.go, finished.go, lease.go). A changed form takes the next number, and parseRecord continues to read
// the older ones.
const recordVersion2 = 2

// Kind is the kind of a record or a document. The numbers are on disk.
type Kind uint8

// The kinds of records, then those of documents.
const (
	KindJob     Kind = iota // a job, or a task of a graph
	KindQueue               // a queue exists, with or without jobs
	KindDropped             // the queue's jobs with a lower Seq were dropped
	KindEdge                // the task Task also waits for After
	KindExit                // the queue's tasks held by the worker Name are being released

	KindProject    // a kts46 project
	KindNumbers    // the scheduling numbers of a job's definition
	KindDefinition // a job's definition, in a project
	KindProgress   // a job's progress

	KindCron // a record: the cron entry Name of the queue has the state Workload

	kinds
)

var kindNames = [kinds]string{"job", "queue", "dropped", "edge", "exit", "project", "numbers", "definition", "progress", "cron"}

// String returns the kind's name in an export.
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Record is a job or another numbered fact of the scheduler.
type Record struct {
	Kind Kind // none of a document
	// Seq identifies the record: unique forever, above zero, and ascending in the order of
	// creation, also across restarts (see Journal.LastSeq).
	Seq uint64
	// Space identifies the protocol whose rules the job follows: 1 is Periodic.
	Space    uint8
	Queue    []byte
	Name     []byte
	Workload []byte
	SchedAt  int64 // due time as submitted, in the protocol's unit; 0: at once
	Due      int64 // milliseconds since the Unix epoch; 0: already due
	Priority int64
	Count    int32
	Timeout  int32 // time-out in the protocol's unit

	Attempts // attempts of a job that has failed, or is kept
	Finished // end of a job that is done or has expired, and is kept
	Lease    // lease of a reserved job, when it survives a restart
	Counts   // counts of a job that is known by its number

	// The remaining fields belong to graph tasks and edges.

	Holder   []byte   // the worker that holds the task, also across a restart
	Revision int64    // revision of the task's last lease
	Log      []Event  // the task's history
	After    []uint64 // the Seqs of the task's predecessors
	Task     uint64   // the Seq of an edge's waiting task
}

// Event is an entry of a task's log.
type Event struct {
	Stage  uint8 // 1 ready, 2 reserved, 3 done; the protocol defines others
	Micros int64 // microseconds since the Unix epoch
}

// graphPart is the flag, in the stored kind, of a record with fields of graph tasks or edges.
const graphPart = 0x80

func (r *Record) hasGraphPart() bool {
	return len(r.Holder) > 0 || r.Revision != 0 || len(r.Log) > 0 || len(r.After) > 0 || r.Task != 0
}

// appendRecord appends r's stored form to dst: a version byte, the kind, the space, then varints
// and length-prefixed bytes.
func appendRecord(dst []byte, r *Record) []byte {
	version, kind := byte(recordVersion2), byte(r.Kind)
	switch {
	case r.DoneAt != 0:
		version = recordVersion4
	case r.hasLease():
		version = recordVersion5
	case r.hasAttempts():
		version = recordVersion3
	}
	if r.hasGraphPart() {
		kind |= graphPart
	}
	if r.hasCounts() {
		kind |= countsPart
	}
	dst = append(dst, version, kind, r.Space)
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
	if r.hasCounts() {
		dst = r.appendCounts(dst)
	}
	if version >= recordVersion3 {
		dst = r.appendAttempts(dst)
	}
	switch version {
	case recordVersion4:
		dst = r.appendFinished(dst)
	case recordVersion5:
		dst = r.appendLease(dst)
	}
	return appendBytes(dst, r.Workload)
}

// appendGraphPart appends the fields that tasks alone have: holder, revision, log, predecessors and task number.
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

// recordSize returns how many bytes appendRecord appends.
func recordSize(r *Record) int {
	n := 3 + uvarintSize(r.Seq) + varintSize(r.SchedAt) + varintSize(r.Due) + varintSize(r.Priority) +
		varintSize(int64(r.Count)) + varintSize(int64(r.Timeout))
	for _, l := range [...]int{len(r.Queue), len(r.Name), len(r.Workload)} {
		n += uvarintSize(uint64(l)) + l
	}
	if r.hasGraphPart() {
		n += graphPartSize(r)
	}
	if r.hasCounts() {
		n += r.countsSize()
	}
	if r.DoneAt != 0 || r.hasAttempts() || r.hasLease() {
		n += r.attemptsSize()
	}
	switch {
	case r.DoneAt != 0:
		n += r.finishedSize()
	case r.hasLease():
		n += r.leaseSize()
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

// parseRecord decodes the stored record b into r. The byte slices of r are views of b; Log and
// After reuse their arrays. parseRecord never panics. An unknown version is an error that names it;
// a record of an older version is converted.
func parseRecord(b []byte, r *Record) error {
	if len(b) < 3 {
		return fmt.Errorf("a record of %d bytes is too short", len(b))
	}
	switch b[0] {
	case recordVersion2, recordVersion3, recordVersion4, recordVersion5:
	case recordVersion1:
		return parseRecordV1(b, r)
	default:
		return fmt.Errorf("a record of version %d; this program knows version %d", b[0], recordVersion5)
	}
	p := parser{rest: b[3:]}
	*r = Record{Kind: Kind(b[1] &^ (graphPart | countsPart)), Space: b[2], Seq: p.uvarint(), Log: r.Log[:0], After: r.After[:0]}
	if r.Kind > KindExit && r.Kind != KindCron {
		return fmt.Errorf("a record of an unknown kind, %d", r.Kind)
	}
	r.SchedAt, r.Due, r.Priority = p.varint(), p.varint(), p.varint()
	r.Count, r.Timeout = p.varint32(), p.varint32()
	r.Queue, r.Name = p.bytes(), p.bytes()
	if b[1]&graphPart != 0 {
		p.graphPart(r)
	}
	if b[1]&countsPart != 0 {
		p.counts(&r.Counts)
	}
	if b[0] >= recordVersion3 {
		p.attempts(&r.Attempts)
	}
	switch {
	case b[0] == recordVersion4:
		p.finished(&r.Finished)
	case b[0] == recordVersion5:
		p.lease(&r.Lease)
	case b[0] == recordVersion3 && !p.bad && !r.hasAttempts(): // a record without attempts is of version 2
		p.bad = true
	}
	r.Workload = p.bytes()
	return p.end(b)
}

// graphPart decodes the bytes of appendGraphPart.
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

// parser decodes fields from rest. After the first bad field it returns zeros.
type parser struct {
	rest []byte
	bad  bool
}

// end returns an error unless all of b was decoded.
func (p *parser) end(b []byte) error {
	switch {
	case p.bad:
		return fmt.Errorf("a record of %d bytes is truncated or malformed", len(b))
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
