package journal

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	powerSeeds = flag.Int("power.seeds", 6, "seeds of TestPowerLoss")
	powerFirst = flag.Int("power.first", 1, "the first of them")
)

// powerStates is the number of disk states that a round keeps, to bound memory.
const powerStates = 150

// powerLoss is the disk after a loss of power or a kill, and the group acknowledged before.
type powerLoss struct {
	disk         image
	acknowledged uint64
	kill         bool
	when         string
	closed       bool
}

// powerTest is a journal on a powerFS, over several rounds.
type powerTest struct {
	t     *testing.T
	r     *rand.Rand
	mode  Mode
	disk  *powerFS
	base  state // on the disk at the beginning of the round
	round int
}

// TestPowerLoss makes random changes in every mode, with losses of power and kills at any disk
// operation, including those of the following starts. Acknowledged changes must be there, jobs with
// an acknowledged deletion must not, and everything else must be there up to some group. The
// journal continues from one of the states.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	var states atomic.Int64
	seeds := *powerSeeds
	if testing.Short() {
		seeds = min(seeds, 2)
	}
	for i := range seeds {
		seed := uint64(*powerFirst + i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 77))
			w := &powerTest{t: t, r: r, mode: []Mode{Always, Always, Interval, Never}[r.IntN(4)], disk: newPowerFS(), base: newState()}
			for w.round = range 3 {
				d, losses := w.play()
				next := r.IntN(len(losses))
				for k, l := range losses {
					got, disk := w.recover(d, l)
					if k == next {
						w.base, w.disk = got, powerOf(disk.crash(r, 100, true))
					}
				}
				states.Add(int64(len(losses)))
			}
		})
	}
	t.Cleanup(func() { t.Logf("%d states of the disk", states.Load()) })
}

func (w *powerTest) options(p *powerFS, r *rand.Rand, mode Mode) Options {
	return Options{
		Dir: testDir, FS: p, Shards: 3, Sync: mode, memTable: 64 << 10, Interval: time.Millisecond, SpaceCheckInterval: time.Hour,
		LogSize: []int64{1, 2 << 10, 9 << 10, 40 << 10}[r.IntN(4)], BatchSize: []int{0, 300, 2 << 10, 20 << 10}[r.IntN(4)],
	}
}

// play makes turns of changes and closes the journal. It returns states of the disk on the way; the
// last one is closed.
func (w *powerTest) play() (*driver, []powerLoss) {
	chance := rand.New(rand.NewPCG(w.r.Uint64(), uint64(w.round)))
	var losses []powerLoss
	var committed atomic.Uint64
	every := 1 + w.r.IntN(9)
	w.disk.hook = func(op string) {
		if chance.IntN(every) == 0 && len(losses) < powerStates {
			kill := chance.IntN(5) == 0
			percent := []int{0, 30, 70, 95, 100}[chance.IntN(5)]
			losses = append(losses, powerLoss{w.disk.crash(chance, percent, kill), committed.Load(), kill, fmt.Sprintf("operation %d, before %s", w.disk.ops, op), false})
		}
	}
	d := &driver{tb: w.t, news: make(chan struct{}, 1)}
	o := w.options(w.disk, w.r, w.mode)
	o.Committed = func(g uint64) { committed.Store(g); d.signal() }
	o.Failed = func(err error) { d.failure = err; d.failed.Add(1) }
	var err error
	if d.j, err = Open(o); err != nil {
		w.t.Fatalf("round %d: %v", w.round, err)
	}
	if d.start, err = readState(d.j); err != nil || !d.start.equal(w.base) {
		w.t.Fatalf("round %d: %v, %s", w.round, err, d.start.diff(w.base))
	}
	d.next = d.j.LastSeq() + 1
	w.change(d)
	if err := d.j.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.disk.hook = nil
	return d, append(losses, powerLoss{w.disk.crash(chance, 0, false), committed.Load(), false, "closed", true})
}

// change makes the turns.
func (w *powerTest) change(d *driver) {
	var alive []uint64
	for seq := range d.start.jobs {
		alive = append(alive, seq)
	}
	slices.Sort(alive)
	for turn := range 3 + w.r.IntN(12) {
		for range w.r.IntN(8) {
			alive = append(alive, d.create(w.r.IntN([]int{10, 600, 5000, 40000}[w.r.IntN(4)])))
		}
		for range min(w.r.IntN(6), len(alive)) {
			i := w.r.IntN(len(alive))
			if w.r.IntN(3) == 0 {
				d.change(alive[i], int64(turn))
				continue
			}
			d.remove(alive[i])
			alive = slices.Delete(alive, i, i+1)
		}
		if w.r.IntN(4) == 0 {
			d.setting(fmt.Sprint(w.r.IntN(4)), strings.Repeat("v", w.r.IntN(4)))
			d.document(KindProgress, "p", fmt.Sprint(w.r.IntN(4)), strings.Repeat("v", w.r.IntN(4)))
		}
		later := w.r.IntN(2) == 0
		if later {
			d.j.FlushLater()
		} else {
			d.j.Flush(1)
		}
		for later && (d.j.touched.Load() || d.j.inFlight.Load() > 0) {
			runtime.Gosched() // lets the committer write it
		}
		if w.r.IntN(5) == 0 {
			d.j.cutLog.Store(true)
		}
		if !later && w.r.IntN(3) > 0 {
			d.wait()
		}
	}
}

// recover starts from a state of the disk, after up to two interrupted starts, and checks the
// contents.
func (w *powerTest) recover(d *driver, l powerLoss) (state, *powerFS) {
	where := fmt.Sprintf("round %d, %v, %s, kill %v, %d acknowledged", w.round, w.mode, l.when, l.kill, l.acknowledged)
	m := l.disk
	for range w.r.IntN(3) {
		m = w.brokenStart(m, where)
	}
	p := powerOf(m)
	j, err := Open(w.options(p, w.r, w.mode))
	if err != nil {
		w.t.Fatalf("%s: %v", where, err)
	}
	got, err := readState(j)
	if err != nil {
		w.t.Fatalf("%s: %v", where, err)
	}
	acknowledged := l.acknowledged
	if w.mode == Never && !l.kill && !l.closed {
		acknowledged = 0 // only a kill is survived
	}
	if err := d.verify(got, acknowledged); err != nil {
		w.t.Fatalf("%s: %v", where, err)
	}
	if err := j.Close(); err != nil {
		w.t.Fatalf("%s: %v", where, err)
	}
	return got, p
}

// brokenStart starts on a disk and returns what a loss of power during the start leaves.
func (w *powerTest) brokenStart(m image, where string) image {
	p := powerOf(m)
	at, percent, kill, chance := 1+w.r.IntN(60), []int{0, 30, 70, 100}[w.r.IntN(4)], w.r.IntN(5) == 0, rand.New(rand.NewPCG(w.r.Uint64(), 1))
	left := m
	p.hook = func(string) {
		if p.ops == at {
			left = p.crash(chance, percent, kill)
		}
	}
	j, err := Open(w.options(p, w.r, []Mode{Always, Interval, Never}[w.r.IntN(3)]))
	if err != nil {
		w.t.Fatalf("%s, a start in between: %v", where, err)
	}
	p.mu.Lock()
	p.hook = nil
	p.mu.Unlock()
	if err := j.Close(); err != nil {
		w.t.Fatalf("%s, a start in between: %v", where, err)
	}
	return left
}
