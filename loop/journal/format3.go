package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// recordVersion1 is the first byte of a record in a store of format 3 or older. Those stores kept
// queues, edges and the like as jobs of the highest spaces; a graph task's holder, log,
// predecessors and revision in front of its workload; and kts46's documents as settings.
const recordVersion1 = 1

// The spaces of version 1 records that determine the kind.
const (
	v1SpaceDwork   = 4
	v1SpaceKts46   = 5
	v1SpaceExit    = 12
	v1SpaceEdge    = 13
	v1SpaceQueue   = 14
	v1SpaceDropped = 15
)

// v1EventSize is the size of an entry of a task's log: one byte of stage, eight of time.
const v1EventSize = 9

// errV1Task reports a version 1 record whose task fields cannot be decoded.
var errV1Task = errors.New("the stored task is truncated or malformed")

// parseRecordV1 is parseRecord for version 1. It skips the extra bytes, which no version ever wrote.
func parseRecordV1(b []byte, r *Record) error {
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

// upgradeV1 converts the fields of a version 1 record to those of the present version.
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

// unpackV1Task decodes the task fields in front of the workload: holder and log, each with its
// length; the number of predecessors and their Seqs in eight bytes each; the revision.
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
	r.Due = max(r.Due, 0) // a task that was due had the lowest time
	return nil
}

// legacyDocumentKeys are the keys of settings that are documents now. In a job's key the project's
// name, a NUL and the job's name follow.
var legacyDocumentKeys = []struct {
	prefix string
	kind   Kind
}{
	{"kts46.project.", KindProject},
	{"kts46.counts.", KindNumbers},
	{"kts46.definition.", KindDefinition},
	{"kts46.progress.", KindProgress},
}

// legacyDocument converts a setting of format 3 to the document that replaces it. ok is false for a
// setting that is still one.
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
