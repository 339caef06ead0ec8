package journal

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// watch checks the free space periodically and reports the journal's failure. It has its own
// goroutine because a slow disk may block the committer.
func (j *Journal) watch() {
	var tick <-chan time.Time
	if j.options.MinFree > 0 {
		ticker := time.NewTicker(j.options.SpaceCheckInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	failed := j.disk.down
	for {
		select {
		case <-tick:
			if j.CheckSpace(); j.full.Load() {
				j.wakeCommitter()
			}
		case <-j.spaceCheck:
			j.CheckSpace()
		case <-failed:
			failed = nil
			j.fail()
		case <-j.closed:
			if failed != nil && j.disk.failure() != nil {
				j.fail()
			}
			return
		}
	}
}

// requestSpaceCheck asks the watcher to check the free space.
func (j *Journal) requestSpaceCheck() {
	select {
	case j.spaceCheck <- struct{}{}:
	default:
	}
}

// cutReserve is the free space that an early checkpoint needs beside the size of the logs, for the
// store's own files. When another program has filled the disk, applying a log before it is full
// frees the space of finished jobs, so an idle server recovers.
const cutReserve = 8 << 20

// pendingBytes returns how many bytes the appended changes will still need. Changes in memory are
// written twice, to a log and to the store. Logs count beyond the number for which LeastFree
// reserves space.
func (j *Journal) pendingBytes() uint64 {
	n := j.draining.Load()
	for i := range j.shards {
		g := &j.shards[i]
		g.mu.Lock()
		n += int64(len(g.buf))
		g.mu.Unlock()
	}
	return uint64(2*n + max(0, j.logBytes.Load()-(2+maxWaitingLogs)*defaultLogSize))
}

func (j *Journal) fail() {
	err := j.disk.failure()
	if j.files == nil {
		j.options.Log.Warn("the journal has ended with this node's time as leader", "reason", err)
	} else {
		j.options.Log.Error("the journal failed: nothing is committed any more", "error", err)
	}
	j.options.Failed(err)
}

// CheckSpace reads the free space and updates Full. The watcher calls it periodically. A file
// system that does not report its free space is never full.
func (j *Journal) CheckSpace() {
	usage, err := j.options.FS.GetDiskUsage(j.options.Dir)
	if err != nil {
		if !errors.Is(err, vfs.ErrUnsupported) && !j.spaceUnknown.Swap(true) {
			j.options.Log.Warn("cannot read the free space of the data directory", "error", err)
		}
		return
	}
	j.spaceUnknown.Store(false)
	j.free.Store(usage.AvailBytes)
	need := j.minFree.Load()
	if need > 0 {
		need += j.pendingBytes()
	}
	full := usage.AvailBytes < need
	// An early checkpoint applies the deletions in the log, which frees space in the store.
	j.cutLog.Store(full && usage.AvailBytes >= uint64(j.logBytes.Load())+cutReserve)
	if j.full.Swap(full) != full {
		if full {
			j.options.Log.Warn("the disk is almost full: no new jobs are taken", "free", Size(usage.AvailBytes), "needed", Size(need))
		} else {
			j.options.Log.Info("the disk has room again: new jobs are taken", "free", Size(usage.AvailBytes))
		}
	}
}
