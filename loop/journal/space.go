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
		ticker := time.NewTicker(j.options.LookEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	failed := j.guard.failed
	for {
		select {
		case <-tick:
			j.Look()
			j.makeRoom()
		case <-j.space:
			j.Look()
		case <-failed:
			failed = nil
			j.fail()
		case <-j.closed:
			if failed != nil && j.guard.failure() != nil {
				j.fail()
			}
			return
		}
	}
}

// makeRoom has the committer end its log before it is full, when the disk is: the ends of jobs
// in it free what the store keeps of them.
func (j *Journal) makeRoom() {
	if j.full.Load() {
		select {
		case j.cut <- struct{}{}:
		default:
		}
	}
}

func (j *Journal) fail() {
	err := j.guard.failure()
	j.options.Log.Error("the journal failed: nothing is committed any more", "error", err)
	j.options.Failed(err)
}

// Look reads the free space, as happens now and then by itself. A file system that does
// not tell is never full.
func (j *Journal) Look() {
	usage, err := j.options.FS.GetDiskUsage(j.options.Dir)
	if err != nil {
		if !errors.Is(err, vfs.ErrUnsupported) && !j.blind.Swap(true) {
			j.options.Log.Warn("cannot read the free space of the data directory", "error", err)
		}
		return
	}
	j.blind.Store(false)
	j.free.Store(usage.AvailBytes)
	full := usage.AvailBytes < j.options.MinFree
	if j.full.Swap(full) != full {
		if full {
			j.options.Log.Warn("the disk is almost full: no new jobs are taken", "free", usage.AvailBytes, "needed", j.options.MinFree)
		} else {
			j.options.Log.Info("the disk has room again: new jobs are taken", "free", usage.AvailBytes)
		}
	}
}
