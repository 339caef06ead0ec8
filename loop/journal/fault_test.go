package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// outcome is the result of a scenario.
type outcome struct {
	opened       bool
	err          error // of Open, Replay or Close
	d            *driver
	acknowledged uint64 // the last committed group of d
}

// scenario opens a journal, makes enough changes to rotate and reuse logs and to write and compact
// tables, and closes it.
func scenario(tb testTB, f vfs.FS) outcome {
	d, err := openDriver(tb, testOptions(f))
	if err != nil {
		return outcome{err: err}
	}
	r := rand.New(rand.NewPCG(1, 2))
	alive := []uint64{}
	for turn := range 24 {
		for range 12 {
			alive = append(alive, d.create(1+r.IntN(900)))
		}
		for range 8 {
			i := r.IntN(len(alive))
			d.remove(alive[i])
			alive = append(alive[:i], alive[i+1:]...)
		}
		d.change(alive[0], int64(turn))
		d.setting(fmt.Sprint("key", turn%3), fmt.Sprint(turn))
		d.document(KindProject, fmt.Sprint("p", turn%3), "", fmt.Sprint(turn))
		if turn == 15 {
			d.create(100 << 10)
		}
		if !d.wait() {
			break
		}
	}
	acknowledged := d.j.Committed()
	err = d.j.Close()
	return outcome{opened: true, err: err, d: d, acknowledged: acknowledged}
}

// TestFaultAtEveryOperation fails every operation of the disk in every way. The failure is reported
// once, nothing is acknowledged afterwards, Close returns the cause, and everything acknowledged is
// there when the disk works again, after kill -9 and after a loss of power.
func TestFaultAtEveryOperation(t *testing.T) {
	used := image{}
	if f := vfs.NewMem(); true {
		if out := scenario(t, f); out.err != nil {
			t.Fatal(out.err)
		}
		used = takeImage(t, f, testDir)
	}
	for kind := range lostSync {
		for _, forever := range []bool{false, true} {
			if forever && kind >= shortError {
				continue // a disk on which every write is short
			}
			for name, m := range map[string]image{"new": {}, "used": used} {
				// Every operation of a new journal fails once in every way. With tables and logs at
				// the start, every second one does.
				step := int64(1)
				if name == "used" {
					step = 2
				}
				if forever {
					step *= 3
				}
				if testing.Short() {
					step *= 11
				}
				t.Run(fmt.Sprintf("%v/forever=%v/%s", kind, forever, name), func(t *testing.T) {
					t.Parallel()
					at := int64(1)
					for faultAt(t, m, kind, at, forever) {
						at += step
					}
					if at < 40 {
						t.Fatalf("only %d operations", at)
					}
				})
			}
		}
	}
}

// faultAt fails operation at. It returns false when there are fewer operations.
func faultAt(t *testing.T, m image, kind fault, at int64, forever bool) bool {
	base := m.crashable(t)
	f := &faultFS{FS: base, kind: kind, at: at, forever: forever, only: kind.befalls}
	out := scenario(t, f)
	hit := f.hit.Load()
	if hit == nil {
		if out.err != nil {
			t.Fatalf("without a fault: %v", out.err)
		}
		return false
	}
	name := fmt.Sprintf("operation %d (%s)", at, *hit)
	if !forever && out.err == nil && !strings.HasPrefix(*hit, "remove") && !strings.Contains(*hit, closedName) && !strings.HasSuffix(*hit, testDir+"/"+storeName) {
		t.Errorf("%s: no failure is reported", name)
	}
	if out.opened {
		checkFailure(t, name, out)
	}
	percent := []int{0, 50, 100}[at%3]
	after := base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(at), 3))})
	got, err := reopen(after)
	if err != nil {
		t.Fatalf("%s: cannot open afterwards with %d %% of what was not synced: %v", name, percent, err)
	}
	if out.opened {
		if err := out.d.verify(got, out.acknowledged); err != nil {
			t.Fatalf("%s, with %d %% of what was not synced: %v", name, percent, err)
		}
	}
	return true
}

