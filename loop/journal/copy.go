package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// storeCopy is a copy of a store as of one moment: its tables are linked, not copied. It must be closed.
type storeCopy struct {
	fs  vfs.FS
	dir string
	// Files are the names of its files.
	Files []string
}

// copyStore makes a copy called name in the data directory, in place of an earlier one. The caller sees to it that the
// store does not change meanwhile.
func copyStore(d *dataDir, name string, db *pebble.DB, disk *failFS) (*storeCopy, error) {
	c := &storeCopy{fs: disk.FS, dir: d.path(name)}
	err := c.Close()
	if err == nil {
		err = firstError(checkpointTo(db, c.dir), disk.failure())
	}
	if err == nil {
		c.Files, err = c.fs.List(c.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot copy the store: %w", errors.Join(cause(err), c.Close()))
	}
	return c, nil
}

// checkpointTo links a store's files. The store panics when a sync of the copy fails; it holds no lock then.
func checkpointTo(db *pebble.DB, dir string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return db.Checkpoint(dir)
}

// Open opens a file of the copy.
func (c *storeCopy) Open(name string) (file io.ReadCloser, size int64, err error) {
	opened, err := c.fs.Open(c.fs.PathJoin(c.dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return nil, 0, err
	}
	info, err := opened.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, opened.Close())
	}
	return opened, info.Size(), nil
}

// Close removes the copy.
func (c *storeCopy) Close() error { return c.fs.RemoveAll(c.dir) }

// copyingFS is a failFS that does not trip when a change of a copy of the store fails: such an error is returned to
// who makes the copy.
type copyingFS struct {
	*failFS
	copies [2]string // their directories
}

// of returns the file system that changes a file.
func (f copyingFS) of(name string) vfs.FS {
	for _, dir := range f.copies {
		if strings.HasPrefix(name, dir) {
			return f.FS
		}
	}
	return f.failFS
}

func (f copyingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.of(name).Create(name, c)
}

func (f copyingFS) OpenDir(name string) (vfs.File, error) { return f.of(name).OpenDir(name) }
func (f copyingFS) Link(from, to string) error            { return f.of(to).Link(from, to) }
func (f copyingFS) Rename(from, to string) error          { return f.of(to).Rename(from, to) }
func (f copyingFS) MkdirAll(name string, perm os.FileMode) error {
	return f.of(name).MkdirAll(name, perm)
}
func (f copyingFS) Remove(name string) error    { return f.of(name).Remove(name) }
func (f copyingFS) RemoveAll(name string) error { return f.of(name).RemoveAll(name) }

// copyRequest asks for a copy of the store with every change that was appended before.
type copyRequest struct {
	done chan copied // has room for the answer
}

// copied is the answer to a copyRequest.
type copied struct {
	files *storeCopy
	meta  meta // of the last group in the copy
	err   error
}

// endLogForCopy ends the log when a copy of the store is asked for: the checkpointer makes it when the store has that
// log and no later one. Only the committer calls it. The request waits while a full log does, so that the committer
// waits for no more than one log.
func (j *Journal) endLogForCopy() {
	if j.files == nil || len(j.copies) == 0 || len(j.files.full) > 0 {
		return
	}
	request := <-j.copies
	if err := j.files.cut(j.disk.down); err != nil {
		j.disk.trip(err)
		return
	}
	j.files.pass(fullLog{copy: request}, j.disk.down)
}

// copyForBackup copies the store of a directory, which does not change meanwhile.
func copyForBackup(d *dataDir, db *pebble.DB, disk *failFS) (c copied) {
	if c.meta, c.err = readMeta(db); c.err == nil {
		c.files, c.err = copyStore(d, backupName, db, disk)
	}
	return c
}

// askEvery is the time between two attempts to wake the committer for a copy, which it makes when no full log waits.
const askEvery = 20 * time.Millisecond

// errEnded is the error of a copy that the end of the journal prevents.
var errEnded = errors.New("the server stops")

// copyNow returns a copy of the store that has every change that was appended before. There is one call at a time.
func (j *Journal) copyNow() copied {
	if r := j.options.Replica; r != nil {
		if err := j.options.Replicator.Store(); err != nil {
			return copied{err: err}
		}
		r.applying.Lock()
		defer r.applying.Unlock()
		return copyForBackup(r.dir, r.db, r.disk)
	}
	request := &copyRequest{done: make(chan copied, 1)}
	select {
	case j.copies <- request:
	default: // the committer has ended, and left the one before
		return copied{err: errEnded}
	}
	retry := time.NewTicker(askEvery)
	defer retry.Stop()
	for {
		j.wakeCommitter()
		select {
		case c := <-request.done:
			return c
		case <-j.disk.down:
			return copied{err: j.disk.failure()}
		case <-j.closed:
			select {
			case c := <-request.done:
				return c
			default:
				return copied{err: errEnded}
			}
		case <-retry.C:
		}
	}
}
