package journal

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Journal is an open data directory. The methods that append changes, and Group, Flush, Committed,
// Full and Stats, may be called from any goroutine and never wait for the disk.
type Journal struct {
	options Options
	dir     *dataDir
	disk    *failFS
	db      *pebble.DB
	log     groupLog      // of the committer
	files   *logWriter    // the same as log; nil: Options.Replicator keeps the groups
	shards  []shardBuffer // one a shard, and the last for settings
	stats   *statCounters

	epoch     uint64
	committed atomic.Uint64 // the last committed group
	records   atomic.Int64  // stored
	inFlight  atomic.Int64  // changes that are drained and not yet committed

	touched   atomic.Bool   // a change was appended since the last drain
	wake      chan struct{} // wakes the committer at the end of a turn
	waiters   atomic.Int64  // acknowledgements that wait for the next sync
	deferSync atomic.Bool   // the last turn ended with FlushLater
	// unsynced reports whether groups may be written and not committed.
	unsynced   atomic.Bool
	closing    chan struct{} // tells the committer to end
	closed     chan struct{} // tells the watcher that the committer has ended
	goroutines struct{ committer, checkpointer, watcher sync.WaitGroup }
	closeOnce  sync.Once
	closeErr   error // the result of Close

	minFree    atomic.Uint64 // Options.MinFree, or what SetMinFree said last
	full       atomic.Bool
	free       atomic.Uint64
	spaceCheck chan struct{} // asks the watcher to check the free space
	cutLog     atomic.Bool   // asks the committer to end the log before it is full
	// copies asks the committer to have the checkpointer copy the store.
	copies chan *copyRequest
	backup sync.Mutex // held by the Backup that is being taken
	// logBytes counts the bytes in logs that are not in the store. draining counts the drained
	// bytes that are not in a log.
	logBytes, draining atomic.Int64
	spaceUnknown       atomic.Bool // the free space cannot be read

	// The committer owns these fields.
	delay           commitDelay
	lastDrained     uint64    // the last drained group
	unsyncedSince   time.Time // moment at which the first unsynced group was written
	last            meta      // the last written group
	batch           []byte    // reused
	drained         []drained
	spareBuffers    [][]byte // a reused buffer for each shard
	sinceSpaceCheck int      // bytes written since the last request for a check of the free space

	storePanicked bool // written by the checkpointer: a store that panicked cannot be closed
}

// LastSeq returns the highest Seq that was committed before this opening; its job may be deleted.
// The next new job must have a higher one.
func (j *Journal) LastSeq() uint64 { return j.settingsBuffer().maxSeq } // the settings buffer takes no records: its maxSeq is that of the opening

// Put appends a new or changed record. It copies the record's bytes.
//
// All changes of one job must go to the same shard. Changes of a shard are committed in the order
// of the calls, so the caller holds the lock that orders them. Put takes one short lock of its own
// and calls nothing else.
func (j *Journal) Put(shard int, r *Record) {
	if !j.disk.tripped.Load() {
		if j.shards[shard].put(r) {
			j.requestSpaceCheck()
		}
		j.touch()
	}
}

// Delete appends the deletion of a record, under the rules of Put. Deleting an unknown record is no error.
func (j *Journal) Delete(shard int, seq uint64) {
	if !j.disk.tripped.Load() {
		j.shards[shard].remove(seq)
		j.touch()
	}
}

// Begin and End enclose changes of a shard that are committed in one group: after a crash all of them are there or
// none. The caller holds the lock that orders the shard's changes.
func (j *Journal) Begin(shard int) { j.shards[shard].joined.Lock() }

// End ends what Begin has begun.
func (j *Journal) End(shard int) { j.shards[shard].joined.Unlock() }

// PutSetting appends a setting's value. SettingsGroup covers the change.
func (j *Journal) PutSetting(key string, value []byte) {
	j.settingsBuffer().raw(opSet, settingKey(key), value)
	j.touch()
}

