//go:build invariants

package fuzz

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// player plays the steps of a seed that keep names, nil: all. What it returns is the same
// whenever it is played, to the last byte.
type player func(seed uint64, ops int, keep []bool) played

// played is what a play came to.
type played struct {
	trace, summary string
	failedAt       int // step
	failure        error
}

// TestSimulation plays seeds of the server. One that fails is made shorter, and says how it is
// played again.
func TestSimulation(t *testing.T) {
	playSeeds(t, func(seed uint64, ops int, keep []bool) played {
		s, at, err := playSim(seed, ops, keep)
		return played{s.trace.String(), s.summary(seed), at, err}
	}, *simSeeds)
}

// TestSimulationSite does so with a Disbatch site.
func TestSimulationSite(t *testing.T) {
	playSeeds(t, func(seed uint64, ops int, keep []bool) played { return playSite(t, seed, ops, keep) }, *simSeeds/3)
}

func playSeeds(t *testing.T, play player, seeds uint64) {
	first, last := *simFrom, *simFrom+seeds-1
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	keep := parseKeep(t, *simKeep, *simOps)
	steps, count := 0, 0
	for seed, began := first, time.Now(); *simFor == 0 && seed <= last || *simFor > 0 && time.Since(began) < *simFor; seed++ {
		p := play(seed, *simOps, keep)
		steps += *simOps
		count++
		if *simTrace {
			fmt.Print(p.trace)
		}
		if p.failure != nil {
			t.Fatal(explain(t, play, seed, &p, keep))
		}
		if testing.Verbose() && *simFor == 0 {
			fmt.Println(p.summary)
		}
	}
	t.Logf("%d seeds, %d steps", count, steps)
}

// TestSimulationRepeats: a seed is the same play each time, to the last byte that any peer is
// sent.
func TestSimulationRepeats(t *testing.T) {
	for seed := range uint64(4) {
		for _, play := range []player{
			func(seed uint64, ops int, keep []bool) played {
				s, at, err := playSim(seed, ops, keep)
				return played{s.trace.String(), "", at, err}
			},
			func(seed uint64, ops int, keep []bool) played { return playSite(t, seed, ops, keep) },
		} {
			a, b := play(seed+1000, 600, nil), play(seed+1000, 600, nil)
			if a.failure != nil || b.failure != nil {
				t.Fatal(a.failure, b.failure)
			}
			if x, y := a.trace, b.trace; x != y {
				i := 0
				for x[i] == y[i] {
					i++
				}
				t.Fatalf("seed %d, after\n%s\nonce\n%.300s\nonce\n%.300s", seed+1000, x[max(0, i-300):i], x[i:], y[i:])
			}
		}
	}
}

// explain makes a failure as short as it goes, and tells it.
func explain(t *testing.T, play player, seed uint64, p *played, keep []bool) string {
	ops := min(p.failedAt+1, *simOps)
	short := make([]bool, ops)
	for i := range short {
		short[i] = keep == nil || keep[i]
	}
	shortest, again := shrink(play, seed, short)
	if again == nil {
		return fmt.Sprintf("%v\nit does not happen again: something is not simulated", p.failure)
	}
	q, sim := play(seed, ops, shortest), strings.Replace(t.Name(), "TestSimulation", "make sim PLAY=", 1)
	return fmt.Sprintf("%v\nreplay with: %s SEED=%d OPS=%d\nshorter:     %s SEED=%d OPS=%d KEEP=%s\n%v\n%s",
		p.failure, sim, seed, ops, sim, seed, ops, ranges(shortest), q.failure, q.trace[max(0, len(q.trace)-6000):])
}

// shrinkFor bounds the time that a failure is made shorter.
const shrinkFor = 20 * time.Second

// shrink leaves out steps as long as something still fails, larger parts first.
func shrink(play player, seed uint64, keep []bool) (shortest []bool, failure error) {
	failure = play(seed, len(keep), keep).failure
	if failure == nil {
		return keep, nil
	}
	began := time.Now()
	for size := len(keep) / 2; size >= 1; size /= 2 {
		for from := 0; from < len(keep) && time.Since(began) < shrinkFor; from += size {
			part := keep[from:min(from+size, len(keep))]
			if !slices.Contains(part, true) {
				continue
			}
			try := slices.Clone(keep)
			clear(try[from : from+len(part)])
			if err := play(seed, len(keep), try).failure; err != nil && kindOf(err) == kindOf(failure) {
				keep, failure = try, err
			}
		}
	}
	return keep, failure
}

// kindOf is a failure without its numbers: while it is made shorter it shall not become another.
func kindOf(failure error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '-' {
			return -1
		}
		return r
	}, failure.Error())
}

// ranges writes what parseKeep reads.
func ranges(keep []bool) string {
	var parts []string
	for i := 0; i < len(keep); i++ {
		if !keep[i] {
			continue
		}
		from := i
		for i+1 < len(keep) && keep[i+1] {
			i++
		}
		if from == i {
			parts = append(parts, fmt.Sprint(i))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", from, i))
		}
	}
	return strings.Join(parts, ",")
}
