package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Journal is an open data directory. Its appending methods, Group, Flush,
// Committed, Full and Stats may be called from any goroutine and never wait for the
// disk.
type Journal struct {
	options Options
	home    *home
	guard   *guard
	db      *pebble.DB
	log     *logWriter
	shards  []gather // one each, and the last for settings
	figures *figures

	epoch     uint64
	committed atomic.Uint64 // the last committed group
	jobs      atomic.Int64  // stored
	writing   atomic.Int64  // changes taken and not yet committed

	touched atomic.Bool   // something was appended since the last taking
	wake    chan struct{} // tells the committer that a turn ended
	waiters atomic.Int64  // acknowledgements that wait for the next sync
	later   atomic.Bool   // the last turn ended with FlushLater
	// unsynced says that groups may be written that are not committed.
	unsynced atomic.Bool
	closing  chan struct{} // to the committer
	closed   chan struct{} // to the watcher, when the committer has ended
	workers  struct{ committer, checkpointer, watcher sync.WaitGroup }
	once     sync.Once
	ended    error // what Close found

	full  atomic.Bool
	free  atomic.Uint64
	space chan struct{} // much was written or appended since the last look at the free space
	cut   atomic.Bool   // the log is to end before it is full
	// unstored is how many bytes logs hold that are not in the store, taken how many the
	// committer has that are not in a log.
	unstored, taken atomic.Int64
	blind           atomic.Bool // the free space cannot be read

	// The committer's own.
	company   company
	gathered  uint64    // the last group that was taken
	since     time.Time // when the first group was written that is not synced
	last      meta      // the last written group
	batch     []byte    // reused
	takings   []taking
	spares    [][]byte // a buffer for each shard
	unwatched int      // bytes written since the watcher was woken

	wedged bool // the checkpointer's: the store panicked, so it cannot be closed
}

// Open locks the data directory, checks it, makes it when it is new, and brings
// back what was committed. The caller calls Replay next, and Close in the end.
//
// A directory that another process uses gives an error that wraps ErrInUse, one
// that is damaged a *DamageError.
func Open(o Options) (*Journal, error) {
	began := time.Now()
	if err := o.fill(); err != nil {
		return nil, err
	}
	h, err := awaitHome(o.FS, o.Dir, o.Log)
	if err != nil {
		return nil, err
	}
	j, err := openJournal(o, h)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	j.figures.Recovery = time.Since(began)
	j.Look()
	j.workers.committer.Go(j.commitLoop)
	j.workers.checkpointer.Go(j.checkpointLoop)
	j.workers.watcher.Go(j.watch)
	return j, nil
}

func openJournal(o Options, h *home) (*Journal, error) {
	if err := h.prepare(); err != nil {
		return nil, fmt.Errorf("cannot prepare the data directory %q: %w", h.dir, cause(err))
	}
	s, err := h.ready(o.Log)
	if err != nil {
		return nil, err
	}
	j := &Journal{
		options: o, home: h,
		guard:   newGuard(o.FS),
		shards:  make([]gather, o.Shards+1),
		takings: make([]taking, o.Shards+1),
		spares:  make([][]byte, o.Shards+1),
		figures: newFigures(),
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		closed:  make(chan struct{}),
		space:   make(chan struct{}, 1),
	}
	if err := j.openStore(); err != nil {
		return nil, err
	}
	if err = j.openLogs(s); err == nil {
		err = j.begin()
	}
	if err != nil {
		return nil, errors.Join(err, j.log.close(), j.closeStore())
	}
	return j, nil
}

// stalled counts that a group had to wait.
func (j *Journal) stalled(why string) {
	j.figures.Lock()
	j.figures.Stalls++
	j.figures.Unlock()
	j.options.Log.Debug("the journal waits for the disk", "why", why)
}