func (j *Journal) settingsBuffer() *shardBuffer { return &j.shards[len(j.shards)-1] }

func (j *Journal) touch() {
	if !j.touched.Load() {
		j.touched.Store(true)
	}
}

// Group returns the group that covers every change appended to the shard so far: they are durable
// when Committed reaches it. In the modes Interval and Never, which wait for nothing, it is a group
// that is already committed. After a failure it is a group that is never reached.
func (j *Journal) Group(shard int) uint64 { return j.groupOf(&j.shards[shard]) }

// SettingsGroup is Group for the settings and documents.
func (j *Journal) SettingsGroup() uint64 { return j.groupOf(j.settingsBuffer()) }

func (j *Journal) groupOf(g *shardBuffer) uint64 {
	switch {
	case j.disk.tripped.Load():
		return math.MaxUint64
	case j.options.Sync == Always:
		return g.last.Load()
	default:
		return 0
	}
}

// Flush ends a turn. acknowledgements is the number of replies of the turn that wait for Committed.
// Flush wakes the committer if there is anything to commit. A caller that appends calls Flush or
// FlushLater once, after the last change of its turn and without locks.
func (j *Journal) Flush(acknowledgements int) {
	if acknowledgements > 0 {
		j.waiters.Add(int64(acknowledgements))
	}
	j.deferSync.Store(false)
	if j.touched.Load() || j.unsynced.Load() {
		j.wakeCommitter()
	}
}

// FlushLater is Flush for changes without acknowledgements that a loss of power may undo. In mode
// Always the committer writes them to the log as soon as it is free, so a kill does not lose them,
// and syncs them with the next group or within maxUnsynced. Unacknowledged changes of other callers
// may be synced as late.
func (j *Journal) FlushLater() {
	if j.touched.Load() {
		j.deferSync.Store(true)
		j.wakeCommitter()
	}
}

func (j *Journal) wakeCommitter() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Committed returns the last committed group. All groups before it are committed too.
func (j *Journal) Committed() uint64 { return j.committed.Load() }

// LowSpace reports whether the free space is below MinFree, so that the caller must refuse new jobs. It
// becomes false again when space is free.
func (j *Journal) LowSpace() bool { return j.full.Load() }

// RoomFor reports whether MinFree would remain, at the last check, after n more bytes of jobs,
// which are written twice: to a log and to the store. On a file system that does not report its
// free space it is true.
func (j *Journal) RoomFor(n uint64) bool {
	free := j.free.Load()
	return !j.LowSpace() && (free == 0 || free >= j.minFree.Load()+2*n)
}

// SetMinFree changes Options.MinFree, which is not 0. Full follows within a moment.
func (j *Journal) SetMinFree(bytes uint64) {
	j.minFree.Store(bytes)
	j.requestSpaceCheck()
}

// Close commits the appended changes, closes the store and unlocks the directory. It returns the
// journal's failure, if any. No change may be appended during or after Close.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() {
		close(j.closing)
		j.goroutines.committer.Wait()
		err := j.log.close()
		if err == nil && j.disk.failure() == nil && j.files != nil {
			if missing := writeClosed(j.options.FS, j.dir.store(), j.last.group); missing != nil {
				j.options.Log.Warn("cannot mark the data directory as closed in order; nothing is lost", "error", missing)
			}
		}
		if j.files != nil {
			close(j.files.full)
		}
		j.goroutines.checkpointer.Wait()
		close(j.closed)
		j.goroutines.watcher.Wait()
		var unlock error
		if j.files != nil {
			err = errors.Join(err, j.closeStore())
			unlock = j.dir.close()
		}
		if j.closeErr = j.disk.failure(); j.closeErr == nil {
			j.closeErr = errors.Join(err, unlock)
		}
	})
	return j.closeErr
}

// closeStore leaves a panicked store open, because the panic may have left the store's own locks
// held.
func (j *Journal) closeStore() error {
	if j.storePanicked {
		return nil
	}
	return closeStore(j.db)
}
