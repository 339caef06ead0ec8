//go:build invariants

package disk

import (
	"math/rand/v2"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// FaultKind is a kind of fault.
type FaultKind int

// The kinds.
const (
	IOError          FaultKind = iota // any operation fails
	NoSpace                           // an operation that needs room fails
	ShortWrite                        // a write stops in its middle with an error, for want of room
	SilentShortWrite                  // a write stops in its middle without an error: only its count shows it
	PowerLoss                         // the power fails: this operation and all later ones are lost
	ReadError                         // a read fails
	FaultKinds                        // number of kinds
)

// Fault makes one operation fail, once.
type Fault struct {
	// Kind is what goes wrong.
	Kind FaultKind
	// Logs reports whether only operations on logs count: those of the committer, or the reading.
	Logs bool
	// KeepPercent is how much a loss of power leaves of what was not synced.
	KeepPercent int

	skip    atomic.Int64 // operations before the one that fails
	hit     atomic.Bool
	remains *vfs.MemFS // files that the loss of power has left
}

// Skip sets how many operations come before the one that fails.
func (f *Fault) Skip(operations int64) *Fault {
	f.skip.Store(operations)
	return f
}

// Hit reports whether an operation has failed.
func (f *Fault) Hit() bool { return f.hit.Load() }

// InjectFault has the disk fail.
func (d *Disk) InjectFault(f *Fault) { d.fault.Store(f) }

// failsRead reports whether a read is the operation that fails.
func (f *Fault) failsRead(op errorfs.Op) bool {
	return f.Kind == ReadError && (!f.Logs || inLogs(op.Path)) && f.skip.Add(-1) == -1
}

// failsWrite reports whether an operation that changes something is the one that fails. logs reports whether the
// committer does it.
func (f *Fault) failsWrite(op errorfs.Op, logs bool) bool {
	return (!f.Logs || logs) && f.appliesTo(op.Kind) && f.skip.Add(-1) == -1
}

// appliesTo reports whether a fault can make this kind of operation fail.
func (f *Fault) appliesTo(kind errorfs.OpKind) bool {
	switch f.Kind {
	case ReadError:
		return false // it changes something
	case ShortWrite, SilentShortWrite:
		return kind == errorfs.OpFileWrite || kind == errorfs.OpFileWriteAt
	case NoSpace:
		return kind != errorfs.OpRemove && kind != errorfs.OpRemoveAll && kind != errorfs.OpFileClose
	}
	return true
}

// apply makes an operation fail.
func (d *Disk) apply(f *Fault, op errorfs.Op) error {
	defer f.hit.Store(true)
	switch f.Kind {
	case NoSpace:
		return syscall.ENOSPC
	case PowerLoss:
		f.remains = d.clone(f.KeepPercent)
		d.gone.Store(true)
		fallthrough
	case IOError, ReadError:
		return syscall.EIO
	}
	c := &cut{name: op.Path}
	if f.Kind == ShortWrite {
		c.err = syscall.ENOSPC
	}
	d.mu.Lock()
	d.cut = c
	d.mu.Unlock()
	return nil
}

// clone returns what is synced, and a percentage of the rest.
func (d *Disk) clone(keepPercent int) *vfs.MemFS {
	return d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keepPercent, RNG: rand.New(rand.NewPCG(0, 0))})
}

// AfterFault returns the disk as a fault leaves it, whichever operation it hit.
func (d *Disk) AfterFault(f *Fault) *vfs.MemFS {
	if f.Hit() && f.remains != nil {
		return f.remains
	}
	return d.clone(f.KeepPercent)
}

// Remains is what a crash leaves of an unsynced write.
type Remains int

// The parts that may be left.
const (
	Nothing Remains = iota
	Everything
	Torn         // the front of it: the last write is torn
	RemainsKinds // how many kinds of remains there are
)

// AfterCrash returns the disk as a crash leaves it; chance says where a write is torn. Nothing but the logs may depend
// on chance, because the number of the store's other files varies.
func (d *Disk) AfterCrash(keeps Remains, chance uint64) *vfs.MemFS {
	synced := d.mem.CrashClone(vfs.CrashCloneCfg{})
	if keeps == Nothing {
		return synced
	}
	all := d.clone(100)
	if keeps == Torn {
		d.tear(synced, all, chance)
	}
	return all
}

// tear cuts the part of each log that is not synced. Behind the cut are the bytes that were there before, because logs
// are reused.
func (d *Disk) tear(synced, all *vfs.MemFS, chance uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, log := range d.written {
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
