package journal

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestFlushLater checks that changes are in the log at once, where a kill does not lose them, and
// are synced with the next group or, without one, a moment later or on Close.
func TestFlushLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &timedSync{FS: vfs.NewMem()}
		o := testOptions(disk)
		o.LogSize = 0
		d := mustOpen(t, o)
		groups, syncs, committed := uint64(0), disk.syncs.Load(), d.j.Committed()
		written := func() uint64 { return max(d.j.Group(0), d.j.Group(1), d.j.Group(2)) }
		synced := func(when string) {
			t.Helper()
			synctest.Wait()
			syncs++
			if n, g := disk.syncs.Load(), d.j.Committed(); n != syncs || g != written() {
				t.Errorf("%s: %d syncs, want %d; %d is committed, want %d", when, n, syncs, g, written())
			}
			committed = written()
		}
		f := func(flush func(), wantSyncs int64, when string) {
			t.Helper()
			d.create(10)
			flush()
			synctest.Wait()
			groups, syncs = groups+1, syncs+wantSyncs
			if s, n := d.j.Stats(), disk.syncs.Load(); s.Groups != groups || n != syncs {
				t.Errorf("%s: %d groups, want %d; %d syncs, want %d", when, s.Groups, groups, n, syncs)
			}
			if wantSyncs > 0 {
				committed = written()
			}
			if g := d.j.Committed(); g != committed {
				t.Errorf("%s: %d is committed, want %d", when, g, committed)
			}
		}
		later, now := d.j.FlushLater, func() { d.j.Flush(1) }
		for range 3 {
			f(later, 0, "no acknowledgement waits")
			f(later, 0, "no acknowledgement waits, again")
			f(now, 1, "an acknowledgement waits")
		}
		f(func() { d.j.Flush(0) }, 1, "no acknowledgement waits, but Flush syncs")
		f(later, 0, "before the pause")
		time.Sleep(maxUnsynced)
		synced("no later group")
		f(later, 0, "after the pause")
		now()
		synced("an acknowledgement waits for another change")
		for range 10 { // no later call delays the sync of earlier changes
			d.create(10)
			later()
			time.Sleep(maxUnsynced / 2)
		}
		synctest.Wait()
		if n, g := disk.syncs.Load()-syncs, d.j.Committed(); n < 3 || g+3 < written() {
			t.Errorf("one after the other: %d syncs, %d is committed of %d", n, g, written())
		}
		d.create(10)
		later()
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
		want := d.after(math.MaxUint64)
		if got, err := reopen(disk.FS); err != nil || !got.equal(want) {
			t.Errorf("%v, %s", err, got.diff(want))
		}
	})
}

// TestUnsyncedLost checks that a loss of power may keep a later unsynced group and lose an earlier
// one. That is no damage, and everything acknowledged before them is there.
func TestUnsyncedLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfs.NewCrashableMem()
		d := mustOpen(t, testOptions(f))
		d.create(10)
		d.j.Flush(1)
		synctest.Wait()
		acknowledged := d.j.Committed()
		want := d.after(acknowledged)
		name, before := imageOf(t, f).liveLog(t)
		for range 2 {
			d.create(10)
			d.j.FlushLater()
			synctest.Wait()
		}
		m := imageOf(t, f)
		_, after := m.liveLog(t)
		first := 0
		for first < len(before) && before[first] == after[first] {
			first++
		}
		after[first]++ // in the first of the two
		if got, err := reopen(m.with(name, after).disk(t)); err != nil || !got.equal(want) {
			t.Errorf("%v, %s", err, got.diff(want))
		}
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// timedSync is a disk whose logs take the given number of nanoseconds to sync.
type timedSync struct {
	vfs.FS
	takes atomic.Int64
	syncs atomic.Int64
}

func (s *timedSync) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, c)
	if err == nil && strings.HasSuffix(name, ".log") {
		f = timedFile{f, s}
	}
	return f, err
}

type timedFile struct {
	vfs.File
	s *timedSync
}

func (f timedFile) SyncData() error {
	f.s.syncs.Add(1)
	time.Sleep(time.Duration(f.s.takes.Load()))
	return f.File.SyncData()
}

// TestCommitDelay checks that clients which send their next request shortly after a reply, each at
// its own time, share syncs. A single client waits for its own sync only, also after other clients
// have left.
func TestCommitDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, rounds, clients = 800 * time.Microsecond, 50, 8
		waiting := newWaiters()
		disk := &timedSync{FS: vfs.NewMem()}
		o := testOptions(disk)
		o.Committed, o.LogSize = waiting.committed, 0
		j, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		waiting.j.Store(j)
		disk.takes.Store(int64(takes))
		defer j.Close()
		var mu sync.Mutex
		next := uint64(0)
		request := func() {
			mu.Lock()
			next++
			j.Put(0, &Record{Seq: next, Space: 1})
			group := j.Group(0)
			mu.Unlock()
			j.Flush(1)
			waiting.wait(group)
		}
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				for range rounds {
					time.Sleep(time.Duration(100+20*i) * time.Microsecond)
					request()
				}
			})
		}
		all.Wait()
		if groups := j.Stats().Groups; groups > rounds+rounds/10 {
			t.Errorf("%d groups for %d rounds", groups, rounds)
		}
		for range 3 { // it waits in vain for the others, and once more if the last of them was counted late
			request()
		}
		for range rounds {
			began := time.Now()
			request()
			if d := time.Since(began); d != takes {
				t.Fatalf("alone it waits for %v", d)
			}
		}
	})
}
