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

// TestFlushSoon: changes that nobody waits for are committed at once; while somebody comes soon behind them who waits, with
// that one's, or a little later when nobody has come; and always when the journal is closed.
func TestFlushSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfs.NewMem()
		d := mustOpen(t, testOptions(f))
		groups := func(want uint64, when string) {
			t.Helper()
			synctest.Wait()
			if s := d.j.Stats(); s.Groups != want {
				t.Errorf("%s: %d groups, want %d", when, s.Groups, want)
			}
		}
		for i := range uint64(3) {
			d.create(10)
			d.j.FlushFor(0)
			groups(i+1, "nobody waits")
			time.Sleep(lazyWait)
		}
		d.create(10)
		d.j.Flush()
		groups(4, "somebody waits, and comes late")
		d.create(10)
		d.j.FlushFor(0)
		groups(5, "nobody came soon")
		d.create(10)
		d.j.Flush()
		groups(6, "somebody comes soon")
		for i := range uint64(3) {
			d.create(10)
			d.j.FlushFor(0)
			groups(6+i, "somebody will come soon")
			d.create(10)
			d.j.Flush()
			groups(7+i, "and has")
		}
		d.create(10)
		d.j.FlushFor(0)
		time.Sleep(lazyWait / 2)
		groups(9, "not yet")
		d.create(10)
		d.j.FlushFor(0)
		time.Sleep(lazyWait / 2)
		groups(10, "nobody has come")
		d.create(10)
		d.j.FlushFor(0)
		groups(11, "nobody came soon")
		d.create(10)
		d.j.FlushFor(0)
		want := d.after(math.MaxUint64)
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := reopen(f); err != nil || !got.equal(want) {
			t.Errorf("%v, %s", err, got.diff(want))
		}
	})
}

// timedSync is a disk whose logs take so many nanoseconds to sync.
type timedSync struct {
	vfs.FS
	takes atomic.Int64
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
	time.Sleep(time.Duration(f.s.takes.Load()))
	return f.File.SyncData()
}

// TestCompany: clients that come back a little after they were answered, each at its own time, share their syncs. One that
// is alone waits for its own sync and nothing else, also when others were there before.
func TestCompany(t *testing.T) {
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
			j.FlushFor(1)
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
		request() // in vain it waits for the others
		for range rounds {
			began := time.Now()
			request()
			if d := time.Since(began); d != takes {
				t.Fatalf("alone it waits for %v", d)
			}
		}
	})
}