func (j *Journal) openStore() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot open the store in %q: it panicked: %v", j.options.Dir, p)
		}
	}()
	log := storeLog{log: j.options.Log, trip: j.guard.trip}
	o := storeOptions(j.guard, j.options.memTable, log, storeEvents(j.guard))
	o.ErrorIfNotExists = true
	db, err := pebble.Open(j.home.store(), o)
	if broke := j.guard.failure(); broke != nil {
		err = broke
		if db != nil {
			err = errors.Join(err, closeStore(db))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot open the store in %q: %w", j.options.Dir, err)
	}
	j.db = db
	return nil
}

// openLogs brings what the logs hold into the store and makes ready for the next log.
func (j *Journal) openLogs(s *survey) error {
	dir := j.home.log("")
	j.log = newLogWriter(j.guard, dir, &j.options, s.number, j.stalled)
	for _, d := range s.dropped {
		j.figures.Dropped += uint64(d.Length)
		j.options.Log.Warn("the end of a log is left out", "file", d.File, "offset", d.Offset, "size", Size(d.Length), "why", d.What)
	}
	if err := errors.Join(j.guard.MkdirAll(dir, 0o700), syncDir(j.guard, j.home.store())); err != nil {
		return err
	}
	if err := j.recover(s); err != nil {
		return j.damaged(err)
	}
	return nil
}

// begin reads where the journal stands and commits a group without changes that
// says who owns it from now on.
func (j *Journal) begin() error {
	last, err := readMeta(j.db)
	if err != nil {
		return j.damaged(err)
	}
	top, err := lastJob(j.db)
	if err != nil {
		return j.damaged(err)
	}
	last.top = max(last.top, top)
	j.last, j.epoch = last, last.epoch+1
	j.jobs.Store(last.jobs)
	next := last.group + 1
	j.batch = startBatch(j.batch)
	if err := j.write(next, 0, 0, false); err != nil {
		return err
	}
	if err := j.sync(); err != nil {
		return err
	}
	j.committed.Store(next)
	j.gathered = next
	for i := range j.shards {
		j.shards[i].group, j.shards[i].top = next+1, last.top
	}
	return nil
}

// readMeta reads the last group's meta, zero in a new store.
func readMeta(r pebble.Reader) (m meta, err error) {
	b, done, err := r.Get([]byte{keyMeta})
	if errors.Is(err, pebble.ErrNotFound) {
		return meta{}, nil
	}
	if err != nil {
		return meta{}, err
	}
	if m, err = parseMeta(b); err != nil {
		err = garbled{err}
	}
	return m, first(err, done.Close())
}

// lastJob is the highest Seq in the store.
func lastJob(r pebble.Reader) (seq uint64, err error) {
	it, err := r.NewIter(jobKeys())
	if err != nil {
		return 0, err
	}
	if it.Last() {
		seq, err = jobSeq(it.Key())
	}
	return seq, first(err, it.Error(), it.Close())
}

func jobKeys() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{keyJob}, UpperBound: []byte{keyJob + 1}}
}

func settingKeys() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{keySetting}, UpperBound: []byte{keySetting + 1}}
}

func documentKeys() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{keyDocument}, UpperBound: []byte{keyDocument + 1}}
}

func settingKey(key string) []byte { return append([]byte{keySetting}, key...) }

// jobKey is the key of the job with that Seq.
func jobKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{keyJob}, seq)
}

