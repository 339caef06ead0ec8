//go:build invariants

package disk

import (
	"context"
	"log/slog"
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

// Disk is the disk of one server. Its methods may be called while the server's goroutines use it.
type Disk struct {
	vfs.FS
	mem    *vfs.MemFS
	logs   atomic.Pointer[Gate]  // gate at which syncs of the logs wait
	stores atomic.Pointer[Gate]  // gate at which syncs of the store wait, so that a checkpoint lasts
	gone   atomic.Bool           // the server has ended: its syncs fail
	full   atomic.Bool           // the free space is below what the server needs for new jobs
	fault  atomic.Pointer[Fault] // fault to inject

	mu      sync.Mutex
	written map[string]*file // logs that this disk has written, by path
	cut     *cut             // how to cut the next write short
	syncs   int              // number of syncs of logs: each makes one group durable
}

// Gate stops the goroutines that come to it until it is opened. Reached has a token when one has come.
type Gate struct{ Reached, open chan struct{} }

func newGate() *Gate { return &Gate{make(chan struct{}, 1), make(chan struct{})} }

// pass returns when the gate is open.
func (g *Gate) pass() {
	select {
	case g.Reached <- struct{}{}:
	default:
	}
	<-g.open
}

// New makes a disk with the contents of mem.
func New(mem *vfs.MemFS) *Disk {
	d := &Disk{mem: mem, written: map[string]*file{}}
	d.FS = errorfs.Wrap(&files{mem, d}, errorfs.InjectorFunc(d.inject))
	return d
}

// inject returns the error of an operation that is to fail. Syncs wait here at the gates.
func (d *Disk) inject(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		if f := d.fault.Load(); f != nil && f.failsRead(op) {
			return d.apply(f, op)
		}
		return nil
	}
	syncs := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	logs := ofCommitter(op)
	if g := d.logs.Load(); g != nil && syncs && logs {
		g.pass()
	}
	if g := d.stores.Load(); g != nil && syncs && path.Clean(op.Path) != logsDir && !inLogs(op.Path) {
		g.pass()
	}
	if d.gone.Load() && syncs {
		return syscall.EIO
	}
	if f := d.fault.Load(); f != nil && f.failsWrite(op, logs) {
		return d.apply(f, op)
	}
	return nil
}

// inLogs reports whether a file is in the directory of the logs.
func inLogs(name string) bool { return path.Clean(path.Dir(name)) == logsDir }

// ofCommitter reports whether the committer does this operation. The checkpointer runs beside it, and reads, renames
// and clears logs. The sync of a new log's header does not count: the log is empty before it.
func ofCommitter(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpFileWriteAt, errorfs.OpFileSyncData:
		return inLogs(op.Path) && path.Ext(op.Path) == ".log"
	}
	return false
}

// Fill makes the disk full, or gives it room again. A full disk has less room than the server wants for new jobs.
func (d *Disk) Fill(full bool) { d.full.Store(full) }

// GetDiskUsage implements vfs.FS.
func (d *Disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	free := uint64(1 << 40)
	if d.full.Load() {
		free = uint64(loop.Defaults().MinFree) - 1
	}
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: 1 << 41}, nil
}

// Groups counts the groups of changes that are on disk.
func (d *Disk) Groups() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// Hold stops syncs of the logs from now on.
func (d *Disk) Hold() *Gate {
	g := newGate()
	d.logs.Store(g)
	return g
}

// HoldNext lets the sync that waits at a gate continue, and stops the one after it.
func (d *Disk) HoldNext(g *Gate) *Gate {
	next := d.Hold()
	close(g.open)
	return next
}

// Release lets syncs continue.
func (d *Disk) Release() {
	if g := d.logs.Swap(nil); g != nil {
		close(g.open)
	}
}

// SlowCheckpoints makes checkpoints last until the journal waits for one, or the server ends.
func (d *Disk) SlowCheckpoints() { d.stores.CompareAndSwap(nil, newGate()) }

// FinishCheckpoints lets checkpoints continue.
func (d *Disk) FinishCheckpoints() {
	if g := d.stores.Swap(nil); g != nil {
		close(g.open)
	}
}

// Abandon lets the goroutines of a server end that is no longer used: its syncs fail.
func (d *Disk) Abandon() {
	d.gone.Store(true)
	d.Release()
	d.FinishCheckpoints()
}

// LogHandler returns a handler of the server's log, which finishes slow checkpoints when the journal waits for them.
func (d *Disk) LogHandler() slog.Handler { return checkpointWatcher{d} }

// checkpointWatcher implements LogHandler.
type checkpointWatcher struct{ disk *Disk }

// Enabled implements slog.Handler.
func (w checkpointWatcher) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (w checkpointWatcher) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "the journal waits for the disk" {
		w.disk.FinishCheckpoints()
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (w checkpointWatcher) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup implements slog.Handler.
func (w checkpointWatcher) WithGroup(string) slog.Handler { return w }
