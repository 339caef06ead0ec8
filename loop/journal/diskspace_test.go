package journal

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// roomFS is a disk with a given free space.
type roomFS struct {
	vfs.FS
	free atomic.Int64 // negative: the free space is unknown
}

func (f *roomFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if free := f.free.Load(); free >= 0 {
		return vfs.DiskUsage{AvailBytes: uint64(free)}, nil
	}
	return vfs.DiskUsage{}, errors.New("it does not tell")
}

// TestFull checks that the journal is full while the free space is below the minimum, from the
// start and later, that it recovers by itself and continues to commit, and that an unknown free
// space is not full.
func TestFull(t *testing.T) {
	f := &roomFS{FS: vfs.NewMem()}
	var log lines
	o := testOptions(f)
	o.MinFree, o.SpaceCheckInterval, o.Log = 1000, time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	f.free.Store(999)
	d := mustOpen(t, o)
	defer d.j.Close()
	if !d.j.LowSpace() {
		t.Fatal("not full at the start")
	}
	d.create(10)
	if !d.wait() {
		t.Fatal("a full disk keeps from committing")
	}
	f.free.Store(1000)
	poll(t, "it does not recover", func() bool { return !d.j.LowSpace() })
	f.free.Store(0)
	poll(t, "it does not notice", d.j.LowSpace)
	if s := d.j.Stats(); !s.Full || s.Free != 0 {
		t.Fatalf("%+v", s)
	}
	f.free.Store(-1)
	poll(t, "the unknown free space is not logged", func() bool { return strings.Contains(log.String(), "cannot read the free space") })
	f.free.Store(5000) // an unknown free space was not full either
	poll(t, "it does not recover", func() bool { return !d.j.LowSpace() && strings.Count(log.String(), "has room again") == 2 })
	if s := d.j.Stats(); s.Full || s.Free != 5000 {
		t.Fatalf("%+v", s)
	}
	for text, times := range map[string]int{"almost full": 2, "has room again": 2, "cannot read the free space": 1} {
		if n := strings.Count(log.String(), text); n != times {
			t.Errorf("%q is said %d times, want %d:\n%s", text, n, times, log.String())
		}
	}
}

// TestFullAfterMuch checks that many written bytes cause a check of the free space before the
// interval is over.
func TestFullAfterMuch(t *testing.T) {
	f := &roomFS{FS: vfs.NewMem()}
	f.free.Store(1 << 40)
	o := testOptions(f)
	o.MinFree, o.SpaceCheckInterval = 1000, time.Hour
	d := mustOpen(t, o)
	defer d.j.Close()
	f.free.Store(10)
	for range 20 {
		d.create(1 << 20)
		d.wait()
	}
	poll(t, "it does not look", d.j.LowSpace)
}

// TestNeverFull checks that without a minimum the journal is never full.
func TestNeverFull(t *testing.T) {
	f := &roomFS{FS: vfs.NewMem()}
	d := mustOpen(t, testOptions(f))
	if d.j.LowSpace() {
		t.Fatal("full")
	}
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFullDiskCheckpointsEarly checks that while the disk is full a log is applied to the store
// before it is full, because the deletions in it free space, but not without space for the store's
// files.
func TestFullDiskCheckpointsEarly(t *testing.T) {
	f := &roomFS{FS: vfs.NewMem()}
	f.free.Store(1 << 40)
	o := testOptions(f)
	o.MinFree, o.SpaceCheckInterval, o.LogSize = 1<<30, time.Hour, 4<<20
	d := mustOpen(t, o)
	seq := d.create(100)
	d.wait()
	f.free.Store(cutReserve)
	d.j.CheckSpace()
	d.remove(seq)
	d.wait()
	if d.j.CheckSpace(); !d.j.LowSpace() || d.j.cutLog.Load() {
		t.Errorf("without room: full %v, to be cut %v", d.j.LowSpace(), d.j.cutLog.Load())
	}
	f.free.Store(cutReserve + 1<<20)
	d.j.CheckSpace()
	d.j.wakeCommitter()
	last := d.j.Committed()
	poll(t, "the log stays out of the store", func() bool {
		m, err := readMeta(d.j.db)
		return err == nil && m.group >= last
	})
	d.create(100)
	d.wait()
	want := d.after(math.MaxUint64)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := reopen(f); err != nil || !got.equal(want) {
		t.Fatal(err, got.diff(want))
	}
}
