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

// failFS is the file system that the store writes through. The first change that fails trips it.
// From then on it drops every change and reports success, so the disk stays as it was at the
// failure, as after a crash. The committer checks it after every group, so nothing more is
// acknowledged.
//
// The store does not see the failure because it cannot handle one. When a log cannot be created or
// closed, pebble panics while it unlocks a mutex that is not locked, which ends the process without
// a message. A table that cannot be written is retried forever in a tight loop. A commit whose sync
// failed returns no error.
type failFS struct {
	vfs.FS
	tripped atomic.Bool
	down    chan struct{} // closed when tripped
	mu      sync.Mutex
	err     error // the cause; written before tripped
}

func newFailFS(fs vfs.FS) *failFS {
	return &failFS{FS: fs, down: make(chan struct{})}
}

// trip makes every later change a no-op. The first error is kept.
func (f *failFS) trip(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.tripped.Load() {
		f.err = err
		f.tripped.Store(true)
		close(f.down)
	}
}

// unlessTripped runs do, which must be short, unless the file system has tripped; it cannot trip
// while do runs. It reports whether do ran.
func (f *failFS) unlessTripped(do func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tripped.Load() {
		return false
	}
	do()
	return true
}

// failure returns why the file system tripped, or nil.
func (f *failFS) failure() error {
	if f.tripped.Load() {
		return f.err
	}
	return nil
}

// change makes one change unless the file system has tripped. It reports whether the change was
// made.
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

// cause removes the operation and path from an error of the operating system, because the caller
// names the file.
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

// Create creates a file. After creating a manifest it also syncs the directory: the store writes
// the marker that points to a manifest before it syncs the directory, and a crash could leave a
// marker without its manifest.
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

// Remove removes a file. A missing file is returned as an error and does not trip the file system.
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

// GetDiskUsage returns ErrUnsupported on any error. The store only paces its deletions by it, and
// would treat another error as a failed write.
func (f *failFS) GetDiskUsage(name string) (vfs.DiskUsage, error) {
	usage, err := f.FS.GetDiskUsage(name)
	if err != nil {
		return usage, vfs.ErrUnsupported
	}
	return usage, nil
}

func (f *failFS) Unwrap() vfs.FS { return f.FS }

// failFile is a file or directory that the store may change.
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

// Preallocate is only a hint, so its error is ignored.
func (f *failFile) Preallocate(offset, length int64) error {
	if !f.disk.tripped.Load() {
		_ = f.File.Preallocate(offset, length)
	}
	return nil
}

func (f *failFile) Stat() (vfs.FileInfo, error) {
	var info vfs.FileInfo
	if !f.disk.change("read the size of", f.name, func() (err error) { info, err = f.File.Stat(); return err }) {
		return deadFile{}.Stat()
	}
	return info, nil
}
