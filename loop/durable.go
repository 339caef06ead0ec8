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

// journalSink is the scheduler's sched.Journal. Each shard has a record of its own, which is used
// under that shard's lock.
type journalSink struct {
	journal *journal.Journal
	records []journal.Record
	dirty   atomic.Bool // the journal has changes that no flush covers
	manual  bool        // flush does nothing; a test clears it to commit
}

// Save implements sched.Journal. While the disk is full it leaves new functions out: no reply waits
// for one to be durable, and workers may offer any number.
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

// flushLater is flush for a turn without acknowledgements, whose changes a loss of power may undo.
func (f *journalSink) flushLater() {
	if f != nil && !f.manual && f.dirty.Load() {
		f.dirty.Store(false)
		f.journal.FlushLater()
	}
}

// JournalError ends a server whose journal cannot be written: it can acknowledge nothing any more.
type JournalError struct{ Err error }

func (e *JournalError) Error() string {
	return fmt.Sprintf("the journal failed, stopping so that nothing is acknowledged that is not on disk: %v", e.Err)
}
func (e *JournalError) Unwrap() error { return e.Err }

// ExitCode returns the exit code of the process.
func (e *JournalError) ExitCode() int { return exitData }

// dataError returns the OptionError of a data directory that cannot be opened.
func dataError(err error) error {
	code := exitFailure
	if errors.As(err, new(*journal.DamageError)) {
		code = exitData
	}
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		if errors.Is(err, errno) {
			code = exitData // the directory cannot be written
		}
	}
	return &OptionError{Setting: "data", Err: err, Code: code}
}

// newJournalOptions derives the journal's options from the server's.
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

// openJournal opens the data directory and restores its jobs, settings and documents.
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

// holder returns the peer of the worker that holds a restored task; nil: the task becomes ready.
func (s *Server) holder(space sched.Space, name string) *sched.Peer {
	for _, p := range s.protocols {
		if h, ok := p.(protocol.Holders); ok && p.Name() == spaces[space].Protocol {
			return h.Holder(name)
		}
	}
	return nil
}

// closeJournal commits the remaining changes. It returns why, or the journal's error.
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

// progressEvery is the time between two log lines about a long replay.
const progressEvery = time.Second

func (s *Server) replay() error {
	now := s.now()
	shown := now
	jobs := 0
	err := s.journal.journal.Replay(journal.ReplayFuncs{
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

// committed tells every waiter for a commit that there was one. The journal's committer calls it.
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

// journalFailed stops the server at once. The journal's committer calls it.
func (s *Server) journalFailed(err error) {
	s.failure.CompareAndSwap(nil, &JournalError{err})
	s.wakeCommits()
	s.stop()
}

// durable returns the journal's group that covers the last change of a queue, and whether an
// acknowledgement of that change has to wait for it.
func (s *Server) durable(queue []byte) (group uint64, wait bool) {
	if s.journal == nil {
		return 0, false
	}
	group = s.journal.journal.Group(s.sched.ShardOf(queue))
	return group, group > s.journal.journal.Committed()
}

// durableAll is durable for all queues and settings.
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

// awaitCommit blocks until a group is committed. It returns an error when the journal fails.
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

// wakeCommits makes the callers of awaitCommit check again.
func (s *Server) wakeCommits() {
	s.commits.L.Lock()
	defer s.commits.L.Unlock()
	s.commits.Broadcast()
}

// diskFull reports whether the disk is too full for new jobs.
func (s *Server) diskFull() bool { return s.journal != nil && s.journal.journal.Full() }

// diskHasRoom reports whether the disk has room for so many bytes.
func (s *Server) diskHasRoom(bytes int) bool {
	return s.journal == nil || s.journal.journal.RoomFor(uint64(bytes))
}

// ackGroup says that the acks up to end wait for a group. Groups and ends of a session ascend.
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
		s.ackGroups[last].end = len(s.acks) // the order of replies holds: this one follows a later group's
	} else {
		s.ackGroups = append(s.ackGroups, ackGroup{group, len(s.acks)})
	}
}

// releaseAcks sends the acknowledgements of committed groups. Every turn ends with it, because a
// commit between the caller's look at Committed and the setting of acksWait wakes no reactor.
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
		_, _ = p.conn.Write(p.acks) // the connection closes after an error as well
		_ = p.conn.Close()
		r.server.conns.remove(p.protocol)
		return true
	})
	r.acksWait.Store(len(r.awaitCommit)+len(r.halfClosed) > 0)
}

// halfClosed is a half-closed connection whose peer is still to receive acknowledgements.
type halfClosed struct {
	conn  io.WriteCloser
	acks  []byte
	group uint64

	protocol protocolID
}

// sendAcks moves the acknowledgements of groups up to committed to Out. It returns true when none
// are left.
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
