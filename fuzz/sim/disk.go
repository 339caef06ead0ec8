//go:build invariants

package sim

import (
	"io"
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"treadle/loop"
)

// logsDir is where the journal has its logs.
const logsDir = "data/store/log"

// Disk is a disk in memory for the server's journal. It can stop in the middle of a sync, operations on it can fail,
// and it knows what a crash would leave of it.
type Disk struct {
	vfs.FS
	mem   *vfs.MemFS
	gate  atomic.Pointer[gate]  // syncs of the logs wait there
	store atomic.Pointer[gate]  // and those of the store here: a checkpoint lasts
	gone  atomic.Bool           // the server is, as far as anybody knows: syncs fail
	full  atomic.Bool           // there is less room than the server wants for new jobs
	fault atomic.Pointer[fault] // what will go wrong

	mu    sync.Mutex
	logs  map[string]*diskFile // that this disk has written, by path
	cut   *cut                 // the next write
	syncs int                  // of logs: each makes one group durable
}

// gate stops the goroutines that come to it until it is opened.
type gate struct{ came, open chan struct{} }

// The kinds of faults.
const (
	ioError   = iota // whatever the operation is
	noRoom           // the same, where it needs room
	half             // there is no room in the middle of a write
	halfQuiet        // a write ends in its middle, and says so by its count alone
	powerLoss        // the power fails then, and with it all that follows
	readError        // something cannot be read
	faultKinds
)

// fault makes one operation fail, once.
type fault struct {
	kind  int
	logs  bool         // only what the committer does with logs counts, or the reading of logs
	left  atomic.Int64 // operations before that one
	hit   atomic.Bool
	after *vfs.MemFS // a loss of power, with what it leaves
	keeps int        // of what was not synced, in percent
}

// cut shortens the next write to a file.
type cut struct {
	name string
	err  error
}

func newDisk(mem *vfs.MemFS) *Disk {
	d := &Disk{mem: mem, logs: map[string]*diskFile{}}
	d.FS = errorfs.Wrap(&diskFiles{mem, d}, errorfs.InjectorFunc(d.inject))
	return d
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

// inject returns the error of an operation that is to fail; syncs wait here at the gates.
func (d *Disk) inject(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		f, logs := d.fault.Load(), path.Clean(path.Dir(op.Path)) == logsDir
		if f != nil && f.kind == readError && (logs || !f.logs) && f.left.Add(-1) == -1 {
			return d.apply(f, op)
		}
		return nil
	}
	syncs := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	logs := ofCommitter(op)
	if g := d.gate.Load(); g != nil && syncs && logs {
		select {
		case g.came <- struct{}{}:
		default:
		}
		<-g.open
	}
	if g := d.store.Load(); g != nil && syncs && path.Clean(op.Path) != logsDir && path.Clean(path.Dir(op.Path)) != logsDir {
		<-g.open
	}
	if d.gone.Load() && syncs {
		return syscall.EIO
	}
	f := d.fault.Load()
	if f == nil || f.logs && !logs || !f.hits(op.Kind) || f.left.Add(-1) != -1 {
		return nil
	}
	return d.apply(f, op)
}

// ofCommitter reports whether the committer does this operation. The checkpointer runs beside it, and reads, renames
// and clears logs. The sync of a new log's header does not count: the log is empty before it.
func ofCommitter(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpFileWriteAt, errorfs.OpFileSyncData:
		return path.Clean(path.Dir(op.Path)) == logsDir && path.Ext(op.Path) == ".log"
	}
	return false
}

// hits reports whether a fault can make this kind of operation fail.
func (f *fault) hits(kind errorfs.OpKind) bool {
	switch f.kind {
	case readError:
		return false // it changes something
	case half, halfQuiet:
		return kind == errorfs.OpFileWrite || kind == errorfs.OpFileWriteAt
	case noRoom:
		return kind != errorfs.OpRemove && kind != errorfs.OpRemoveAll && kind != errorfs.OpFileClose
	}
	return true
}

// apply makes an operation fail.
func (d *Disk) apply(f *fault, op errorfs.Op) error {
	defer f.hit.Store(true)
	switch f.kind {
	case noRoom:
		return syscall.ENOSPC
	case powerLoss:
		f.after = d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: f.keeps, RNG: rand.New(rand.NewPCG(0, 0))})
		d.gone.Store(true)
		fallthrough
	case ioError, readError:
		return syscall.EIO
	}
	c := &cut{name: op.Path}
	if f.kind == half {
		c.err = syscall.ENOSPC
	}
	d.mu.Lock()
	d.cut = c
	d.mu.Unlock()
	return nil
}

