//go:build invariants

package fuzz

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSimulation plays seeds. One that fails is made shorter, and says how it is played again.
func TestSimulation(t *testing.T) {
	first, last := *simFrom, *simFrom+*simSeeds-1
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	keep := parseKeep(t, *simKeep, *simOps)
	steps, played := 0, 0
	for seed, began := first, time.Now(); *simFor == 0 && seed <= last || *simFor > 0 && time.Since(began) < *simFor; seed++ {
		s, at, err := playSim(seed, *simOps, keep)
		steps += *simOps
		played++
		if *simTrace {
			fmt.Print(s.trace.String())
		}
		if err != nil {
			t.Fatal(explain(seed, at, keep, err))
		}
		if testing.Verbose() && *simFor == 0 {
			fmt.Println(s.summary(seed))
		}
	}
	t.Logf("%d seeds, %d steps", played, steps)
}

// TestSimulationRepeats: a seed is the same play each time, to the last byte that any peer is
// sent.
func TestSimulationRepeats(t *testing.T) {
	for seed := range uint64(4) {
		a, _, err := playSim(seed+1000, 600, nil)
		b, _, err2 := playSim(seed+1000, 600, nil)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if x, y := a.trace.String(), b.trace.String(); x != y {
			i := 0
			for x[i] == y[i] {
				i++
			}
			t.Fatalf("seed %d, after\n%s\nonce\n%.300s\nonce\n%.300s", seed+1000, x[max(0, i-300):i], x[i:], y[i:])
		}
	}
}

// explain makes a failure as short as it goes, and tells it.
func explain(seed uint64, at int, keep []bool, err error) string {
	ops := at + 1
	if at >= *simOps {
		ops = *simOps
	}
	short := make([]bool, ops)
	for i := range short {
		short[i] = keep == nil || keep[i]
	}
	shortest, again := shrink(seed, short)
	if again == nil {
		return fmt.Sprintf("%v\nit does not happen again: something is not simulated", err)
	}
	s, _, why := playSim(seed, ops, shortest)
	trace := s.trace.String()
	return fmt.Sprintf("%v\nreplay with: make sim SEED=%d OPS=%d\nshorter:     make sim SEED=%d OPS=%d KEEP=%s\n%v\n%s",
		err, seed, ops, seed, ops, ranges(shortest), why, trace[max(0, len(trace)-6000):])
}

// shrinkFor bounds the time that a failure is made shorter.
const shrinkFor = 20 * time.Second

// shrink leaves out steps as long as something still fails, larger parts first.
func shrink(seed uint64, keep []bool) (shortest []bool, failure error) {
	_, _, failure = playSim(seed, len(keep), keep)
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
			if _, _, err := playSim(seed, len(keep), try); err != nil && kindOf(err) == kindOf(failure) {
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
