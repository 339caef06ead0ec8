package sched

import (
	"fmt"
	"strconv"
)

// Journal keeps what has to survive the process. Its methods are called under the shard's lock, in
// the order of the changes. They must neither block nor keep the bytes that they are given.
type Journal interface {
	// Save keeps a new or changed record. New records of a shard come in ascending order of
	// Ref.Seq.
	Save(shard int, j *Saved)
	// Drop ends the record that was saved under a Ref.Seq.
	Drop(shard int, seq uint64)
	// Begin and End enclose changes of a shard that survive together or not at all.
	Begin(shard int)
	End(shard int)
}

// Saved is a record of the Journal: a job, or a note of another Kind. A note has Ref.Seq, Queue and
// the fields that its Kind names.
type Saved struct {
	Kind Kind
	Job

	FailedAt int64  // Unix milliseconds when the job was given up; 0: it was not
	DoneAt   int64  // Unix milliseconds when the job was done or has expired; 0: it has not
	History  []byte // for ParseHistory
	Result   []byte // kept result of a done job, or nil
	Lease    SavedLease
	Counts   Counts // counts of a job of Rules.Numbered

	// The fields below are for tasks.

	Holder   string // name of the peer that holds a reserved task
	Revision int64  // revision of the last Lease
	Log      []Event
	After    []uint64 // sequence numbers of the task's predecessors
	Task     uint64   // of an edge: sequence number of the successor
}

// SavedLease is the lease under which a job is reserved. A zero Token: no lease.
type SavedLease struct {
	Token  Token
	Worker string
	Until  int64 // Unix milliseconds
	Length int64 // milliseconds, from the last extension to Until
}

// Kind says what a record is.
type Kind uint8

// The kinds.
const (
	KindJob Kind = iota
	// KindQueue: a queue exists, with or without jobs.
	KindQueue
	// KindDropped: the queue was dropped with its jobs up to this sequence number. The record is dropped after the last
	// of these jobs.
	KindDropped
	// KindEdge: the task Task waits for the predecessor After, which it got after it was made.
	KindEdge
	// KindExit: the holder Name releases its tasks of a queue. A task whose saved Holder has this name is ready.
	KindExit
	// KindCron: the cron entry Name has the state Workload, in JSON.
	KindCron
)

// wasDue is the Due of a saved job whose due time has come. Such a job stays due, also if the clock is set back before
// the job is restored.
const wasDue = 0

// save journals a job of a durable space.
func (sh *shard) save(job uint32, r *record, q *queue) {
	if sh.s.journal == nil || !sh.s.rules[r.space].Durable {
		return
	}
	if r.flags&task != 0 {
		sh.graph.save(job, r, q)
	} else {
		sh.view(job, r, q, &sh.saved.Job)
		if (r.state == ready || r.state == reserved) && sh.saved.SchedAt != 0 {
			sh.saved.Due = wasDue
		}
		switch r.state {
		case failed:
			sh.saved.FailedAt, sh.saved.SchedAt, sh.saved.Due = r.endedAt(), 0, wasDue
		case finished:
			sh.saved.DoneAt, sh.saved.SchedAt, sh.saved.Due = r.endedAt(), 0, wasDue
			sh.saved.Result = sh.result(job)
		case reserved:
			sh.saved.Lease = sh.savedLease(r)
		}
		sh.saved.History = sh.history(job, r)
		if r.flags&numbered != 0 {
			sh.saved.Counts = sh.countsOf(r)
		}
		sh.s.journal.Save(int(sh.id), &sh.saved)
		sh.saved.FailedAt, sh.saved.DoneAt, sh.saved.History, sh.saved.Result, sh.saved.Lease, sh.saved.Counts = 0, 0, nil, nil, SavedLease{}, Counts{}
	}
	if r.flags&numbered == 0 {
		sh.saveQueue(q)
	}
}

// saveQueue journals, once, a queue that durable jobs or their workers use.
func (sh *shard) saveQueue(q *queue) {
	if sh.s.journal == nil || q.saved != 0 {
		return
	}
	q.saved = sh.s.lastSeq.Add(1)
	sh.saveNote(Saved{Kind: KindQueue}, q.name, q.saved)
}

// saveNote journals a record that is no job.
func (sh *shard) saveNote(note Saved, queue string, seq uint64) {
	log, after := sh.saved.Log, sh.saved.After
	sh.saved = note
	sh.saved.Ref, sh.saved.Queue = JobRef{Shard: sh.id, Seq: seq}, queue
	sh.s.journal.Save(int(sh.id), &sh.saved)
	sh.saved = Saved{Log: log[:0], After: after[:0]}
}

// beginAtomic begins changes that are journaled together: after a crash all of them are there, or none. endAtomic ends
// them.
func (sh *shard) beginAtomic() {
	if sh.s.journal != nil {
		sh.s.journal.Begin(int(sh.id))
	}
}

func (sh *shard) endAtomic() {
	if sh.s.journal != nil {
		sh.s.journal.End(int(sh.id))
	}
}

