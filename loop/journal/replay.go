package journal

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// progressEvery is the number of records between two reports of progress.
const progressEvery = 1 << 14

// ReplayFuncs are the functions that Replay calls. Each may be nil. Their arguments are valid until
// they return. An error from one ends the replay.
type ReplayFuncs struct {
	Setting  func(key string, value []byte) error
	Document func(*Document) error
	Record   func(*Record) error
	// Progress receives the number of records replayed and the expected total.
	Progress func(done, total int64)
}

// Replay passes on the stored data: the settings in the order of their keys, the documents in the
// order of kind and name, the records in the order of their Seq. It must be called once, before any
// change is appended.
//
// The error is a *DamageError when the store cannot be read.
func (j *Journal) Replay(to ReplayFuncs) error {
	began := time.Now()
	if to.Setting != nil {
		err := scan(j.db, settingKeys(), func(key, value []byte) error { return callbackErr(to.Setting(string(key[1:]), value)) })
		if err != nil {
			return j.damaged(err)
		}
	}
	if to.Document != nil {
		if err := eachDocument(j.db, func(d *Document) error { return callbackErr(to.Document(d)) }); err != nil {
			return j.damaged(err)
		}
	}
	total := j.records.Load()
	var done int64
	var r Record
	err := scan(j.db, recordKeys(), func(key, value []byte) error {
		if err := parseStoredRecord(key, value, &r); err != nil {
			return decodeError{err}
		}
		if to.Record != nil {
			if err := to.Record(&r); err != nil {
				return callbackErr(err)
			}
		}
		if done++; done%progressEvery == 0 && to.Progress != nil {
			to.Progress(done, max(done, total))
		}
		return nil
	})
	if err != nil {
		return j.damaged(err)
	}
	if to.Progress != nil {
		to.Progress(done, done)
	}
	j.records.Add(done - total)
	j.settingsBuffer().addJobs(done - total) // the next group stores the corrected number
	j.stats.Lock()
	j.stats.Recovered = done
	j.stats.Recovery += time.Since(began)
	j.stats.Unlock()
	return nil
}

// callbackError wraps an error of a caller's function, to tell it from damage.
type callbackError struct{ error }

func callbackErr(err error) error {
	if err == nil {
		return nil
	}
	return callbackError{err}
}

// scan calls each with the keys and values that keys selects.
func scan(r pebble.Reader, keys *pebble.IterOptions, each func(key, value []byte) error) error {
	it, err := r.NewIter(keys)
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var value []byte
		if value, err = it.ValueAndErr(); err == nil {
			err = each(it.Key(), value)
		}
	}
	return firstError(err, it.Error(), it.Close())
}

// eachDocument calls each with the documents of a store.
func eachDocument(r pebble.Reader, each func(*Document) error) error {
	return scan(r, documentKeys(), func(key, value []byte) error {
		d, err := parseDocument(key, value)
		if err != nil {
			return decodeError{err}
		}
		return each(&d)
	})
}

// parseStoredRecord decodes a stored record.
func parseStoredRecord(key, value []byte, r *Record) error {
	seq, err := recordSeq(key)
	if err != nil {
		return err
	}
	if err := parseRecord(value, r); err != nil {
		return err
	}
	if r.Seq != seq {
		return errors.New("a job is stored under the key of another job")
	}
	return nil
}
