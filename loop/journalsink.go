package loop

import (
	"slices"
	"sync/atomic"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/sched"
)

// journalSink is the scheduler's sched.Journal, and how the server uses its journal. Its methods are called once
// openJournal has set the journal. A server without a journal has a nil journalSink, and calls only the methods that
// say so.
type journalSink struct {
	journal *journal.Journal
	records []journal.Record // by shard; each is used under its shard's lock
	dirty   atomic.Bool      // the journal has changes that no flush covers
	manual  bool             // flush and flushLater do nothing: a test commits, see Offline.BeginCommit
}

// The kinds on disk of the scheduler's records and of the protocols' documents.
var (
	recordKinds = [...]journal.Kind{
		sched.KindJob: journal.KindJob, sched.KindQueue: journal.KindQueue, sched.KindDropped: journal.KindDropped,
		sched.KindEdge: journal.KindEdge, sched.KindExit: journal.KindExit, sched.KindCron: journal.KindCron,
	}
	documentKinds = [...]journal.Kind{
		protocol.KindProject: journal.KindProject, protocol.KindNumbers: journal.KindNumbers,
		protocol.KindDefinition: journal.KindDefinition, protocol.KindProgress: journal.KindProgress,
	}
)

// recordKind and documentKind return the kind of a record and of a document from the journal.
func recordKind(k journal.Kind) sched.Kind { return sched.Kind(slices.Index(recordKinds[:], k)) }
func documentKind(k journal.Kind) protocol.DocumentKind {
	return protocol.DocumentKind(slices.Index(documentKinds[:], k))
}

// Save implements sched.Journal. While the disk is full it leaves new functions out: no reply waits for a durable
// function, and workers may offer any number.
func (f *journalSink) Save(shard int, j *sched.Saved) {
	if j.Kind == sched.KindQueue && f.journal.Full() {
		return
	}
	r := &f.records[shard] // set in place: a record that is built elsewhere and copied takes as long as the rest
	r.Kind, r.Seq, r.Space = recordKinds[j.Kind], j.Ref.Seq, uint8(j.Space)
	r.Queue, r.Name, r.Workload = append(r.Queue[:0], j.Queue...), j.Name, j.Workload
	r.SchedAt, r.Due, r.Priority, r.Count, r.Timeout = j.SchedAt, j.Due, j.Priority, j.Count, j.Timeout
	r.Holder, r.Revision, r.After, r.Task = append(r.Holder[:0], j.Holder...), j.Revision, j.After, j.Task
	r.DoneAt, r.Result, r.Counts = j.DoneAt, j.Result, journal.Counts(j.Counts)
	if r.Attempts = (journal.Attempts{}); j.FailedAt != 0 || len(j.History) > 0 {
		r.Attempts = attemptsOf(j)
	}
	if r.Lease = (journal.Lease{}); j.Lease.Token != (sched.Token{}) {
		r.Lease = leaseOf(&j.Lease)
	}
	r.Log = r.Log[:0]
	for _, e := range j.Log {
		r.Log = append(r.Log, journal.Event(e))
	}
	f.journal.Put(shard, r)
	r.Name, r.Workload, r.After, r.Result = nil, nil, nil, nil
	f.dirty.Store(true)
}

// Drop implements sched.Journal.
func (f *journalSink) Drop(shard int, seq uint64) {
	f.journal.Delete(shard, seq)
	f.dirty.Store(true)
}

// Begin implements sched.Journal.
func (f *journalSink) Begin(shard int) { f.journal.Begin(shard) }

// End implements sched.Journal.
func (f *journalSink) End(shard int) { f.journal.End(shard) }

// flush ends a turn in which this number of acknowledgements began to wait. f may be nil.
func (f *journalSink) flush(acknowledgements int) {
	if f != nil && !f.manual && (acknowledgements > 0 || f.dirty.Load()) {
		f.dirty.Store(false)
		f.journal.Flush(acknowledgements)
	}
}

// flushLater is flush for a turn without acknowledgements, whose changes a loss of power may undo.
// f may be nil.
func (f *journalSink) flushLater() {
	if f != nil && !f.manual && f.dirty.Load() {
		f.dirty.Store(false)
		f.journal.FlushLater()
	}
}

// commitGroup returns the journal's group that covers the last change of a shard, and whether an
// acknowledgement of that change has to wait for it. f may be nil.
func (f *journalSink) commitGroup(shard int) (group uint64, wait bool) {
	if f == nil {
		return 0, false
	}
	group = f.journal.Group(shard)
	return group, group > f.journal.Committed()
}

// commitGroupAll is durable for all shards and settings. f may be nil.
func (f *journalSink) commitGroupAll() (group uint64, wait bool) {
	if f == nil {
		return 0, false
	}
	group = f.journal.SettingsGroup()
	for shard := range f.records {
		group = max(group, f.journal.Group(shard))
	}
	return group, group > f.journal.Committed()
}

// committed returns the last committed group.
func (f *journalSink) committed() uint64 { return f.journal.Committed() }

// putSetting journals a setting. f may be nil.
func (f *journalSink) putSetting(key string, value []byte) {
	if f != nil {
		f.journal.PutSetting(key, value)
		f.dirty.Store(true)
	}
}

// putDocument journals a new or changed document. f may be nil.
func (f *journalSink) putDocument(d *protocol.Document) {
	if f != nil {
		f.journal.PutDocument(journalDocument(d))
		f.dirty.Store(true)
	}
}

// dropDocument journals that a document is removed. f may be nil.
func (f *journalSink) dropDocument(d *protocol.Document) {
	if f != nil {
		f.journal.DeleteDocument(journalDocument(d))
		f.dirty.Store(true)
	}
}

func journalDocument(d *protocol.Document) *journal.Document {
	return &journal.Document{Kind: documentKinds[d.Kind], Project: d.Project, Name: d.Name, Value: d.Value}
}

// full reports whether the disk is nearly full, see --min-free. f may be nil.
func (f *journalSink) full() bool { return f != nil && f.journal.Full() }

// hasRoom reports whether the disk has room for bytes more. f may be nil.
func (f *journalSink) hasRoom(bytes int) bool { return f == nil || f.journal.RoomFor(uint64(bytes)) }

// checkSpace measures the free space of the disk now.
func (f *journalSink) checkSpace() { f.journal.CheckSpace() }

// stats returns the journal's counters.
func (f *journalSink) stats() journal.Stats { return f.journal.Stats() }

// close commits the remaining changes and closes the journal.
func (f *journalSink) close() error { return f.journal.Close() }