// dropSaved journals that a job is gone.
func (sh *shard) dropSaved(r *record) {
	if sh.s.journal != nil && sh.s.rules[r.space].Durable {
		sh.s.journal.Drop(int(sh.id), r.seq)
	}
}

// saveDrop journals that a queue was dropped: the Ticks remove its jobs later, and no such job may come back after a
// crash. It does so also if an import or a full disk has left out the record of the queue.
func (sh *shard) saveDrop(q *queue) {
	if sh.s.journal == nil {
		return
	}
	if q.saved != 0 {
		sh.s.journal.Drop(int(sh.id), q.saved)
		q.saved = 0
	}
	if q.unreserved() > 0 {
		q.saved = sh.s.lastSeq.Add(1)
		sh.saveNote(Saved{Kind: KindDropped}, q.name, q.saved)
	}
}

// Restore takes back one record of the Journal. Records come in ascending order of Ref.Seq, before any other verb is
// called. Restore uses the Queue, Space, Name, Workload, SchedAt, Due, Priority, Count and Timeout of a job, and all
// fields that Saved adds. A job that was due when it was saved is ready, whatever the clock says. Restore journals
// nothing but the end of a drop that a crash cut short.
func (s *Scheduler) Restore(now Time, j *Saved) error {
	sh := s.shardOf([]byte(j.Queue))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s.lastSeq.Store(max(s.lastSeq.Load(), j.Ref.Seq))
	switch j.Kind {
	case KindCron:
		return sh.restoreCron(j)
	case KindDropped:
		if q := sh.byName[j.Queue]; q != nil {
			sh.endRestoredLeases(now, q)
			sh.discard(q)
			q.saved = j.Ref.Seq
		} else {
			s.journal.Drop(int(sh.id), j.Ref.Seq)
		}
		return nil
	}
	q, err := sh.queueFor([]byte(j.Queue), j.Kind == KindJob && s.numberedSpaces>>j.Space&1 != 0)
	if err != nil {
		return err
	}
	switch j.Kind {
	case KindQueue:
		q.saved = j.Ref.Seq
		return nil
	case KindExit:
		sh.graph.noteExit(exit{q, string(j.Name)}, j.Ref.Seq)
		return nil
	case KindEdge:
		sh.graph.restoreEdge(j)
		return nil
	}
	return sh.restoreJob(now, j, q)
}

// restoreJob is Restore for a job or a task.
func (sh *shard) restoreJob(now Time, j *Saved, q *queue) error {
	s := sh.s
	if j.Space >= MaxSpaces || !s.rules[j.Space].Durable {
		return fmt.Errorf("%w %d", errSpace, j.Space)
	}
	if s.rules[j.Space].Numbered {
		j.Name = strconv.AppendUint(nil, j.Ref.Seq, 10)
	}
	hash := s.nameHash(q.id, j.Space, j.Name)
	if _, taken := sh.lookup(hash, q, j.Space, j.Name); taken && j.FailedAt == 0 && j.DoneAt == 0 {
		return ErrDuplicate
	}
	if s.rules[j.Space].Graph {
		return sh.graph.restoreTask(j, q)
	}
	job, r, err := sh.newJob(hash, q, j.Space, j.Name, j.Workload)
	if err != nil {
		return err
	}
	r.seq, r.priority, r.count, r.timeout = j.Ref.Seq, j.Priority, j.Count, j.Timeout
	q.bytes += int64(r.size)
	if r.flags&numbered != 0 {
		sh.setCounts(r, &j.Counts)
	}
	if len(j.History) > 0 {
		sh.setHistory(job, r, j.History)
	}
	if j.FailedAt != 0 || j.DoneAt != 0 {
		sh.names.remove(hash, job)
		q.bytes -= int64(r.size)
		sh.restoreKept(job, r, q, j)
		return nil
	}
	second := floorSecond(j.Due)
	millis := uint32(j.Due - second*1000)
	if r.due = j.SchedAt; j.SchedAt == 0 {
		r.flags |= immediate
		r.due = second
	}
	if r.due != second {
		millis = 0
	}
	if j.Lease.Token != (Token{}) && sh.restoreLease(now, job, r, q, &j.Lease) {
		return nil
	}
	if j.SchedAt == 0 || j.Due == wasDue {
		now = r.notBefore(now)
	}
	sh.enqueue(now, job, r, q, millis)
	return nil
}

// Resume ends a restoration, also of an empty journal. Sequence numbers continue above last, and restored tasks get
// their places. holder returns the peer that holds a task of a space under a name, or nil to make the task ready again.
// A nil holder makes all tasks ready.
func (s *Scheduler) Resume(now Time, last uint64, holder func(space Space, name string) *Peer, sink Sink) {
	s.lastSeq.Store(max(s.lastSeq.Load(), last))
	s.lastPlace.Store(int64(s.lastSeq.Load()))
	for i := range s.shards {
		s.shards[i].graph.resume(now, holder, sink)
	}
}

// ShardOf returns the number by which the Journal knows a queue's shard.
func (s *Scheduler) ShardOf(queue []byte) int { return int(s.shardOf(queue).id) }
