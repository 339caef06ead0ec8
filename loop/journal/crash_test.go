package journal

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// crashed is a copy of the disk as a crash may leave it, and what was acknowledged
// just before.
type crashed struct {
	disk         *vfs.MemFS
	acknowledged uint64
	changes      int // appended by then
	percent      int
}

// Random changes, crashes at random moments, in every mode: what was acknowledged is
// there, what was acknowledged as gone is not back, and the rest is there up to some
// group. A crash keeps all, some or nothing of what was not synced; the journal goes
// on from there.
func TestCrashes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := testOptions(vfs.NewCrashableMem())
		o.Sync = rapid.SampledFrom([]Mode{Always, Always, Interval, Never}).Draw(t, "mode")
		// Also with groups of many parts, of which a log may hold the first ones and the next
		// log the others.
		o.BatchSize = rapid.SampledFrom([]int{0, 0, 2 << 10}).Draw(t, "batch")
		for range rapid.IntRange(1, 3).Draw(t, "crashes") {
			d := mustOpen(t, o)
			at := randomChanges(t, d, o.FS.(*vfs.MemFS))
			if err := d.j.Close(); err != nil {
				t.Fatalf("%v", err)
			}
			o.FS = at.disk
			next, err := openDriver(t, o)
			if err != nil {
				t.Fatalf("after a crash with %d %%: %v", at.percent, err)
			}
			acknowledged := at.acknowledged
			if o.Sync == Never && at.percent < 100 {
				acknowledged = 0 // only the death of the process is survived
			}
			if err := d.verify(next.start, acknowledged); err != nil {
				t.Fatalf("%v, with %d %%: %v", o.Sync, at.percent, err)
			}
			if err := next.j.Close(); err != nil {
				t.Fatalf("%v", err)
			}
		}
	})
}

// randomChanges makes turns of changes and, in the middle of one, a crash.
func randomChanges(t *rapid.T, d *driver, disk *vfs.MemFS) crashed {
	alive := []uint64{}
	for seq := range d.start.jobs {
		alive = append(alive, seq)
	}
	sizes := rapid.SampledFrom([]int{10, 600, 5000, 40000})
	turns := rapid.IntRange(1, 30).Draw(t, "turns")
	crash := rapid.IntRange(0, turns-1).Draw(t, "crash")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
	var c crashed
	for turn := range turns {
		for range r.IntN(20) {
			alive = append(alive, d.create(r.IntN(sizes.Draw(t, "size"))))
		}
		for range r.IntN(12) {
			if len(alive) == 0 {
				break
			}
			i := r.IntN(len(alive))
			if r.IntN(3) == 0 {
				d.change(alive[i], int64(turn))
				continue
			}
			d.remove(alive[i])
			alive = append(alive[:i], alive[i+1:]...)
		}
		if r.IntN(4) == 0 {
			d.setting(fmt.Sprint(r.IntN(4)), strings.Repeat("v", r.IntN(4)))
		}
		d.j.Flush()
		if turn == crash {
			if r.IntN(2) == 0 {
				time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
			}
			c = crashed{percent: []int{0, 30, 70, 100}[r.IntN(4)], acknowledged: d.j.Committed(), changes: len(d.changes)}
			c.disk = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.percent, RNG: r})
			continue
		}
		if r.IntN(3) > 0 {
			d.wait()
		}
	}
	d.changes = d.changes[:c.changes]
	return c
}
