package journal

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkpointLoop brings full logs into the store, one after the other, until the
// committer has ended or the journal is broken.
func (j *Journal) checkpointLoop() {
	for {
		select {
		case full, more := <-j.log.full:
			if !more {
				return
			}
			if err := j.checkpointFull(full); err != nil {
				j.disk.trip(fmt.Errorf("cannot bring %s into the store: %w", full.name, cause(err)))
				return
			}
			j.logBytes.Add(-full.batchBytes)
		case <-j.disk.down:
			return
		}
	}
}

// checkpointFull brings one full log into the store and lets go of it.
func (j *Journal) checkpointFull(full fullLog) error {
	err := j.checkpoint(full.batchBytes, func(a *applier) error {
		closed, err := scanLog(j.options.FS, j.dir.log(full.name), Format, func(p logPart) error {
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
	return j.retire(full.name)
}

// errUnread says that a log is on the disk otherwise than it was written.
var errUnread = errors.New("it cannot be read back as it was written")

// retire makes a log that is in the store the next to be used again, or removes it: when one
// waits already, or when a large group has made it longer than others.
func (j *Journal) retire(name string) error {
	path := j.dir.log(name)
	info, err := j.options.FS.Stat(path)
	if err != nil {
		return err
	}
	if len(j.log.spares) == cap(j.log.spares) || info.Size() > logStart+2*max(j.options.LogSize, maxBatch) {
		return j.disk.Remove(path)
	}
	spare := strings.TrimSuffix(name, logSuffix) + spareSuffix
	if err := j.disk.Rename(path, j.dir.log(spare)); err != nil {
		return err
	}
	if err := j.log.syncDir(); err != nil { // a log that is half cleared would be damaged
		return err
	}
	if err := clearHeads(j.disk, j.dir.log(spare), info.Size()); err != nil {
		return err
	}
	j.log.spares <- spare // only the checkpointer fills it
	return nil
}

// clearHeads writes zeros where a log of that size may have its head and, in each block, its
// first chunk's. What is written there later is told from what never was, and how much the
// end of a damaged log takes is known to a block.
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

// recover brings what the logs hold into the store and lets go of them. What it reads is
// synced first: a crash must not take back what is in the store by then. The store's own
// manifest is: opening the store wrote a new one.
func (j *Journal) recover(s *survey) error {
	for _, l := range s.logs {
		if err := j.syncLog(l.name); err != nil {
			return err
		}
		err := j.checkpoint(0, func(a *applier) error {
			return s.eachGroup(l, func(p logPart) error { return a.add(p.data) })
		})
		if err != nil {
			return fmt.Errorf("cannot bring %s into the store: %w", l.name, cause(err))
		}
	}
	for _, name := range slices.Concat(s.redundant, s.spares) {
		if err := j.disk.Remove(j.dir.log(name)); err != nil {
			return err
		}
	}
	for i := len(s.logs) - 1; i >= 0; i-- {
		if err := j.retire(s.logs[i].name); err != nil {
			return err
		}
	}
	if err := j.log.syncDir(); err != nil {
		return err
	}
	return j.disk.failure()
}

// syncLog syncs a log that an earlier process may have left unsynced.
func (j *Journal) syncLog(name string) error {
	name = j.dir.log(name)
	f, err := j.options.FS.OpenReadWrite(name, vfs.WriteCategoryUnspecified) // unguarded: not even mode Never is lazy here
	if err != nil {
		return err
	}
	j.disk.change("sync", name, f.Sync)
	return firstError(f.Close(), j.disk.failure())
}

// checkpoint brings the groups that fill adds into the store and syncs it, see apply.
func (j *Journal) checkpoint(size int64, fill func(*applier) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			j.storePanicked = true
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return apply(j.db, j.options.BatchSize, size, fill)
}
