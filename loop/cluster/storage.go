package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"treadle/loop/journal"
)

// storage is Raft's log. The disk has the records of a journal.Replica. The memory has the entries that the store lacks
// and some before them.
type storage struct {
	*raft.MemoryStorage
	replica *journal.Replica
	hard    *pb.HardState // as of the last record, or newer in Commit
	written atomic.Int64  // bytes of entries since the start
}

// openStorage opens the log of a data directory. A new directory begins with the members begin. If begin is nil it
// waits for a store.
func openStorage(o journal.Options, begin *members) (s *storage, fresh bool, err error) {
	s = &storage{MemoryStorage: raft.NewMemoryStorage(), hard: &pb.HardState{}}
	var records []record
	s.replica, fresh, err = journal.OpenReplica(o, func(b []byte) error {
		r, err := parseRecord(b)
		records = append(records, r)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if fresh && begin != nil {
		records, err = nil, s.begin(begin)
	}
	var stored *members
	if err == nil {
		_, b := s.replica.Members()
		stored, err = parseMembers(b)
	}
	if err == nil {
		err = s.replay(records, stored.confState())
	}
	if err == nil {
		err = s.restart(stored.confState())
	}
	if err != nil {
		return nil, false, errors.Join(err, s.replica.Close())
	}
	return s, fresh, nil
}

// firstPosition is the position of a store when its cluster begins. No log has the entry: a node that joins always gets
// a store first, which has the members.
var firstPosition = journal.Position{Index: 1, Term: 1}

// begin makes the store of a first node of a cluster.
func (s *storage) begin(m *members) error {
	return s.replica.Apply(func(add func(journal.Position, []byte) error) error { return add(firstPosition, nil) },
		func(journal.Position) []byte { return m.stored() })
}

// replay appends the entries of the log's records. The first record may begin anywhere. confState has the members of
// the store.
func (s *storage) replay(records []record, confState *pb.ConfState) error {
	for i, r := range records {
		s.hard = r.hard
		if i == 0 && r.before.Index > 0 {
			if err := s.beginAt(r.before, confState); err != nil {
				return err
			}
		}
		if len(r.entries) == 0 {
			continue
		}
		term, err := s.Term(r.before.Index)
		if err != nil && r.before.Index <= s.replica.Applied().Index { // the store has what lies between
			if err := s.beginAt(r.before, confState); err != nil {
				return err
			}
			term, err = r.before.Term, nil
		}
		if err != nil || term != r.before.Term {
			return fmt.Errorf("the log of the cluster is damaged: entry %d does not follow entry %d of term %d: %v",
				r.before.Index+1, r.before.Index, r.before.Term, err)
		}
		if err := s.Append(r.entries); err != nil {
			return err
		}
	}
	return nil
}

// beginAt makes the log begin after a position.
func (s *storage) beginAt(at journal.Position, confState *pb.ConfState) error {
	return s.ApplySnapshot(&pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: &at.Index, Term: &at.Term, ConfState: confState}})
}

// restart compacts the log to the entries that the store lacks, and begins it anew on the disk. confState has the
// members of the store.
func (s *storage) restart(confState *pb.ConfState) error {
	at := s.replica.Applied()
	last, _ := s.LastIndex() // of a MemoryStorage: it never fails
	if at == firstPosition && last == 0 {
		last = at.Index
		if err := s.beginAt(at, confState); err != nil {
			return err
		}
	}
	if at.Index > last {
		return fmt.Errorf("the log of the cluster ends with entry %d, and the store has entry %d: the log is damaged", last, at.Index)
	}
	term, err := s.Term(at.Index)
	if err != nil || term != at.Term {
		return fmt.Errorf("the log of the cluster does not fit the store at entry %d of term %d: %v", at.Index, at.Term, err)
	}
	if err := s.compact(at.Index, at.Index, confState); err != nil {
		return err
	}
	if s.hard.GetCommit() < at.Index {
		s.hard.Commit = &at.Index
	}
	if err := s.SetHardState(s.hard); err != nil {
		return err
	}
	var entries []*pb.Entry
	if last > at.Index {
		if entries, err = s.Entries(at.Index+1, last+1, noLimit); err != nil {
			return err
		}
	}
	return s.replica.Restart(last, appendRecord(nil, &record{s.hard, at, entries}))
}

const noLimit = 1<<64 - 1

// compact makes entry at that of the snapshot, and drops the entries before keep.
func (s *storage) compact(at, keep uint64, confState *pb.ConfState) error {
	if _, err := s.CreateSnapshot(at, confState, nil); err != nil && !errors.Is(err, raft.ErrSnapOutOfDate) {
		return err
	}
	if err := s.Compact(keep); err != nil && !errors.Is(err, raft.ErrCompacted) {
		return err
	}
	return nil
}

