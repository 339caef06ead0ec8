package journal

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkpointLoop applies full logs to the store, one after the other, until the committer has ended
// or the journal has failed.
func (j *Journal) checkpointLoop() {
	for {
		select {
		case full, more := <-j.files.full:
			if !more {
				return
			}
			if full.name != "" {
				if err := j.checkpointFull(full); err != nil {
					j.disk.trip(fmt.Errorf("cannot apply the log %s to the store: %w", full.name, cause(err)))
					return
				}
				j.logBytes.Add(-full.batchBytes)
			}
			if full.copy != nil {
				full.copy.done <- copyForBackup(j.dir, j.db, j.disk)
			}
		case <-j.disk.down:
			return
		}
	}
}

// checkpointFull applies one full log to the store and retires the file.
func (j *Journal) checkpointFull(full fullLog) error {
	err := j.checkpoint(full.batchBytes, func(a *applier) error {
		closed, err := scanLog(j.options.FS, j.dir.log(full.name), presentFormat, func(p logPart) error {
			if !p.whole {
				return errUnread
			}
			return a.add(p.data)
		})
		if err == nil && !closed {
			err = errUnread
		}
		return err
	})
	if err := firstError(err, j.disk.failure()); err != nil {
		return err
	}
	return j.files.retire(full.name)
}

// errUnread reports a log that reads differently from what was written.
var errUnread = errors.New("the log does not read back as it was written")

// retire turns an applied log into the spare file for the next log. It removes the file when a
// spare already exists, or when a large group made the file longer than others.
func (l *logWriter) retire(name string) error {
	path := l.fs.PathJoin(l.dir, name)
	info, err := l.fs.Stat(path)
	if err != nil {
		return err
	}
	if len(l.spares) == cap(l.spares) || info.Size() > logStart+2*max(l.limit-logStart, defaultBatchSize) {
		return l.fs.Remove(path)
	}
	spare := strings.TrimSuffix(name, logSuffix) + spareSuffix
	if err := l.fs.Rename(path, l.fs.PathJoin(l.dir, spare)); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil { // a half-cleared log would look damaged
		return err
	}
	if err := clearHeads(l.fs, l.fs.PathJoin(l.dir, spare), info.Size()); err != nil {
		return err
	}
	l.spares <- spare // only the checkpointer sends
	return nil
}

// clearHeads writes zeros over the log's head and over the first chunk head of each block. A reader
// can then tell bytes written later from old ones, and a damaged end is located to within a block.
func clearHeads(f vfs.FS, name string, size int64) error {
	file, err := f.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	zeros := make([]byte, logStart+chunkHead)
	_, err = file.WriteAt(zeros[:min(size, int64(len(zeros)))], 0)
	for at := int64(logBlock); at < size && err == nil; at += logBlock {
		_, err = file.WriteAt(zeros[:min(chunkHead, size-at)], at)
	}
	return firstError(err, file.Sync(), file.Close())
}

// recover applies all logs to the store and retires them. It syncs each log before applying it:
// otherwise a crash could take back a group that the store already holds. Opening the store has
// already written and synced a new manifest.
func (j *Journal) recover(s *survey) error {
	for _, l := range s.logs {
		if err := j.syncLog(l.name); err != nil {
			return err
		}
		err := j.checkpoint(0, func(a *applier) error {
			return s.eachGroup(l, func(p logPart) error { return a.add(p.data) })
		})
		if err != nil {
			return fmt.Errorf("cannot apply the log %s to the store: %w", l.name, cause(err))
		}
	}
	for _, name := range slices.Concat(s.redundant, s.spares) {
		if err := j.disk.Remove(j.dir.log(name)); err != nil {
			return err
		}
	}
	for i := len(s.logs) - 1; i >= 0; i-- {
		if err := j.files.retire(s.logs[i].name); err != nil {
			return err
		}
	}
	if err := j.files.syncDir(); err != nil {
		return err
	}
	return j.disk.failure()
}

// syncLog syncs a log that an earlier process may have left unsynced.
func (j *Journal) syncLog(name string) error {
	name = j.dir.log(name)
	f, err := j.options.FS.OpenReadWrite(name, vfs.WriteCategoryUnspecified) // the plain file system: mode Never syncs here too
	if err != nil {
		return err
	}
	j.disk.change("sync", name, f.Sync)
	return firstError(f.Close(), j.disk.failure())
}

// checkpoint applies the groups that fill adds and syncs the store; see apply.
func (j *Journal) checkpoint(size int64, fill func(*applier) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			j.storePanicked = true
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return apply(j.db, j.options.BatchSize, size, fill)
}
