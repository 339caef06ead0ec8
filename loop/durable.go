package loop

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/sched"
)

// journalError ends a server whose journal cannot be written: it can acknowledge nothing any more.
type journalError struct{ Err error }

func (e *journalError) Error() string {
	return fmt.Sprintf("the journal failed, stopping so that nothing is acknowledged that is not on disk: %v", e.Err)
}
func (e *journalError) Unwrap() error { return e.Err }

// ExitCode returns the exit code of the process.
func (e *journalError) ExitCode() int { return exitData }

// dataError returns the OptionError of a data directory that cannot be opened.
func dataError(err error) error {
	code := exitFailure
	switch {
	case errors.As(err, new(*journal.DamageError)):
		code = exitData
	case errors.Is(err, syscall.ENOTDIR):
		code = 0 // the setting is wrong
	}
	for _, unwritable := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EACCES, syscall.EPERM} {
		if errors.Is(err, unwritable) {
			code = exitData
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
		Log: s.log, Committed: s.onCommit, Failed: s.journalFailed,
	}, nil
}

// openJournal opens the data directory and restores its jobs, settings and documents.
func (s *Server) openJournal() error {
	j, err := journal.Open(s.journalOpts)
	if err != nil {
		return dataError(err)
	}
	s.journal.journal = j
	if err := s.replay(j); err != nil {
		return errors.Join(err, j.Close())
	}
	sink := host{s}.NewSink()
	s.sched.Resume(s.now(), j.LastSeq(), s.holder, sink)
	sink.Wake()
	for p := range protocolsWith[protocol.DocumentRestorer](s) {
		if err := p.Restored(); err != nil {
			return errors.Join(err, j.Close())
		}
	}
	return nil
}

// holder returns the peer of the worker that holds a restored task; nil: the task becomes ready.
func (s *Server) holder(space sched.Space, name string) *sched.Peer {
	for _, p := range s.protocols {
		if h, ok := p.(protocol.HolderRestorer); ok && p.Name() == spaces[space].Protocol {
			return h.Holder(name)
		}
	}
	return nil
}

// closeJournal commits the remaining changes. It returns why, or the journal's error.
func (s *Server) closeJournal(why error) error {
	err := s.journal.close()
	if f := s.failure.Load(); f != nil {
		return f
	}
	if err != nil && why == nil {
		return &journalError{err}
	}
	return why
}

// progressEvery is the time between two log lines about a long replay.
const progressEvery = time.Second

// replay restores what the journal has: settings, documents and jobs.
func (s *Server) replay(j *journal.Journal) error {
	now := s.now()
	lastProgress := now
	jobs := 0
	err := j.Replay(journal.ReplayFuncs{
		Setting: func(key string, value []byte) error {
			for p := range protocolsWith[protocol.SettingsRestorer](s) {
				if err := p.Restore(key, value); err != nil {
					return err
				}
			}
			return nil
		},
		Document: func(d *journal.Document) error {
			for p := range protocolsWith[protocol.DocumentRestorer](s) {
				if err := p.RestoreDocument(&protocol.Document{Kind: documentKind(d.Kind), Project: d.Project, Name: d.Name, Value: d.Value}); err != nil {
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
			if t := s.now(); t.Mono-lastProgress.Mono >= progressEvery.Milliseconds() {
				lastProgress = t
				s.log.Info("reading the journal", "done", done, "of", total)
				s.setProgress(fmt.Sprintf("starting: %d of %d records of the journal are read", done, total))
			}
		},
	})
	if err != nil {
		return dataError(fmt.Errorf("cannot read the journal in %s: %w", s.o.Data, err))
	}
	s.log.Info("the journal is read", "data", s.o.Data, "jobs", jobs, "took", time.Duration(s.now().Mono-now.Mono)*time.Millisecond)
	return nil
}

// restore adds a job of the journal to the scheduler. Its errors name the job.
func (s *Server) restore(now sched.Time, r *journal.Record) error {
	j := sched.Saved{Kind: recordKind(r.Kind), Holder: string(r.Holder), Revision: r.Revision, After: r.After, Task: r.Task}
	j.Job = sched.Job{
		Ref: sched.JobRef{Seq: r.Seq}, Space: sched.Space(r.Space), Queue: string(r.Queue), Name: r.Name, Workload: r.Workload,
		SchedAt: r.SchedAt, Due: r.Due, Priority: r.Priority, Count: r.Count, Timeout: r.Timeout,
	}
	for _, e := range r.Log {
		j.Log = append(j.Log, sched.Event(e))
	}
	if r.FailedAt != 0 || r.Tries != 0 || len(r.History) > 0 {
		restoreAttempts(&j, &r.Attempts)
	}
	j.DoneAt, j.Result = r.DoneAt, r.Result
	j.Lease = restoreLease(&r.Lease)
	j.Counts = sched.Counts(r.Counts)
	err := s.sched.Restore(now, &j)
	if errors.Is(err, sched.ErrDuplicate) {
		err = fmt.Errorf("%w: the end of the other one is lost; treadle journal repair keeps the later one", err)
	}
	if err != nil {
		return fmt.Errorf("job %d, %q in queue %q: %w", r.Seq, r.Name, r.Queue, err)
	}
	if f := s.jobHookOf(j.Space); f != nil && j.Kind == sched.KindJob && j.DoneAt == 0 {
		f.JobRestored(&j.Job, len(j.History) > 0 || j.Lease.Until != 0)
	}
	return nil
}

// jobHookOf returns the hook of the protocol of a space, or nil.
func (s *Server) jobHookOf(space sched.Space) protocol.JobHook {
	for f := range protocolsWith[protocol.JobHook](s) {
		if f.(protocol.Protocol).Name() == spaces[space].Protocol {
			return f
		}
	}
	return nil
}

// jobHook is the scheduler's Options.JobHook.
func (s *Server) jobHook(j *sched.Job, e sched.Effect) {
	if f := s.jobHookOf(j.Space); f != nil {
		f.JobChanged(j, e)
	}
}

// onCommit tells every waiter for a commit that there was one. The journal's committer calls it.
func (s *Server) onCommit(uint64) {
	s.wakeCommits()
	for a := range protocolsWith[protocol.Acknowledger](s) {
		a.Committed()
	}
	for i := range s.reactors {
		if r := s.reactors[i].Load(); r != nil && r.acks.any.Load() {
			r.requestTurn()
		}
	}
}

// journalFailed stops the server at once. The journal's committer calls it.
func (s *Server) journalFailed(err error) {
	if s.failure.CompareAndSwap(nil, &journalError{err}) {
		s.failedAt.Store(s.now().Wall)
	}
	s.wakeCommits()
	s.stop()
}

// awaitCommit blocks until a group is committed. It returns an error when the journal fails.
func (s *Server) awaitCommit(group uint64) error {
	s.commits.L.Lock()
	defer s.commits.L.Unlock()
	for s.journal.committed() < group {
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
