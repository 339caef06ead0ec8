package loop

import (
	"slices"
	"sync/atomic"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/sched"
)

// schedJournal is the scheduler's sched.Journal, and how the server uses its journal. Its methods are called once
// openJournal has set the journal. A server without a journal has a nil schedJournal, and calls only the methods that
// say so.
type schedJournal struct {
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
		protocol.KindProject: journal.KindProject, protocol.KindBatchParams: journal.KindNumbers,
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
func (j *schedJournal) Save(shard int, saved *sched.Saved) {
	if saved.Kind == sched.KindQueue && j.journal.LowSpace() {
		return
	}
	r := &j.records[shard] // set in place: a record that is built elsewhere and copied takes as long as the rest
	r.Kind, r.Seq, r.Space = recordKinds[saved.Kind], saved.Ref.Seq, uint8(saved.Space)
	r.Queue, r.Name, r.Workload = append(r.Queue[:0], saved.Queue...), saved.Name, saved.Workload
	r.SchedAt, r.Due, r.Priority, r.Count, r.Timeout = saved.SchedAt, saved.Due, saved.Priority, saved.Count, saved.Timeout
	r.Holder, r.Revision, r.After, r.Task = append(r.Holder[:0], saved.Holder...), saved.Revision, saved.After, saved.Task
	r.DoneAt, r.Result, r.Counts = saved.DoneAt, saved.Result, journal.Counts(saved.Counts)
	if r.Attempts = (journal.Attempts{}); saved.FailedAt != 0 || len(saved.History) > 0 {
		r.Attempts = attemptsOf(saved)
	}
	if r.Lease = (journal.Lease{}); saved.Lease.Token != (sched.Token{}) {
		r.Lease = leaseOf(&saved.Lease)
	}
	r.Log = r.Log[:0]
	for _, e := range saved.Log {
		r.Log = append(r.Log, journal.Event(e))
	}
	j.journal.Put(shard, r)
	r.Name, r.Workload, r.After, r.Result = nil, nil, nil, nil
	j.dirty.Store(true)
}

// Drop implements sched.Journal.
func (j *schedJournal) Drop(shard int, seq uint64) {
	j.journal.Delete(shard, seq)
	j.dirty.Store(true)
}

// Begin implements sched.Journal.
func (j *schedJournal) Begin(shard int) { j.journal.Begin(shard) }

// End implements sched.Journal.
func (j *schedJournal) End(shard int) { j.journal.End(shard) }

// flush ends a turn in which this number of acknowledgements began to wait. j may be nil.
func (j *schedJournal) flush(acknowledgements int) {
	if j != nil && !j.manual && (acknowledgements > 0 || j.dirty.Load()) {
		j.dirty.Store(false)
		j.journal.Flush(acknowledgements)
	}
}

// flushLater is flush for a turn without acknowledgements, whose changes a loss of power may undo.
// j may be nil.
func (j *schedJournal) flushLater() {
	if j != nil && !j.manual && j.dirty.Load() {
		j.dirty.Store(false)
		j.journal.FlushLater()
	}
}

// commitGroup returns the journal's group that covers the last change of a shard, and whether an
// acknowledgement of that change has to wait for it. j may be nil.
func (j *schedJournal) commitGroup(shard int) (group uint64, wait bool) {
	if j == nil {
		return 0, false
	}
	group = j.journal.Group(shard)
	return group, group > j.journal.Committed()
}

// commitGroupAll is commitGroup for the last changes of all shards and settings. j may be nil.
func (j *schedJournal) commitGroupAll() (group uint64, wait bool) {
	if j == nil {
		return 0, false
	}
	group = j.journal.SettingsGroup()
	for shard := range j.records {
		group = max(group, j.journal.Group(shard))
	}
	return group, group > j.journal.Committed()
}

// committed returns the last committed group.
func (j *schedJournal) committed() uint64 { return j.journal.Committed() }

// putSetting journals a setting. j may be nil.
func (j *schedJournal) putSetting(key string, value []byte) {
	if j != nil {
		j.journal.PutSetting(key, value)
		j.dirty.Store(true)
	}
}

// putDocument journals a new or changed document. j may be nil.
func (j *schedJournal) putDocument(d *protocol.Document) {
	if j != nil {
		j.journal.PutDocument(journalDocument(d))
		j.dirty.Store(true)
	}
}

// dropDocument journals that a document is removed. j may be nil.
func (j *schedJournal) dropDocument(d *protocol.Document) {
	if j != nil {
		j.journal.DeleteDocument(journalDocument(d))
		j.dirty.Store(true)
	}
}

func journalDocument(d *protocol.Document) *journal.Document {
	return &journal.Document{Kind: documentKinds[d.Kind], Project: d.Project, Name: d.Name, Value: d.Value}
}

// full reports whether the disk is nearly full, see --min-free. j may be nil.
func (j *schedJournal) full() bool { return j != nil && j.journal.LowSpace() }

// hasRoom reports whether the disk has room for bytes more. j may be nil.
func (j *schedJournal) hasRoom(bytes int) bool { return j == nil || j.journal.RoomFor(uint64(bytes)) }

// checkSpace measures the free space of the disk now.
func (j *schedJournal) checkSpace() { j.journal.CheckSpace() }

// stats returns the journal's counters.
func (j *schedJournal) stats() journal.Stats { return j.journal.Stats() }

// close commits the remaining changes and closes the journal.
func (j *schedJournal) close() error { return j.journal.Close() }
