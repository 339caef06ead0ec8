package journal

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Open locks and checks the data directory, creates it if it is missing, and recovers the committed
// changes. The caller must call Replay next, and Close at the end.
//
// The error wraps ErrInUse when another process uses the directory, and is a *DamageError when the
// directory is damaged.
func Open(o Options) (*Journal, error) {
	began := time.Now()
	if err := o.fill(); err != nil {
		return nil, err
	}
	var j *Journal
	if o.Replica != nil {
		replicated, err := openReplicated(o)
		if err != nil {
			return nil, err
		}
		j = replicated
	} else {
		d, err := awaitLock(o.FS, o.Dir, o.Log)
		if err != nil {
			return nil, err
		}
		if j, err = openJournal(o, d); err != nil {
			return nil, errors.Join(err, d.close())
		}
		j.goroutines.checkpointer.Go(j.checkpointLoop)
	}
	j.stats.Recovery = time.Since(began)
	j.CheckSpace()
	j.goroutines.committer.Go(j.commitLoop)
	j.goroutines.watcher.Go(j.watch)
	return j, nil
}

// openJournal opens the journal of a data directory and converts a directory of an older format. It starts no
// goroutine.
func openJournal(o Options, d *dataDir) (*Journal, error) {
	if err := d.refuseNode(); err != nil {
		return nil, err
	}
	if err := d.ensureStore(); err != nil {
		return nil, fmt.Errorf("cannot prepare the data directory %q: %w", d.root, cause(err))
	}
	s, err := d.checkAndConvert(o.Log)
	if err != nil {
		return nil, err
	}
	j := newJournal(o, d)
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

// newJournal returns a journal without a store and without a log.
func newJournal(o Options, d *dataDir) *Journal {
	j := &Journal{
		options: o, dir: d,
		disk:         newFailFS(o.FS),
		shards:       make([]shardBuffer, o.Shards+1),
		drained:      make([]drained, o.Shards+1),
		spareBuffers: make([][]byte, o.Shards+1),
		stats:        newStatCounters(),
		wake:         make(chan struct{}, 1),
		closing:      make(chan struct{}),
		closed:       make(chan struct{}),
		spaceCheck:   make(chan struct{}, 1),
		copies:       make(chan *copyRequest, 1),
	}
	j.minFree.Store(o.MinFree)
	return j
}

// openStore opens the store. A panic of the store becomes an error, and so does a failure of the disk that the store
// has ignored.
func (j *Journal) openStore() (err error) {
	j.db, err = openStore(j.dir, j.disk, &j.options)
	return err
}

// openStore opens the store of a directory, see Journal.openStore.
func openStore(d *dataDir, disk *failFS, options *Options) (db *pebble.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot open the store in %q: it panicked: %v", options.Dir, p)
		}
	}()
	log := storeLog{log: options.Log, trip: disk.trip}
	o := storeOptions(copyingFS{disk, [2]string{d.path(sentName), d.path(backupName)}}, options.memTable, log, storeEvents(disk))
	o.ErrorIfNotExists = true
	db, err = openDB(d.store(), o)
	if failed := disk.failure(); failed != nil {
		err = failed
		if db != nil {
			err = errors.Join(err, closeStore(db))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the store in %q: %w", options.Dir, err)
	}
	return db, nil
}

// openLogs applies the logs to the store and prepares the next log.
func (j *Journal) openLogs(s *survey) error {
	dir := j.dir.log("")
	j.files = newLogWriter(j.disk, dir, &j.options, s.number, j.stalled)
	j.log = j.files
	for _, d := range s.dropped {
		j.stats.Dropped += uint64(d.Length)
		j.options.Log.Warn("the end of a log is left out", "file", d.File, "offset", d.Offset, "size", Size(d.Length), "why", d.What)
	}
	if err := errors.Join(j.disk.MkdirAll(dir, 0o700), syncDir(j.disk, j.dir.store())); err != nil {
		return err
	}
	if err := j.recover(s); err != nil {
		return j.damaged(err)
	}
	return nil
}

// begin reads the last group and commits an empty group that records the new epoch.
func (j *Journal) begin() error {
	last, err := readMeta(j.db)
	if err != nil {
		return j.damaged(err)
	}
	top, err := highestSeq(j.db)
	if err != nil {
		return j.damaged(err)
	}
	last.maxSeq = max(last.maxSeq, top)
	j.last, j.epoch = last, last.epoch+1
	j.records.Store(last.records)
	next := last.group + 1
	j.batch = startBatch(j.batch)
	if err := j.write(next, 0, 0, false); err != nil {
		return err
	}
	if err := j.sync(); err != nil {
		return err
	}
	j.committed.Store(next)
	j.lastDrained = next
	for i := range j.shards {
		j.shards[i].group, j.shards[i].maxSeq = next+1, last.maxSeq
	}
	return nil
}

// readMeta returns the last group's meta, or zero for a new store.
func readMeta(r pebble.Reader) (m meta, err error) {
	b, done, err := r.Get([]byte{keyMeta})
	if errors.Is(err, pebble.ErrNotFound) {
		return meta{}, nil
	}
	if err != nil {
		return meta{}, err
	}
	if m, err = parseMeta(b); err != nil {
		err = decodeError{err}
	}
	return m, firstError(err, done.Close())
}

// highestSeq returns the highest Seq in the store.
func highestSeq(r pebble.Reader) (seq uint64, err error) {
	it, err := r.NewIter(recordKeys())
	if err != nil {
		return 0, err
	}
	if it.Last() {
		seq, err = recordSeq(it.Key())
	}
	return seq, firstError(err, it.Error(), it.Close())
}

// stalled counts a group that had to wait.
func (j *Journal) stalled(why string) {
	j.stats.Lock()
	j.stats.Stalls++
	j.stats.Unlock()
	j.options.Log.Debug("the journal waits for the disk", "why", why)
}
