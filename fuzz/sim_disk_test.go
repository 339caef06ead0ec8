//go:build invariants

package fuzz

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"treadle/loop"
)

// simDisk is a disk in memory that can be stopped in the middle of a sync, that can fail, and
// that knows what a crash would leave of it.
type simDisk struct {
	vfs.FS
	mem     *vfs.MemFS
	gate    atomic.Pointer[gate] // syncs wait there
	failing atomic.Bool          // syncs fail
	full    atomic.Bool          // there is less room than the server wants for new jobs
}

// gate stops whoever comes to it.
type gate struct{ came, open chan struct{} }

func newSimDisk(mem *vfs.MemFS) *simDisk {
	d := &simDisk{mem: mem}
	d.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if g := d.gate.Load(); g != nil {
				select {
				case g.came <- struct{}{}:
				default:
				}
				<-g.open
			}
			if d.failing.Load() {
				return syscall.EIO
			}
		}
		return nil
	}))
	return d
}

// GetDiskUsage implements vfs.FS.
func (d *simDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	free := uint64(1 << 40)
	if d.full.Load() {
		free = loop.DefaultMinFree - 1
	}
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: 1 << 41}, nil
}

// hold stops syncs from now on.
func (d *simDisk) hold() *gate {
	g := &gate{make(chan struct{}, 1), make(chan struct{})}
	d.gate.Store(g)
	return g
}

// What a crash leaves of what was written and not synced.
const (
	nothing = iota
	everything
	aPart // the front of it: the last write is torn
	remains
)

// afterCrash is the disk as a crash leaves it; chance says where a write is torn. How many
// files the store has at a time is its own affair: nothing else may depend on it.
func (d *simDisk) afterCrash(keeps int, chance uint64) *vfs.MemFS {
	synced := d.mem.CrashClone(vfs.CrashCloneCfg{})
	if keeps == nothing {
		return synced
	}
	all := d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	if keeps == aPart {
		tear(synced, all, chance)
	}
	return all
}

// tear cuts the store's logs somewhere in what was not synced.
func tear(synced, all *vfs.MemFS, chance uint64) {
	const dir = "data/store/log"
	names, err := all.List(dir)
	if err != nil {
		return // a crash before the first sync
	}
	slices.Sort(names)
	for _, name := range names {
		path := all.PathJoin(dir, name)
		long, short := contents(all, path), contents(synced, path)
		same := 0
		for same < len(short) && same < len(long) && short[same] == long[same] {
			same++
		}
		if same == len(long) {
			continue
		}
		f, err := all.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			panic(err) // memory does not fail
		}
		_, _ = f.Write(bytes.Clone(long[:same+int(chance%uint64(len(long)-same))]))
		_ = f.Sync()
		_ = f.Close()
	}
}

func contents(fs vfs.FS, path string) []byte {
	f, err := fs.Open(path)
	if err != nil {
		return nil // it was never synced
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		panic(err) // memory does not fail
	}
	return b
}