// checkFailure checks that Failed was called at most once, that Close returns the same error, and
// that nothing was acknowledged after it.
func checkFailure(t *testing.T, name string, out outcome) {
	t.Helper()
	d := out.d
	n := d.failed.Load()
	switch failure := d.j.disk.failure(); {
	case n > 1:
		t.Errorf("%s: Failed was called %d times", name, n)
	case n == 1 && !errors.Is(out.err, d.failure):
		t.Errorf("%s: Failed got %v, Close returns %v", name, d.failure, out.err)
	case failure != nil && out.err == nil:
		t.Errorf("%s: Close does not return %v", name, failure)
	case failure != nil && d.j.Stats().LastError != failure.Error():
		t.Errorf("%s: the last error is %q", name, d.j.Stats().LastError)
	}
	if d.j.disk.tripped.Load() {
		d.create(10)
		d.j.Flush(1)
		if d.j.Group(1) <= d.j.Committed() || d.j.Committed() != out.acknowledged {
			t.Errorf("%s: an acknowledgement follows the failure", name)
		}
		d.changes = d.changes[:len(d.changes)-1]
	}
}

// TestLostSyncAtEveryOperation checks a disk that loses one sync and, some operations later, its
// power. Acknowledgements since the lost sync may be lost, but the rest is the state after some
// group or is reported as damage.
func TestLostSyncAtEveryOperation(t *testing.T) {
	t.Parallel()
	damaged, whole := 0, 0
	for _, laterBy := range []int64{1, 4, 20} {
		step := int64(1)
		if testing.Short() {
			step = 5
		}
		for at := int64(1); ; at += step {
			base := vfs.NewCrashableMem()
			f := &faultFS{FS: base, kind: lostSync, at: at, laterBy: laterBy, only: lostSync.befalls}
			var after *vfs.MemFS
			f.later = func() {
				after = base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(at % 2 * 50), RNG: rand.New(rand.NewPCG(uint64(at), 4))})
			}
			out := scenario(t, f)
			if f.hit.Load() == nil {
				break
			}
			name := fmt.Sprintf("sync %d (%s) and the power %d syncs later", at, *f.hit.Load(), laterBy)
			if out.err != nil {
				t.Fatalf("%s: %v", name, out.err)
			}
			if after == nil {
				continue
			}
			got, err := reopen(after)
			if err != nil {
				damaged++
				continue
			}
			whole++
			if err := out.d.verify(got, 0); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	t.Logf("%d times damage, %d times a whole state", damaged, whole)
	if whole == 0 || damaged == 0 && !testing.Short() { // a short run may miss the few syncs that matter
		t.Fatalf("%d times damage, %d times a whole state", damaged, whole)
	}
}

// TestGroupIsWhole checks that a group of many parts whose writing stops anywhere is complete or
// absent: a job that it puts and a job of the same name that it deletes never both exist.
func TestGroupIsWhole(t *testing.T) {
	t.Parallel()
	cut := 0
	for at := int64(1); ; at++ {
		base := vfs.NewCrashableMem()
		var armed atomic.Bool
		f := &faultFS{FS: base, kind: [...]fault{failEIO, shortError}[at%2], at: (at + 1) / 2, only: func(op string) bool {
			return armed.Load() && strings.HasPrefix(op, "write ") && strings.HasSuffix(op, ".log")
		}}
		o := testOptions(f)
		o.BatchSize = 1 << 10
		d := mustOpen(t, o)
		var old []uint64
		for range 6 {
			old = append(old, d.create(2<<10))
		}
		d.wait()
		before := d.j.Committed()
		for _, seq := range old {
			d.create(2 << 10)
			d.remove(seq)
		}
		armed.Store(true)
		whole := d.wait()
		acknowledged := d.j.Committed()
		_ = d.j.Close() // it repeats the failure
		for percent := range 3 {
			disk := base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent * 50, RNG: rand.New(rand.NewPCG(uint64(at), 5))})
			next := mustOpen(t, testOptions(disk))
			if err := d.verify(next.start, acknowledged); err != nil {
				t.Fatalf("write %d failed, %d %%: %v", f.at, percent*50, err)
			}
			if !whole && acknowledged == before && next.j.Stats().Dropped > 0 {
				cut++
			}
			if err := next.j.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if whole {
			break
		}
	}
	if cut < 6 {
		t.Errorf("only %d groups were cut between their parts", cut)
	}
}
