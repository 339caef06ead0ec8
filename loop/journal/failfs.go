package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guard is the file system that the store writes through. The first change that
// fails breaks it: from then on every change is dropped while the store is told
// that it succeeded. So the disk stays as it was at that moment, as after a crash,
// whatever the store goes on to do, and the committer, which asks after every
// group, acknowledges nothing more.
//
// The store is not told because it cannot cope: a log that cannot be made or closed
// makes pebble panic on the way to unlocking a mutex that is not locked, which ends
// the process without a word; a table that cannot be written is tried again for
// ever in a tight loop; a commit that could not be synced returns no error.
type failFS struct {
	vfs.FS
	tripped atomic.Bool
	down    chan struct{} // closed when broken
	mu      sync.Mutex
	err     error // why; written before broken
}

func newFailFS(fs vfs.FS) *failFS {
	return &failFS{FS: fs, down: make(chan struct{})}
}

// trip breaks the guard; the first error is kept.
func (f *failFS) trip(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.tripped.Load() {
		f.err = err
		f.tripped.Store(true)
		close(f.down)
	}
}

// whole does something short unless the guard is broken, and keeps it from breaking
// meanwhile. It reports whether it was whole.
func (f *failFS) unlessTripped(do func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tripped.Load() {
		return false
	}
	do()
	return true
}

// failure is why the guard broke, nil while it holds.
func (f *failFS) failure() error {
	if f.tripped.Load() {
		return f.err
	}
	return nil
}

// change makes one change unless the guard is broken. It reports whether the
// change was made.
func (f *failFS) change(what, name string, do func() error) bool {
	if f.tripped.Load() {
		return false
	}
	if err := do(); err != nil {
		f.trip(fmt.Errorf("cannot %s %s: %w", what, name, cause(err)))
		return false
	}
	return true
}

// cause strips the file's name off an error of the system: who reports it says it.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}

func (f *failFS) open(what, name string, open func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	if !f.change(what, name, func() (err error) { file, err = open(); return err }) {
		return deadFile{}, nil
	}
	return &failFile{File: file, disk: f, name: name}, nil
}

// Create makes a file. Of a manifest it also sees to the name: the store makes the
// marker that points to a manifest before it has synced the directory, so that a
// crash could leave a marker without its manifest.
func (f *failFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.open("create", name, func() (vfs.File, error) { return f.FS.Create(name, c) })
	if dir := f.PathDir(name); err == nil && strings.HasPrefix(f.PathBase(name), "MANIFEST-") {
		f.change("sync", dir, func() error { return syncDir(f.FS, dir) })
	}
	return file, err
}

func (f *failFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.open("open", name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

func (f *failFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.open("create", to, func() (vfs.File, error) { return f.FS.ReuseForWrite(from, to, c) })
}

func (f *failFS) OpenDir(name string) (vfs.File, error) {
	return f.open("open", name, func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

func (f *failFS) Link(from, to string) error {
	f.change("link", to, func() error { return f.FS.Link(from, to) })
	return nil
}

func (f *failFS) Rename(from, to string) error {
	f.change("rename", from, func() error { return f.FS.Rename(from, to) })
	return nil
}

func (f *failFS) MkdirAll(name string, perm os.FileMode) error {
	f.change("make", name, func() error { return f.FS.MkdirAll(name, perm) })
	return nil
}

// Remove of what does not exist is an answer, not a failure.
func (f *failFS) Remove(name string) error {
	var gone error
	f.change("remove", name, func() error {
		err := f.FS.Remove(name)
		if errors.Is(err, fs.ErrNotExist) {
			gone, err = err, nil
		}
		return err
	})
	return gone
}

func (f *failFS) RemoveAll(name string) error {
	f.change("remove", name, func() error { return f.FS.RemoveAll(name) })
	return nil
}

// GetDiskUsage only paces the store's deletions; that it failed would be reported
// like a failed write.
func (f *failFS) GetDiskUsage(name string) (vfs.DiskUsage, error) {
	usage, err := f.FS.GetDiskUsage(name)
	if err != nil {
		return usage, vfs.ErrUnsupported
	}
	return usage, nil
}

func (f *failFS) Unwrap() vfs.FS { return f.FS }

// guardedFile is a file or a directory that the store may change.
type failFile struct {
	vfs.File
	disk *failFS
	name string
}

func (f *failFile) write(n int, write func() (int, error)) (int, error) {
	f.disk.change("write", f.name, func() error {
		wrote, err := write()
		if err == nil && wrote < n {
			err = io.ErrShortWrite
		}
		return err
	})
	return n, nil
}

func (f *failFile) Write(p []byte) (int, error) {
	return f.write(len(p), func() (int, error) { return f.File.Write(p) })
}

func (f *failFile) WriteAt(p []byte, at int64) (int, error) {
	return f.write(len(p), func() (int, error) { return f.File.WriteAt(p, at) })
}

func (f *failFile) sync(sync func() error) error {
	f.disk.change("sync", f.name, sync)
	return nil
}

func (f *failFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *failFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *failFile) SyncTo(n int64) (full bool, err error) {
	f.disk.change("sync", f.name, func() (err error) { full, err = f.File.SyncTo(n); return err })
	return full, nil
}

func (f *failFile) Close() error {
	if err := f.File.Close(); err != nil && f.disk.failure() == nil {
		f.disk.trip(fmt.Errorf("cannot close %s: %w", f.name, cause(err)))
	}
	return nil
}

// Preallocate is a hint.
func (f *failFile) Preallocate(offset, length int64) error {
	if !f.disk.tripped.Load() {
		_ = f.File.Preallocate(offset, length)
	}
	return nil
}

func (f *failFile) Stat() (vfs.FileInfo, error) {
	var info vfs.FileInfo
	if !f.disk.change("look at", f.name, func() (err error) { info, err = f.File.Stat(); return err }) {
		return deadFile{}.Stat()
	}
	return info, nil
}
