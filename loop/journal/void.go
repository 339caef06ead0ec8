package journal

import (
	"io"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// void is the file that a broken guard hands out: it takes everything and keeps
// nothing.
type void struct{}

func (void) Close() error                           { return nil }
func (void) Read([]byte) (int, error)               { return 0, io.EOF }
func (void) ReadAt([]byte, int64) (int, error)      { return 0, io.EOF }
func (void) Write(p []byte) (int, error)            { return len(p), nil }
func (void) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (void) Preallocate(int64, int64) error         { return nil }
func (void) Stat() (vfs.FileInfo, error)            { return voidInfo{}, nil }
func (void) Sync() error                            { return nil }
func (void) SyncTo(int64) (bool, error)             { return false, nil }
func (void) SyncData() error                        { return nil }
func (void) Prefetch(int64, int64) error            { return nil }
func (void) Fd() uintptr                            { return vfs.InvalidFd }

type voidInfo struct{}

func (voidInfo) Name() string           { return "" }
func (voidInfo) Size() int64            { return 0 }
func (voidInfo) Mode() fs.FileMode      { return 0 }
func (voidInfo) ModTime() time.Time     { return time.Time{} }
func (voidInfo) IsDir() bool            { return false }
func (voidInfo) Sys() any               { return nil }
func (voidInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
