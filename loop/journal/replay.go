package journal

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// progressEvery is how many jobs are replayed between two reports.
const progressEvery = 1 << 14

// Replay hands out everything that is stored: first the settings in the order of
// their keys, then the jobs in the order of their Seq. It is called once, before
// anything is appended. The bytes it hands out are valid until the function that
// was given them returns; an error from it ends the replay. Any of the functions
// may be nil; progress hears of jobs, and of the total that is expected.
//
// A store that cannot be read gives a *DamageError.
func (j *Journal) Replay(record func(*Record) error, setting func(key string, value []byte) error, progress func(done, total int64)) error {
	began := time.Now()
	if setting != nil {
		err := scan(j.db, settingKeys(), func(key, value []byte) error { return callers(setting(string(key[1:]), value)) })
		if err != nil {
			return j.damaged(err)
		}
	}
	total := j.jobs.Load()
	var done int64
	var r Record
	err := scan(j.db, jobKeys(), func(key, value []byte) error {
		if err := parseJob(key, value, &r); err != nil {
			return garbled{err}
		}
		if record != nil {
			if err := record(&r); err != nil {
				return callers(err)
			}
		}
		if done++; done%progressEvery == 0 && progress != nil {
			progress(done, max(done, total))
		}
		return nil
	})
	if err != nil {
		return j.damaged(err)
	}
	if progress != nil {
		progress(done, done)
	}
	j.jobs.Add(done - total)
	j.settings().count(done - total) // and the next group stores it
	j.figures.Lock()
	j.figures.Recovered = done
	j.figures.Recovery += time.Since(began)
	j.figures.Unlock()
	return nil
}

// callerError is what a caller's function returned: no damage.
type callerError struct{ error }

func callers(err error) error {
	if err == nil {
		return nil
	}
	return callerError{err}
}

// scan hands out what keys selects.
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
	return first(err, it.Error(), it.Close())
}

// parseJob reads a stored job.
func parseJob(key, value []byte, r *Record) error {
	seq, err := jobSeq(key)
	if err != nil {
		return err
	}
	if err := ParseRecord(value, r); err != nil {
		return err
	}
	if r.Seq != seq {
		return errors.New("a job is stored under the key of another")
	}
	return nil
}
