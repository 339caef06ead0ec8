package journal

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fault is what goes wrong in one operation of a disk.
type fault int

const (
	failEIO    fault = iota // the operation fails
	failENOSPC              // creating and writing fail for lack of space
	shortError              // half of a write succeeds, then it fails for lack of space
	shortQuiet              // half of a write succeeds, without an error
	lostSync                // a sync does nothing and reports success
	faults
)

func (f fault) String() string {
	return [...]string{"EIO", "ENOSPC", "short write with an error", "short write", "lost sync"}[f]
}

// befalls reports whether the fault can hit an operation. Removing, closing and syncing need no
// space, and only writes can be short.
func (f fault) befalls(op string) bool {
	verb, _, _ := strings.Cut(op, " ")
	switch f {
	case failENOSPC:
		return verb != "remove" && verb != "close" && verb != "sync"
	case shortError, shortQuiet:
		return verb == "write"
	case lostSync:
		return verb == "sync"
	default:
		return true
	}
}

// faultFS counts the operations that change the disk and fails one of them, or all from one on.
type faultFS struct {
	vfs.FS
	kind    fault
	at      int64 // the operation that fails; 0: none
	forever bool
	ops     atomic.Int64
	hit     atomic.Pointer[string] // the failed operation
	only    func(op string) bool   // nil: any operation
	// later is called once, laterBy operations after the fault.
	laterBy int64
	later   func()
}

// next counts an operation and reports whether it fails.
func (f *faultFS) next(op, name string) bool {
	if f.only != nil && !f.only(op+" "+name) {
		return false
	}
	n := f.ops.Add(1)
	if f.later != nil && n == f.at+f.laterBy {
		f.later()
	}
	if f.at == 0 || n < f.at || n > f.at && !f.forever {
		return false
	}
	what := fmt.Sprintf("%s %s", op, name)
	f.hit.CompareAndSwap(nil, &what)
	return true
}

// fails returns the error of an operation other than a write or a sync.
func (f *faultFS) fails(op, name string, needsRoom bool) error {
	if !f.next(op, name) {
		return nil
	}
	switch {
	case f.kind == failEIO:
		return &os.PathError{Op: op, Path: name, Err: syscall.EIO}
	case f.kind == failENOSPC && needsRoom:
		return &os.PathError{Op: op, Path: name, Err: syscall.ENOSPC}
	default:
		return nil
	}
}

func (f *faultFS) file(file vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, f: f, name: name}, nil
}

func (f *faultFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.fails("create", name, true); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, c)
	return f.file(file, err, name)
}

func (f *faultFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.fails("reuse", to, true); err != nil {
		return nil, err
	}
	file, err := f.FS.ReuseForWrite(from, to, c)
	return f.file(file, err, to)
}

func (f *faultFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := f.fails("open", name, true); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	return f.file(file, err, name)
}

func (f *faultFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	return f.file(file, err, name)
}

func (f *faultFS) Link(from, to string) error {
	if err := f.fails("link", to, true); err != nil {
		return err
	}
	return f.FS.Link(from, to)
}

func (f *faultFS) Rename(from, to string) error {
	if err := f.fails("rename", from, true); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *faultFS) Remove(name string) error {
	if err := f.fails("remove", name, false); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// RemoveAll removes every second file when it fails.
func (f *faultFS) RemoveAll(name string) error {
	if err := f.fails("remove", name, false); err != nil {
		if f.ops.Load() == f.at {
			f.removeHalf(name)
		}
		return err
	}
	return f.FS.RemoveAll(name)
}

func (f *faultFS) removeHalf(dir string) {
	names, _ := f.List(dir) // nothing is there, or name is a file
	slices.Sort(names)
	for i, name := range names {
		name = f.PathJoin(dir, name)
		f.removeHalf(name)
		if i%2 == 0 {
			_ = f.FS.Remove(name) // a directory that is not empty stays
		}
	}
	if d, err := f.FS.OpenDir(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

func (f *faultFS) MkdirAll(name string, perm os.FileMode) error {
	if err := f.fails("make", name, true); err != nil {
		return err
	}
	return f.FS.MkdirAll(name, perm)
}

func (f *faultFS) Lock(name string) (io.Closer, error) {
	if err := f.fails("lock", name, true); err != nil {
		return nil, err
	}
	return f.FS.Lock(name)
}

func (f *faultFS) Unwrap() vfs.FS { return f.FS }

type faultFile struct {
	vfs.File
	f    *faultFS
	name string
}

func (f *faultFile) Write(p []byte) (int, error) { return f.write(p, f.File.Write) }

func (f *faultFile) WriteAt(p []byte, at int64) (int, error) {
	return f.write(p, func(p []byte) (int, error) { return f.File.WriteAt(p, at) })
}

func (f *faultFile) write(p []byte, write func([]byte) (int, error)) (int, error) {
	// The store sometimes writes zero bytes, which cannot be cut short.
	if len(p) == 0 || !f.f.next("write", f.name) {
		return write(p)
	}
	switch f.f.kind {
	case failEIO:
		return 0, &os.PathError{Op: "write", Path: f.name, Err: syscall.EIO}
	case failENOSPC:
		return 0, &os.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	case shortError:
		n, _ := write(p[:len(p)/2])
		return n, &os.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	case shortQuiet:
		return write(p[:len(p)/2])
	default:
		return write(p)
	}
}

func (f *faultFile) sync(sync func() error) error {
	if !f.f.next("sync", f.name) {
		return sync()
	}
	switch f.f.kind {
	case failEIO, failENOSPC:
		return &os.PathError{Op: "sync", Path: f.name, Err: syscall.EIO}
	case lostSync:
		return nil
	default:
		return sync()
	}
}

func (f *faultFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *faultFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *faultFile) SyncTo(n int64) (full bool, err error) {
	err = f.sync(func() (err error) { full, err = f.File.SyncTo(n); return err })
	return full, err
}

func (f *faultFile) Close() error {
	failed := f.f.next("close", f.name) && f.f.kind == failEIO
	err := f.File.Close()
	if failed {
		err = &os.PathError{Op: "close", Path: f.name, Err: syscall.EIO}
	}
	return err
}
