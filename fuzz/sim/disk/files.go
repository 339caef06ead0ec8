//go:build invariants

package disk

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// files are the files of a Disk. A write to one can be cut short, and it knows which part of a log is not synced.
type files struct {
	*vfs.MemFS
	disk *Disk
}

// file is one of them.
type file struct {
	vfs.File
	disk     *Disk
	name     string
	from, to int // what was written and is not synced lies between; under disk.mu
}

// cut shortens the next write to a file.
type cut struct {
	name string
	err  error
}

// ReuseForWrite implements vfs.FS. It is here because errorfs.FS injects no faults into the file that it returns, and
// vfs.MemFS deadlocks with a concurrent CrashClone.
func (d *Disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.inject(errorfs.Op{Kind: errorfs.OpReuseForWrite, Path: to}); err != nil {
		return nil, err
	}
	if err := d.mem.Rename(from, to); err != nil {
		return nil, err
	}
	return d.OpenReadWrite(to, c)
}

// Create implements vfs.FS.
func (s *files) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.MemFS.Create(name, c)
	return s.file(f, err, name)
}

// OpenReadWrite implements vfs.FS.
func (s *files) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.MemFS.OpenReadWrite(name, c, opts...)
	return s.file(f, err, name)
}

// file returns an opened file whose writes the disk can lose. It notes the files of the logs.
func (s *files) file(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	opened := &file{File: f, disk: s.disk, name: name}
	if inLogs(name) {
		s.disk.mu.Lock()
		s.disk.written[name] = opened
		s.disk.mu.Unlock()
	}
	return opened, nil
}

// Write implements vfs.File.
func (f *file) Write(p []byte) (n int, err error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	p, err = f.disk.cutShort(f.name, p)
	n, _ = f.File.Write(p) // memory does not fail
	return n, err
}

// WriteAt implements vfs.File.
func (f *file) WriteAt(p []byte, at int64) (n int, err error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	p, err = f.disk.cutShort(f.name, p)
	n, _ = f.File.WriteAt(p, at) // memory does not fail
	if f.from == f.to {
		f.from, f.to = int(at), int(at)+n
	}
	f.from, f.to = min(f.from, int(at)), max(f.to, int(at)+n)
	return n, err
}

// cutShort returns the part of p that is written. The caller holds mu.
func (d *Disk) cutShort(name string, p []byte) ([]byte, error) {
	c := d.cut
	if c == nil || c.name != name {
		return p, nil
	}
	d.cut = nil
	return p[:len(p)/2], c.err
}

// SyncData implements vfs.File.
func (f *file) SyncData() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.from, f.to = 0, 0
	if inLogs(f.name) {
		f.disk.syncs++
	}
	return f.File.SyncData()
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.from, f.to = 0, 0
	return f.File.Sync()
}

// contents returns the content of a file, nil if the file does not exist.
func contents(fs vfs.FS, name string) []byte {
	f, err := fs.Open(name)
	if err != nil {
		return nil // it was never synced, or is called otherwise now
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	if err != nil {
		panic(err) // memory does not fail
	}
	return b
}