func jobSeq(key []byte) (uint64, error) {
	if len(key) != jobKeySize {
		return 0, fmt.Errorf("a job's key has %d bytes", len(key))
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}

// LastSeq is the highest Seq that was committed by former openings, of a job that
// may be gone: the next job's must be higher.
func (j *Journal) LastSeq() uint64 { return j.settings().top } // where no job raises it

// Put appends a job that is new or has changed. The record's bytes are copied.
//
// All changes of one job are appended to the same shard, and a shard's changes are
// committed in the order of the calls: the caller holds the lock under which they
// happened. Put takes one short lock below it and calls nothing.
func (j *Journal) Put(shard int, r *Record) {
	if !j.guard.broken.Load() {
		if j.shards[shard].put(r) {
			j.lookSoon()
		}
		j.touch()
	}
}

// Delete appends the end of a job, under the rules of Put. A job that does not
// exist is no error.
func (j *Journal) Delete(shard int, seq uint64) {
	if !j.guard.broken.Load() {
		j.shards[shard].remove(seq)
		j.touch()
	}
}

// PutSetting appends a setting's value; SettingsGroup covers it.
func (j *Journal) PutSetting(key string, value []byte) {
	j.settings().raw(opSet, settingKey(key), value)
	j.touch()
}

// DeleteSetting appends a setting's end; SettingsGroup covers it.
func (j *Journal) DeleteSetting(key string) {
	j.settings().raw(opDelete, settingKey(key), nil)
	j.touch()
}

func (j *Journal) settings() *gather { return &j.shards[len(j.shards)-1] }

func (j *Journal) touch() {
	if !j.touched.Load() {
		j.touched.Store(true)
	}
}

// Group is the group that covers everything appended to the shard so far: when
// Committed reaches it, all of that is durable. In the modes Interval and Never,
// which wait for nothing, it is a group that is committed already. Once the journal
// has failed, it is one that never will be.
func (j *Journal) Group(shard int) uint64 { return j.groupOf(&j.shards[shard]) }

// SettingsGroup is Group for the settings and documents.
func (j *Journal) SettingsGroup() uint64 { return j.groupOf(j.settings()) }

func (j *Journal) groupOf(g *gather) uint64 {
	switch {
	case j.guard.broken.Load():
		return math.MaxUint64
	case j.options.Sync == Always:
		return g.last.Load()
	default:
		return 0
	}
}

// Flush says that a turn has ended in which so many acknowledgements began to wait for Committed,
// and wakes the committer if it has anything to do. Whoever appends calls it or FlushLater once,
// after the last append of its turn and without locks.
func (j *Journal) Flush(acknowledgements int) {
	if acknowledgements > 0 {
		j.waiters.Add(int64(acknowledgements))
	}
	j.later.Store(false)
	if j.touched.Load() || j.unsynced.Load() {
		j.wakeCommitter()
	}
}

// FlushLater is Flush for changes that nobody waits for and that a loss of power may undo: in mode
// Always they are in the log as soon as the committer is free, where a kill finds them, and share the
// next sync, or have one within soonSynced. So may what others appended meanwhile and do not wait for.
func (j *Journal) FlushLater() {
	if j.touched.Load() {
		j.later.Store(true)
		j.wakeCommitter()
	}
}

func (j *Journal) wakeCommitter() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Committed is the last committed group. All groups before it are committed too.
func (j *Journal) Committed() uint64 { return j.committed.Load() }

// Full reports whether the free space is under MinFree, so that new jobs are to be
// refused. It recovers by itself.
func (j *Journal) Full() bool { return j.full.Load() }

// RoomFor reports whether the free space, when it was looked at last, would be MinFree still with
// n bytes of jobs more, which are written twice: to a log and to the store. A file system that
// does not tell has room.
func (j *Journal) RoomFor(n uint64) bool {
	free := j.free.Load()
	return !j.Full() && (free == 0 || free >= j.options.MinFree+2*n)
}

// Close commits what was appended, closes the store and unlocks the directory. If
// the journal failed, it returns that failure. Nothing may be appended after or
// beside it.
func (j *Journal) Close() error {
	j.once.Do(func() {
		close(j.closing)
		j.workers.committer.Wait()
		err := j.log.close()
		if err == nil && j.guard.failure() == nil {
			if missing := writeClosed(j.options.FS, j.home.store(), j.last.group); missing != nil {
				j.options.Log.Warn("cannot mark the data directory as closed in order; nothing is lost", "error", missing)
			}
		}
		close(j.log.full)
		j.workers.checkpointer.Wait()
		close(j.closed)
		j.workers.watcher.Wait()
		err = errors.Join(err, j.closeStore())
		unlock := j.home.close()
		if j.ended = j.guard.failure(); j.ended == nil {
			j.ended = errors.Join(err, unlock)
		}
	})
	return j.ended
}

// closeStore leaves a store that panicked alone: it may hold its own locks.
func (j *Journal) closeStore() error {
	if j.wedged {
		return nil
	}
	return closeStore(j.db)
}
