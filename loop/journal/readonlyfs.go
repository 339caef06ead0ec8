package journal

import (
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readOnlyFS refuses every change and locks nothing. The store creates a lock file even when it is
// opened read-only, so Lock does nothing.
type readOnlyFS struct{ vfs.FS }

func (readOnlyFS) refuse(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrPermission}
}

func (v readOnlyFS) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, v.refuse("create", name)
}

func (v readOnlyFS) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, v.refuse("write", name)
}

func (v readOnlyFS) ReuseForWrite(_, name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, v.refuse("create", name)
}

func (v readOnlyFS) Link(_, name string) error                 { return v.refuse("link", name) }
func (v readOnlyFS) Rename(name, _ string) error               { return v.refuse("rename", name) }
func (v readOnlyFS) MkdirAll(name string, _ os.FileMode) error { return v.refuse("make", name) }
func (v readOnlyFS) Remove(name string) error                  { return v.refuse("remove", name) }
func (v readOnlyFS) RemoveAll(name string) error               { return v.refuse("remove", name) }
func (v readOnlyFS) Lock(string) (io.Closer, error)            { return io.NopCloser(nil), nil }
func (v readOnlyFS) Unwrap() vfs.FS                            { return v.FS }
