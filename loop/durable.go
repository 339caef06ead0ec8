package loop

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/sched"
)

// feed tells the journal what the scheduler says must survive. Each shard has a
// record of its own, under that shard's lock.
type journalSink struct {
	journal *journal.Journal
	records []journal.Record
	dirty   atomic.Bool // something was appended since the last flush
	manual  bool        // by tests: nothing is flushed until they say so
}

// Save implements sched.Journal. Nobody waits for a function to be on disk, and workers offer
// as many as they like: while the disk is full none is written.
func (f *journalSink) Save(shard int, j *sched.Saved) {
	if j.Kind == sched.KindQueue && f.journal.Full() {
		return
	}
	r := &f.records[shard]
	*r = journal.Record{
		Kind: journal.Kind(j.Kind), Seq: j.Ref.Seq, Space: uint8(j.Space), Queue: append(r.Queue[:0], j.Queue...), Name: j.Name, Workload: j.Workload,
		SchedAt: j.SchedAt, Due: j.Due, Priority: j.Priority, Count: j.Count, Timeout: j.Timeout,
		Holder: append(r.Holder[:0], j.Holder...), Revision: j.Revision, Log: r.Log[:0], After: j.After, Task: j.Task,
	}
	for _, e := range j.Log {
		r.Log = append(r.Log, journal.Event(e))
	}
	f.journal.Put(shard, r)
	r.Name, r.Workload, r.After = nil, nil, nil
	f.dirty.Store(true)
}

// Drop implements sched.Journal.
func (f *journalSink) Drop(shard int, seq uint64) {
	f.journal.Delete(shard, seq)
	f.dirty.Store(true)
}

// flush ends a turn in which so many acknowledgements began to wait.
func (f *journalSink) flush(acknowledgements int) {
	if f != nil && !f.manual && (acknowledgements > 0 || f.dirty.Load()) {
		f.dirty.Store(false)
		f.journal.Flush(acknowledgements)
	}
}

// flushLater is flush for a turn without acknowledgements whose changes a loss of power may undo.
func (f *journalSink) flushLater() {
	if f != nil && !f.manual && f.dirty.Load() {
		f.dirty.Store(false)
		f.journal.FlushLater()
	}
}

// JournalError ends a server that cannot write what it would have to acknowledge.
type JournalError struct{ Err error }

func (e *JournalError) Error() string {
	return fmt.Sprintf("the journal failed, stopping so that nothing is acknowledged that is not on disk: %v", e.Err)
}
func (e *JournalError) Unwrap() error { return e.Err }

// ExitCode is the process's for this error.
func (e *JournalError) ExitCode() int { return exitData }

// dataError is a data directory that cannot be opened.
func dataError(err error) error {
	code := exitFailure
	if errors.As(err, new(*journal.DamageError)) {
		code = exitData
	}
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		if errors.Is(err, errno) {
			code = exitData // it cannot be written
		}
	}
	return &OptionError{Setting: "data", Err: err, Code: code}
}

// journalOptions are those that follow from the server's.
func (s *Server) newJournalOptions() (journal.Options, error) {
	mode, err := journal.ParseMode(s.o.Sync)
	if err != nil {
		return journal.Options{}, &OptionError{Setting: "sync", Err: err}
	}
	return journal.Options{
		Dir: s.o.Data, Shards: s.o.Shards, Sync: mode, Interval: s.o.SyncInterval, MinFree: uint64(s.o.MinFree),
		Log: s.log, Committed: s.committed, Failed: s.journalFailed,
	}, nil
}

// openJournal opens the data directory and puts back what is in it.
func (s *Server) openJournal() error {
	j, err := journal.Open(s.journalOpts)
	if err != nil {
		return dataError(err)
	}
	s.journal.journal = j
	if err := s.replay(); err != nil {
		return errors.Join(err, j.Close())
	}
	sink := host{s}.NewSink()
	s.sched.Resume(s.now(), j.LastSeq(), s.holder, sink)
	sink.Wake()
	for p := range protocolsWith[protocol.Documents](s) {
		if err := p.Restored(); err != nil {
			return errors.Join(err, j.Close())
		}
	}
	return nil
}

