package journal

import (
	"io"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// deadFile is the file that a tripped failFS returns. It accepts every write and stores nothing.
type deadFile struct{}

func (deadFile) Close() error                           { return nil }
func (deadFile) Read([]byte) (int, error)               { return 0, io.EOF }
func (deadFile) ReadAt([]byte, int64) (int, error)      { return 0, io.EOF }
func (deadFile) Write(p []byte) (int, error)            { return len(p), nil }
func (deadFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (deadFile) Preallocate(int64, int64) error         { return nil }
func (deadFile) Stat() (vfs.FileInfo, error)            { return deadFileInfo{}, nil }
func (deadFile) Sync() error                            { return nil }
func (deadFile) SyncTo(int64) (bool, error)             { return false, nil }
func (deadFile) SyncData() error                        { return nil }
func (deadFile) Prefetch(int64, int64) error            { return nil }
func (deadFile) Fd() uintptr                            { return vfs.InvalidFd }

type deadFileInfo struct{}

func (deadFileInfo) Name() string           { return "" }
func (deadFileInfo) Size() int64            { return 0 }
func (deadFileInfo) Mode() fs.FileMode      { return 0 }
func (deadFileInfo) ModTime() time.Time     { return time.Time{} }
func (deadFileInfo) IsDir() bool            { return false }
func (deadFileInfo) Sys() any               { return nil }
func (deadFileInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
