package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"treadle/loop/journal"
)

// storage is Raft's log: on disk the records of a journal.Replica, in memory the entries that the store lacks and some
// before them.
type storage struct {
	*raft.MemoryStorage
	replica *journal.Replica
	hard    *pb.HardState // as of the last record, or newer in Commit
}

// openStorage opens the log of a data directory. voters are the numbers of all nodes.
func openStorage(o journal.Options, voters []uint64) (s *storage, fresh bool, err error) {
	s = &storage{MemoryStorage: raft.NewMemoryStorage(), hard: &pb.HardState{}}
	all := &pb.ConfState{Voters: voters}
	if err := s.ApplySnapshot(&pb.Snapshot{Metadata: &pb.SnapshotMetadata{ConfState: all}}); err != nil {
		return nil, false, err
	}
	first := true
	s.replica, fresh, err = journal.OpenReplica(o, func(record []byte) error {
		r, err := parseRecord(record)
		if err == nil {
			err = s.replay(r, first, all)
		}
		first = false
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if err := s.restart(all); err != nil {
		return nil, false, errors.Join(err, s.replica.Close())
	}
	return s, fresh, nil
}

// replay takes a record of the log. The first one may begin anywhere.
func (s *storage) replay(r record, first bool, all *pb.ConfState) error {
	s.hard = r.hard
	if first && r.before.Index > 0 {
		at := &pb.SnapshotMetadata{Index: &r.before.Index, Term: &r.before.Term, ConfState: all}
		if err := s.ApplySnapshot(&pb.Snapshot{Metadata: at}); err != nil {
			return err
		}
	}
	if len(r.entries) == 0 {
		return nil
	}
	term, err := s.Term(r.before.Index)
	if err != nil || term != r.before.Term {
		return fmt.Errorf("entry %d does not follow entry %d of term %d: %v", r.before.Index+1, r.before.Index, r.before.Term, err)
	}
	return s.Append(r.entries)
}

// restart compacts the log to what the store lacks, and begins it anew on the disk.
func (s *storage) restart(all *pb.ConfState) error {
	at := s.replica.Applied()
	last, _ := s.LastIndex() // of a MemoryStorage: it never fails
	if at.Index > last {
		return fmt.Errorf("the log of the cluster ends with entry %d, and the store has entry %d: the log is damaged", last, at.Index)
	}
	term, err := s.Term(at.Index)
	if err != nil || term != at.Term {
		return fmt.Errorf("the log of the cluster does not fit the store at entry %d of term %d: %v", at.Index, at.Term, err)
	}
	if err := s.compact(at.Index, at.Index, all); err != nil {
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
	return s.replica.Restart(appendRecord(nil, &record{s.hard, at, entries}))
}

const noLimit = 1<<64 - 1

// compact makes entry at the one that a snapshot has, and forgets the entries before keep.
func (s *storage) compact(at, keep uint64, all *pb.ConfState) error {
	if _, err := s.CreateSnapshot(at, all, nil); err != nil && !errors.Is(err, raft.ErrSnapOutOfDate) {
		return err
	}
	if err := s.Compact(keep); err != nil && !errors.Is(err, raft.ErrCompacted) {
		return err
	}
	return nil
}

// save makes entries and a state durable. They may replace entries at the end of the log.
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
	if err := s.replica.Append(last, appendRecord(nil, &r)); err != nil {
		return err
	}
	return s.Append(entries)
}

// install replaces store and log by a snapshot that was received.
func (s *storage) install(snapshot *pb.Snapshot, hard *pb.HardState, in *journal.Incoming) error {
	if hard != nil {
		s.hard = hard
	}
	at := journal.Position{Index: snapshot.GetMetadata().GetIndex(), Term: snapshot.GetMetadata().GetTerm()}
	if err := in.Install(at, appendRecord(nil, &record{hard: s.hard, before: at})); err != nil {
		return err
	}
	return errors.Join(s.SetHardState(s.hard), s.ApplySnapshot(snapshot))
}

// apply brings the entries up to index to into the store.
func (s *storage) apply(to uint64) error {
	from := s.replica.Applied().Index
	if to <= from {
		return nil
	}
	return s.replica.Apply(func(add func(journal.Position, []byte) error) error {
		for next := from + 1; next <= to; {
			entries, err := s.Entries(next, to+1, applyBytes)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if len(e.GetData()) == 0 { // a leader's first one
					continue
				}
				if err := add(journal.Position{Index: e.GetIndex(), Term: e.GetTerm()}, e.GetData()); err != nil {
					return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
				}
			}
			next += uint64(len(entries))
		}
		return nil
	})
}

// applyBytes is how many bytes of entries are read at once.
const applyBytes = 8 << 20

// record is what one write adds to the log: the state, and entries behind the position before. Without entries that is
// the end of the log.
type record struct {
	hard    *pb.HardState
	before  journal.Position
	entries []*pb.Entry
}

// appendRecord appends the stored form: term, vote, commit, the position before, the number of entries as varints; then
// for each entry its term, the length of its data and the data.
func appendRecord(dst []byte, r *record) []byte {
	for _, v := range [...]uint64{r.hard.GetTerm(), r.hard.GetVote(), r.hard.GetCommit(), r.before.Index, r.before.Term, uint64(len(r.entries))} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, e := range r.entries {
		dst = binary.AppendUvarint(dst, e.GetTerm())
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
		index, term, size := i, next(), next()
		if err != nil || size > uint64(len(b)) {
			return r, errRecord
		}
		r.entries = append(r.entries, &pb.Entry{Index: &index, Term: &term, Data: b[:size:size]})
		b = b[size:]
	}
	if err == nil && len(b) > 0 {
		err = errRecord
	}
	return r, err
}
