package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Stores of format 3 and older. What was no job stood under the highest spaces; a task of a
// graph had its holder, log, predecessors and revision ahead of its workload; and kts46's
// projects were settings. recordVersion1 is the first byte of their records.
const recordVersion1 = 1

// The spaces of the records of version 1 that tell their kinds.
const (
	v1SpaceDwork   = 4
	v1SpaceKts46   = 5
	v1SpaceExit    = 12
	v1SpaceEdge    = 13
	v1SpaceQueue   = 14
	v1SpaceDropped = 15
)

// eventSize1 is what an entry of a task's log took: a byte of stage, eight of time.
const v1EventSize = 9

// errTask1 says that a record of version 1 has no task where it should.
var errV1Task = errors.New("the stored form of a task is cut short or garbled")

// parseVersion1 is ParseRecord for version 1. Its extra bytes, which nobody ever wrote, are
// left out.
func parseV1(b []byte, r *Record) error {
	p := parser{rest: b[2:]}
	*r = Record{Space: b[1], Seq: p.uvarint(), Log: r.Log[:0], After: r.After[:0]}
	r.SchedAt, r.Due, r.Priority = p.varint(), p.varint(), p.varint()
	r.Count, r.Timeout = p.varint32(), p.varint32()
	r.Revision = p.varint()
	r.Queue, r.Name = p.bytes(), p.bytes()
	if holder := p.bytes(); len(holder) > 0 {
		r.Holder = holder
	}
	_ = p.bytes()
	r.Workload = p.bytes()
	if err := p.end(b); err != nil {
		return err
	}
	return r.upgradeV1()
}

// fromVersion1 turns what a record of version 1 says into what the present one does.
func (r *Record) upgradeV1() error {
	switch r.Space {
	case v1SpaceDwork, v1SpaceKts46:
		return r.unpackV1Task()
	case v1SpaceExit:
		r.Kind, r.Space = KindExit, 0
	case v1SpaceEdge:
		if len(r.Workload) != 16 {
			return errV1Task
		}
		r.Kind, r.Space = KindEdge, 0
		r.After = append(r.After, binary.LittleEndian.Uint64(r.Workload))
		r.Task, r.Workload = binary.LittleEndian.Uint64(r.Workload[8:]), r.Workload[16:]
	case v1SpaceQueue:
		r.Kind, r.Space = KindQueue, 0
	case v1SpaceDropped:
		r.Kind, r.Space = KindDropped, 0
	}
	return nil
}

// unpackTask1 takes apart what stood in the place of a task's workload: the holder's name and
// the log, each with its length ahead, the number of predecessors and their Seqs in eight bytes
// each, the revision, and the workload.
func (r *Record) unpackV1Task() error {
	p := parser{rest: r.Workload}
	if holder := p.bytes(); len(holder) > 0 {
		r.Holder = holder
	}
	log := p.bytes()
	n := p.uvarint()
	if p.bad || len(log)%v1EventSize != 0 || n > uint64(len(p.rest))/8 {
		return errV1Task
	}
	for ; len(log) > 0; log = log[v1EventSize:] {
		r.Log = append(r.Log, Event{log[0], int64(binary.LittleEndian.Uint64(log[1:]))})
	}
	for ; n > 0; n-- {
		r.After = append(r.After, binary.LittleEndian.Uint64(p.rest))
		p.rest = p.rest[8:]
	}
	r.Revision = p.varint()
	if p.bad {
		return errV1Task
	}
	r.Workload = p.rest
	r.Due = max(r.Due, 0) // of one whose time had come it was below all times
	return nil
}

// The keys of settings that are documents now. Those of jobs go on with the project's name, a NUL
// and the job's.
var legacyDocumentKeys = []struct {
	prefix string
	kind   Kind
}{
	{"kts46.project.", KindProject},
	{"kts46.counts.", KindNumbers},
	{"kts46.definition.", KindDefinition},
	{"kts46.progress.", KindProgress},
}

// documentOf1 is the document that a setting of format 3 was, ok false if it is a setting still.
func legacyDocument(key, value []byte) (d Document, ok bool) {
	for _, k := range legacyDocumentKeys {
		name, found := bytes.CutPrefix(key, []byte(k.prefix))
		if !found {
			continue
		}
		d = Document{Kind: k.kind, Project: name, Value: value}
		if k.kind == KindProject {
			d.Value = fmt.Appendf(nil, `{"last_id":%s}`, value)
			return d, true
		}
		d.Project, d.Name, found = bytes.Cut(name, []byte{0})
		return d, found
	}
	return d, false
}
