package journal

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Repair builds a new store from everything readable in the data directory, replaces the damaged
// store in one step, and keeps that one unchanged under the name in the report. An undamaged store
// is not changed.
//
// Damaged data is lost. Jobs may be missing, and finished jobs may reappear, or older states of jobs, when their
// deletion or the store's manifest was damaged. No server may use the directory. A nil f is the disk.
func Repair(dir string, f vfs.FS) (Report, error) {
	d, err := lockDataDir(orDefaultFS(f), dir, false)
	if err != nil {
		return Report{}, err
	}
	r, err := d.repair()
	return r, errors.Join(err, d.close())
}

// repair builds a new store from the readable records of a damaged one, and puts it in the place of the old store,
// which it keeps. It changes nothing if there is no damage.
func (d *dataDir) repair() (Report, error) {
	if err := d.refuseNode(); err != nil {
		return Report{}, err
	}
	if err := d.needStore(d.finishSwap()); err != nil {
		return Report{}, err
	}
	r, s, err := d.check(nil)
	if err == nil && len(r.Damage) == 0 {
		err = d.count(s, &r)
	}
	if err != nil || len(r.Damage) == 0 {
		return r, err
	}
	sorted, err := openSorter(d.fs, d.path(scratchName))
	if err != nil {
		return r, fmt.Errorf("cannot create the temporary store of the repair in %q: %w", d.root, cause(err))
	}
	r.Jobs, r.Documents, r.Settings = 0, 0, 0
	if _, _, err = d.check(sorted.add); err == nil {
		err = buildStore(d.fs, d.path(newName), func(db *pebble.DB) error { return r.keep(sorted, db) })
	}
	if err = errors.Join(err, sorted.close()); err != nil {
		return r, fmt.Errorf("cannot repair %q: %w", d.root, cause(err))
	}
	r.Kept, err = d.keepDamaged()
	return r, err
}

// keep copies the sorter's contents to a new store. Of several jobs with the same name it keeps the
// last, because the deletions of the others were lost.
func (r *Report) keep(from *sorter, db *pebble.DB) error {
	jobs := func(each func(*Record) error) error {
		var job Record
		return from.each(func(key, value []byte) error {
			if key[0] != keyRecord {
				return nil
			}
			return firstError(parseRecord(value, &job), each(&job))
		})
	}
	names := newDuplicates(0)
	if err := jobs(func(r *Record) error { names.add(r); return nil }); err != nil {
		return err
	}
	older, err := names.older(jobs)
	if err != nil {
		return err
	}
	r.Duplicates = int64(len(older))
	w := storeWriter{db: db, batch: db.NewBatch()}
	err = from.each(func(key, value []byte) error {
		if seq, err := recordSeq(key); err == nil && key[0] == keyRecord && len(older) > 0 && older[0] == seq {
			older = older[1:]
			return nil
		}
		r.tally(key)
		return w.upgrade(key, value)
	})
	return errors.Join(err, w.finish(meta{group: r.Group, previous: r.Group, epoch: r.Epoch, maxSeq: r.maxSeq, records: r.Jobs, prevSynced: true}))
}

// storeWriter fills a new store in batches.
type storeWriter struct {
	db    *pebble.DB
	batch *pebble.Batch

	record Record // reused
	value  []byte // reused
}

func (w *storeWriter) set(key, value []byte) error {
	return errors.Join(w.batch.Set(key, value, nil), w.flushIfFull())
}

// upgrade stores an entry of a store of this or an older format in the present format. It skips the
// meta, which finish writes.
func (w *storeWriter) upgrade(key, value []byte) error {
	switch key[0] {
	case keyMeta:
		return nil
	case keyRecord:
		if err := parseRecord(value, &w.record); err != nil {
			return decodeError{err}
		}
		w.value = appendRecord(w.value[:0], &w.record)
		value = w.value
	case keySetting:
		if d, ok := legacyDocument(key[1:], value); ok {
			key, value = d.key(nil), d.Value
		}
	}
	return w.set(key, value)
}

// remove deletes what upgrade stored under a key.
func (w *storeWriter) remove(key []byte) error {
	if key[0] == keySetting {
		if d, ok := legacyDocument(key[1:], nil); ok {
			key = d.key(nil)
		}
	}
	return errors.Join(w.batch.Delete(key, nil), w.flushIfFull())
}

// flushIfFull commits the batch when it is full.
func (w *storeWriter) flushIfFull() error {
	if w.batch.Len() < sorterBatch {
		return nil
	}
	return w.flush()
}

func (w *storeWriter) flush() error {
	err := w.batch.Commit(pebble.NoSync)
	w.batch = w.db.NewBatch()
	return err
}

// finish writes the meta and commits the last batch.
func (w *storeWriter) finish(m meta) error {
	err := w.batch.Set([]byte{keyMeta}, appendMeta(nil, &m, nil), nil)
	return errors.Join(err, w.flush(), w.batch.Close())
}