// holder finds the peer of a restored task's worker.
func (s *Server) holder(space sched.Space, name string) *sched.Peer {
	for _, p := range s.protocols {
		if h, ok := p.(protocol.Holders); ok && p.Name() == spaces[space].Protocol {
			return h.Holder(name)
		}
	}
	return nil
}

// closeJournal writes what is left. A journal that failed is why the server stops.
func (s *Server) closeJournal(why error) error {
	err := s.journal.journal.Close()
	if f := s.failure.Load(); f != nil {
		return f
	}
	if err != nil && why == nil {
		return &JournalError{err}
	}
	return why
}

// progressEvery is the time between two lines about a long replay.
const progressEvery = time.Second

func (s *Server) replay() error {
	now := s.now()
	shown := now
	jobs := 0
	err := s.journal.journal.Replay(journal.Replayed{
		Setting: func(key string, value []byte) error {
			for p := range protocolsWith[protocol.Restorer](s) {
				if err := p.Restore(key, value); err != nil {
					return err
				}
			}
			return nil
		},
		Document: func(d *journal.Document) error {
			for p := range protocolsWith[protocol.Documents](s) {
				if err := p.RestoreDocument(&protocol.Document{Kind: protocol.DocumentKind(d.Kind), Project: d.Project, Name: d.Name, Value: d.Value}); err != nil {
					return err
				}
			}
			return nil
		},
		Record: func(r *journal.Record) error {
			if r.Kind == journal.KindJob {
				jobs++
			}
			return s.restore(now, r)
		},
		Progress: func(done, total int64) {
			if t := s.now(); t.Mono-shown.Mono >= progressEvery.Milliseconds() {
				shown = t
				s.log.Info("reading the journal", "done", done, "of", total)
			}
		},
	})
	if err != nil {
		return dataError(fmt.Errorf("cannot read the journal in %s: %w", s.o.Data, err))
	}
	s.log.Info("the journal is read", "data", s.o.Data, "jobs", jobs, "took", time.Duration(s.now().Mono-now.Mono)*time.Millisecond)
	return nil
}

func (s *Server) restore(now sched.Time, r *journal.Record) error {
	j := sched.Saved{Kind: sched.Kind(r.Kind), Holder: string(r.Holder), Revision: r.Revision, After: r.After, Task: r.Task}
	j.Job = sched.Job{
		Ref: sched.JobRef{Seq: r.Seq}, Space: sched.Space(r.Space), Queue: string(r.Queue), Name: r.Name, Workload: r.Workload,
		SchedAt: r.SchedAt, Due: r.Due, Priority: r.Priority, Count: r.Count, Timeout: r.Timeout,
	}
	for _, e := range r.Log {
		j.Log = append(j.Log, sched.Event(e))
	}
	err := s.sched.Restore(now, &j)
	if errors.Is(err, sched.ErrDuplicate) {
		err = fmt.Errorf("%w: the end of the other one is lost; treadle journal repair keeps the later one", err)
	}
	if err != nil {
		return fmt.Errorf("job %d, %q in queue %q: %w", r.Seq, r.Name, r.Queue, err)
	}
	return nil
}

// committed has the acknowledgements sent that waited for a group. The committer
// calls it.
func (s *Server) committed(uint64) {
	s.wakeCommits()
	for a := range protocolsWith[protocol.Acknowledger](s) {
		a.Committed()
	}
	for i := range s.reactors {
		if r := s.reactors[i].Load(); r != nil && r.acksWait.Load() {
			r.exec(r.finish)
		}
	}
}

// journalFailed stops the server at once. The committer calls it.
func (s *Server) journalFailed(err error) {
	s.failure.CompareAndSwap(nil, &JournalError{err})
	s.wakeCommits()
	s.stop()
}

// durable says what the caller's acknowledgement has to wait for: the group that
// covers what was changed last in the journal's part for queue; false: nothing.
func (s *Server) durable(queue []byte) (group uint64, wait bool) {
	if s.journal == nil {
		return 0, false
	}
	group = s.journal.journal.Group(s.sched.ShardOf(queue))
	return group, group > s.journal.journal.Committed()
}