// diskFiles are the files of a Disk. A write to one can be cut short, and it knows which part of a log is not synced.
type diskFiles struct {
	*vfs.MemFS
	disk *Disk
}

type diskFile struct {
	vfs.File
	disk     *Disk
	name     string
	from, to int // what was written and is not synced lies between; under disk.mu
}

// Create implements vfs.FS.
func (s *diskFiles) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.MemFS.Create(name, c)
	return s.file(f, err, name)
}

// OpenReadWrite implements vfs.FS.
func (s *diskFiles) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.MemFS.OpenReadWrite(name, c, opts...)
	return s.file(f, err, name)
}

func (s *diskFiles) file(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	file := &diskFile{File: f, disk: s.disk, name: name}
	if path.Dir(name) == logsDir {
		s.disk.mu.Lock()
		s.disk.logs[name] = file
		s.disk.mu.Unlock()
	}
	return file, nil
}

// Write implements vfs.File.
func (f *diskFile) Write(p []byte) (n int, err error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	p, err = f.disk.cutShort(f.name, p)
	n, _ = f.File.Write(p) // memory does not fail
	return n, err
}

// WriteAt implements vfs.File.
func (f *diskFile) WriteAt(p []byte, at int64) (n int, err error) {
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
func (f *diskFile) SyncData() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.from, f.to = 0, 0
	if path.Dir(f.name) == logsDir {
		f.disk.syncs++
	}
	return f.File.SyncData()
}

// Sync implements vfs.File.
func (f *diskFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.from, f.to = 0, 0
	return f.File.Sync()
}

// GetDiskUsage implements vfs.FS.
func (d *Disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	free := uint64(1 << 40)
	if d.full.Load() {
		free = uint64(loop.Defaults().MinFree) - 1
	}
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: 1 << 41}, nil
}

// groups counts the groups of changes that are on disk.
func (d *Disk) groups() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// hold stops syncs of the logs from now on.
func (d *Disk) hold() *gate {
	g := &gate{make(chan struct{}, 1), make(chan struct{})}
	d.gate.Store(g)
	return g
}

// holdNext lets the sync that waits at a gate go on, and stops the one after it.
func (d *Disk) holdNext(g *gate) *gate {
	next := d.hold()
	close(g.open)
	return next
}

// release lets syncs go on.
func (d *Disk) release() {
	if g := d.gate.Swap(nil); g != nil {
		close(g.open)
	}
}

// abandon lets the goroutines of a server end that is no longer used: its syncs fail.
func (d *Disk) abandon() {
	d.gone.Store(true)
	d.release()
	d.finishCheckpoints()
}

// The parts of an unsynced write that a crash may leave.
const (
	nothing = iota
	everything
	aPart // the front of it: the last write is torn
	remains
)

// afterCrash returns the disk as a crash leaves it; chance says where a write is torn. Nothing but the logs may depend
// on chance, because the number of the store's other files varies.
func (d *Disk) afterCrash(keeps int, chance uint64) *vfs.MemFS {
	synced := d.mem.CrashClone(vfs.CrashCloneCfg{})
	if keeps == nothing {
		return synced
	}
	all := d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	if keeps == aPart {
		d.tear(synced, all, chance)
	}
	return all
}

// afterFault returns the disk as a fault leaves it, whichever operation it hit.
func (d *Disk) afterFault(f *fault) *vfs.MemFS {
	if f.hit.Load() && f.after != nil {
		return f.after
	}
	return d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: f.keeps, RNG: rand.New(rand.NewPCG(0, 0))})
}

// tear cuts the part of each log that is not synced. Behind the cut are the bytes that were there before, because logs
// are reused.
func (d *Disk) tear(synced, all *vfs.MemFS, chance uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, log := range d.logs {
		if log.from == log.to {
			continue
		}
		before, now := contents(synced, name), contents(all, name)
		at := log.from + int(chance%uint64(log.to-log.from))
		if now = now[:min(at, len(now))]; len(before) > len(now) {
			now = append(now, before[len(now):]...)
		}
		f, err := all.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			panic(err) // memory does not fail
		}
		_, _ = f.Write(now)
		_ = f.Sync()
		_ = f.Close()
	}
}

func contents(fs vfs.FS, path string) []byte {
	f, err := fs.Open(path)
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
