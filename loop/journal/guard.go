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
type guard struct {
	vfs.FS
	broken atomic.Bool
	failed chan struct{} // closed when broken
	mu     sync.Mutex
	err    error // why; written before broken
}

func newGuard(f vfs.FS) *guard {
	return &guard{FS: f, failed: make(chan struct{})}
}

// trip breaks the guard; the first error is kept.
func (g *guard) trip(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.broken.Load() {
		g.err = err
		g.broken.Store(true)
		close(g.failed)
	}
}

// whole does something short unless the guard is broken, and keeps it from breaking
// meanwhile. It reports whether it was whole.
func (g *guard) whole(do func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken.Load() {
		return false
	}
	do()
	return true
}

// failure is why the guard broke, nil while it holds.
func (g *guard) failure() error {
	if g.broken.Load() {
		return g.err
	}
	return nil
}

// change makes one change unless the guard is broken. It reports whether the
// change was made.
func (g *guard) change(what, name string, f func() error) bool {
	if g.broken.Load() {
		return false
	}
	if err := f(); err != nil {
		g.trip(fmt.Errorf("cannot %s %s: %w", what, name, cause(err)))
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

func (g *guard) open(what, name string, f func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	if !g.change(what, name, func() (err error) { file, err = f(); return err }) {
		return void{}, nil
	}
	return &guardedFile{File: file, guard: g, name: name}, nil
}

// Create makes a file. Of a manifest it also sees to the name: the store makes the
// marker that points to a manifest before it has synced the directory, so that a
// crash could leave a marker without its manifest.
func (g *guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.open("create", name, func() (vfs.File, error) { return g.FS.Create(name, c) })
	if dir := g.PathDir(name); err == nil && strings.HasPrefix(g.PathBase(name), "MANIFEST-") {
		g.change("sync", dir, func() error { return syncDir(g.FS, dir) })
	}
	return f, err
}

func (g *guard) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return g.open("open", name, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, opts...) })
}

func (g *guard) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open("create", to, func() (vfs.File, error) { return g.FS.ReuseForWrite(from, to, c) })
}

func (g *guard) OpenDir(name string) (vfs.File, error) {
	return g.open("open", name, func() (vfs.File, error) { return g.FS.OpenDir(name) })
}

func (g *guard) Link(from, to string) error {
	g.change("link", to, func() error { return g.FS.Link(from, to) })
	return nil
}

func (g *guard) Rename(from, to string) error {
	g.change("rename", from, func() error { return g.FS.Rename(from, to) })
	return nil
}

func (g *guard) MkdirAll(name string, perm os.FileMode) error {
	g.change("make", name, func() error { return g.FS.MkdirAll(name, perm) })
	return nil
}

// Remove of what does not exist is an answer, not a failure.
func (g *guard) Remove(name string) error {
	var gone error
	g.change("remove", name, func() error {
		err := g.FS.Remove(name)
		if errors.Is(err, fs.ErrNotExist) {
			gone, err = err, nil
		}
		return err
	})
	return gone
}

func (g *guard) RemoveAll(name string) error {
	g.change("remove", name, func() error { return g.FS.RemoveAll(name) })
	return nil
}

// GetDiskUsage only paces the store's deletions; that it failed would be reported
// like a failed write.
func (g *guard) GetDiskUsage(name string) (vfs.DiskUsage, error) {
	usage, err := g.FS.GetDiskUsage(name)
	if err != nil {
		return usage, vfs.ErrUnsupported
	}
	return usage, nil
}

func (g *guard) Unwrap() vfs.FS { return g.FS }

// guardedFile is a file or a directory that the store may change.
type guardedFile struct {
	vfs.File
	guard *guard
	name  string
}

func (f *guardedFile) write(n int, write func() (int, error)) (int, error) {
	f.guard.change("write", f.name, func() error {
		wrote, err := write()
		if err == nil && wrote < n {
			err = io.ErrShortWrite
		}
		return err
	})
	return n, nil
}

func (f *guardedFile) Write(p []byte) (int, error) {
	return f.write(len(p), func() (int, error) { return f.File.Write(p) })
}

func (f *guardedFile) WriteAt(p []byte, at int64) (int, error) {
	return f.write(len(p), func() (int, error) { return f.File.WriteAt(p, at) })
}

func (f *guardedFile) sync(sync func() error) error {
	f.guard.change("sync", f.name, sync)
	return nil
}

func (f *guardedFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *guardedFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *guardedFile) SyncTo(n int64) (full bool, err error) {
	f.guard.change("sync", f.name, func() (err error) { full, err = f.File.SyncTo(n); return err })
	return full, nil
}

func (f *guardedFile) Close() error {
	if err := f.File.Close(); err != nil && f.guard.failure() == nil {
		f.guard.trip(fmt.Errorf("cannot close %s: %w", f.name, cause(err)))
	}
	return nil
}

// Preallocate is a hint.
func (f *guardedFile) Preallocate(offset, length int64) error {
	if !f.guard.broken.Load() {
		_ = f.File.Preallocate(offset, length)
	}
	return nil
}

func (f *guardedFile) Stat() (vfs.FileInfo, error) {
	var info vfs.FileInfo
	if !f.guard.change("look at", f.name, func() (err error) { info, err = f.File.Stat(); return err }) {
		return void{}.Stat()
	}
	return info, nil
}