// durableAll is durable for changes in any part.
func (s *Server) durableAll() (group uint64, wait bool) {
	if s.journal == nil {
		return 0, false
	}
	group = s.journal.journal.SettingsGroup()
	for i := range s.o.Shards {
		group = max(group, s.journal.journal.Group(i))
	}
	return group, group > s.journal.journal.Committed()
}

// awaitCommit returns when a group is committed, or the journal has failed.
func (s *Server) awaitCommit(group uint64) error {
	s.commits.L.Lock()
	defer s.commits.L.Unlock()
	for s.journal.journal.Committed() < group {
		if f := s.failure.Load(); f != nil {
			return f
		}
		s.commits.Wait()
	}
	return nil
}

// wakeCommits has awaitCommit look again.
func (s *Server) wakeCommits() {
	s.commits.L.Lock()
	defer s.commits.L.Unlock()
	s.commits.Broadcast()
}

// full says that nothing more may be taken in for want of disk.
func (s *Server) diskFull() bool { return s.journal != nil && s.journal.journal.Full() }

// room says that the disk can take so many bytes in.
func (s *Server) diskHasRoom(bytes int) bool {
	return s.journal == nil || s.journal.journal.RoomFor(uint64(bytes))
}

// mark says that the late bytes up to end wait for a group, which is later than that of the
// bytes before.
type ackGroup struct {
	group uint64
	end   int
}

// After implements protocol.Transport.
func (s *session) After(group uint64, reply []byte) {
	if s.acks == nil {
		s.acks = s.r.buffer()
		s.r.awaitCommit = append(s.r.awaitCommit, s)
		s.r.acksWait.Store(true)
	}
	s.r.newAcks++
	s.acks = append(s.acks, reply...)
	if last := len(s.ackGroups) - 1; last >= 0 && s.ackGroups[last].group >= group {
		s.ackGroups[last].end = len(s.acks) // it is sent behind those
	} else {
		s.ackGroups = append(s.ackGroups, ackGroup{group, len(s.acks)})
	}
}

// releaseLate moves the acknowledgements that are due to their sessions' out buffers.
// Every turn ends with it: a group that is committed between an acknowledgement's
// look at Committed and waits being set would wake nobody.
func (r *reactor) releaseAcks() {
	if len(r.awaitCommit)+len(r.halfClosed) == 0 {
		return
	}
	committed := r.server.journal.journal.Committed()
	kept := r.awaitCommit[:0]
	for _, s := range r.awaitCommit {
		if !s.gone && !s.sendAcks(committed) {
			kept = append(kept, s)
		}
	}
	clear(r.awaitCommit[len(kept):])
	r.awaitCommit = kept
	r.halfClosed = slices.DeleteFunc(r.halfClosed, func(p halfClosed) bool {
		if p.group > committed {
			return false
		}
		_, _ = p.conn.Write(p.acks) // nobody is left to hear of an error
		_ = p.conn.Close()
		r.server.conns.remove(p.protocol)
		return true
	})
	r.acksWait.Store(len(r.awaitCommit)+len(r.halfClosed) > 0)
}

// parting is what a peer that has closed its side is still to read when a group is committed,
// the latest that any of it waits for: parts of the journal are not in the same group.
type halfClosed struct {
	conn  io.WriteCloser
	acks  []byte
	group uint64

	protocol protocolID
}

// release sends what waited for groups up to committed; true when nothing waits any
// more.
func (s *session) sendAcks(committed uint64) bool {
	n := 0
	for n < len(s.ackGroups) && s.ackGroups[n].group <= committed {
		n++
	}
	if n > 0 {
		end := s.ackGroups[n-1].end
		s.Touch()
		s.Out = append(s.Out, s.acks[:end]...)
		s.acks = s.acks[:copy(s.acks, s.acks[end:])]
		s.ackGroups = s.ackGroups[:copy(s.ackGroups, s.ackGroups[n:])]
		for i := range s.ackGroups {
			s.ackGroups[i].end -= end
		}
		if len(s.acks) == 0 {
			s.r.recycle(s.acks)
			s.acks, s.ackGroups = nil, nil
		}
	}
	return len(s.ackGroups) == 0
}