// save makes entries and a state durable. The entries may replace others at the end of the log.
func (s *storage) save(hard *pb.HardState, entries []*pb.Entry, sync bool) error {
	if hard != nil {
		s.hard = hard
		if err := s.SetHardState(hard); err != nil {
			return err
		}
	}
	if !sync { // only Commit has changed, which the next record has, too
		return nil
	}
	last, err := s.LastIndex()
	r := record{hard: s.hard, entries: entries, before: journal.Position{Index: last}}
	if len(entries) > 0 {
		last = entries[len(entries)-1].GetIndex()
		r.before.Index = entries[0].GetIndex() - 1
	}
	if err == nil { // the record may be the first one of all that are left
		r.before.Term, err = s.Term(r.before.Index)
	}
	if err != nil {
		return fmt.Errorf("cannot append entry %d: %w", r.before.Index+1, err)
	}
	b := appendRecord(nil, &r)
	if err := s.replica.Append(last, b); err != nil {
		return err
	}
	s.written.Add(int64(len(b)))
	return s.Append(entries)
}

// install replaces store and log by a received snapshot.
func (s *storage) install(snapshot *pb.Snapshot, hard *pb.HardState, in *journal.Incoming) error {
	if hard != nil {
		s.hard = hard
	}
	at := positionOf(snapshot)
	if err := in.Install(at, appendRecord(nil, &record{hard: s.hard, before: at})); err != nil {
		return err
	}
	return errors.Join(s.SetHardState(s.hard), s.ApplySnapshot(snapshot))
}

// apply applies the entries up to index to to the store.
func (s *storage) apply(to uint64) error {
	at, b := s.replica.Members()
	if to <= at.Index {
		return nil
	}
	type version struct {
		since uint64 // index of the entry
		*members
	}
	m, err := parseMembers(b)
	if err != nil {
		return err
	}
	versions := []version{{at.Index, m}}
	take := func(e *pb.Entry) (batch []byte) {
		if e.GetType() == pb.EntryNormal {
			return e.GetData() // the first entry of a leader is empty
		}
		if next, _, err := m.withEntry(e); err == nil { // changeMembers leaves out the same changes
			m = next
			versions = append(versions, version{e.GetIndex(), m})
		}
		return nil
	}
	return s.replica.Apply(func(add func(journal.Position, []byte) error) error {
		for next := at.Index + 1; next <= to; {
			entries, err := s.Entries(next, to+1, applyBytes)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if err := add(journal.Position{Index: e.GetIndex(), Term: e.GetTerm()}, take(e)); err != nil {
					return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
				}
			}
			next += uint64(len(entries))
		}
		return nil
	}, func(at journal.Position) []byte {
		for len(versions) > 1 && versions[len(versions)-1].since > at.Index {
			versions = versions[:len(versions)-1]
		}
		return versions[len(versions)-1].stored()
	})
}

// applyBytes is how many bytes of entries are read at once.
const applyBytes = 8 << 20

// record is one write to the log: the state, and entries that follow the position before. Without entries, before is
// the end of the log.
type record struct {
	hard    *pb.HardState
	before  journal.Position
	entries []*pb.Entry
}

// appendRecord appends the stored form: term, vote, commit, the position before and the number of entries as varints;
// then term, type, length of the data and data of each entry.
func appendRecord(dst []byte, r *record) []byte {
	for _, v := range [...]uint64{r.hard.GetTerm(), r.hard.GetVote(), r.hard.GetCommit(), r.before.Index, r.before.Term, uint64(len(r.entries))} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, e := range r.entries {
		dst = binary.AppendUvarint(dst, e.GetTerm())
		dst = binary.AppendUvarint(dst, uint64(e.GetType()))
		dst = binary.AppendUvarint(dst, uint64(len(e.GetData())))
		dst = append(dst, e.GetData()...)
	}
	return dst
}

var errRecord = errors.New("a record of the log is truncated or malformed")

// parseRecord decodes a record. The data of its entries are views of b.
func parseRecord(b []byte) (r record, err error) {
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			err, b = errRecord, nil
			return 0
		}
		b = b[n:]
		return v
	}
	term, vote, commit := next(), next(), next()
	r.hard = &pb.HardState{Term: &term, Vote: &vote, Commit: &commit}
	r.before = journal.Position{Index: next(), Term: next()}
	for i, n := r.before.Index+1, next(); n > 0 && err == nil; i, n = i+1, n-1 {
		index, term, kind, size := i, next(), next(), next()
		if err != nil || size > uint64(len(b)) || kind > uint64(pb.EntryConfChangeV2) {
			return r, errRecord
		}
		r.entries = append(r.entries, &pb.Entry{Index: &index, Term: &term, Type: pb.EntryType(kind).Enum(), Data: b[:size:size]})
		b = b[size:]
	}
	if err == nil && len(b) > 0 {
		err = errRecord
	}
	return r, err
}
