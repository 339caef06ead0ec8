package journal

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// watch looks at the free space now and then, and reports the journal's failure. It
// is a goroutine apart from the committer, which may be held up by the disk.
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

// lookSoon has the watcher look at the free space.
func (j *Journal) requestSpaceCheck() {
	select {
	case j.spaceCheck <- struct{}{}:
	default:
	}
}

// cutRoom is what must be free beside what the logs hold, for the store's own files, so that a log is brought into the
// store before it is full: where another program has taken the last byte, a server that is left alone goes on.
const cutReserve = 8 << 20

// owed is how many bytes are still to be written of what was appended: what is in memory twice,
// to a log and to the store, and what logs hold beyond those that LeastFree has room for.
func (j *Journal) pendingBytes() uint64 {
	n := j.draining.Load()
	for i := range j.shards {
		g := &j.shards[i]
		g.mu.Lock()
		n += int64(len(g.buf))
		g.mu.Unlock()
	}
	return uint64(2*n + max(0, j.logBytes.Load()-(2+maxWaitingLogs)*maxLog))
}

func (j *Journal) fail() {
	err := j.disk.failure()
	j.options.Log.Error("the journal failed: nothing is committed any more", "error", err)
	j.options.Failed(err)
}

// Look reads the free space, as happens now and then by itself. A file system that does
// not tell is never full.
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
	need := j.options.MinFree
	if need > 0 {
		need += j.pendingBytes()
	}
	full := usage.AvailBytes < need
	// The ends of jobs in the log free what the store keeps of them.
	j.cutLog.Store(full && usage.AvailBytes >= uint64(j.logBytes.Load())+cutReserve)
	if j.full.Swap(full) != full {
		if full {
			j.options.Log.Warn("the disk is almost full: no new jobs are taken", "free", Size(usage.AvailBytes), "needed", Size(need))
		} else {
			j.options.Log.Info("the disk has room again: new jobs are taken", "free", Size(usage.AvailBytes))
		}
	}
}
