//go:build invariants

package sim_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"treadle/fuzz/sim"
)

var (
	oneSeed   = flag.Uint64("sim.seed", 0, "the one seed to play; 0: the first -sim.seeds")
	seedCount = flag.Uint64("sim.seeds", 30, "how many seeds TestSimulation plays")
	playFor   = flag.Duration("sim.for", 0, "play seeds from -sim.from on for so long")
	firstSeed = flag.Uint64("sim.from", 1, "the first seed")
	steps     = flag.Int("sim.ops", 1000, "steps of each seed")
	keepSteps = flag.String("sim.keep", "", "play these steps alone, as in 0-7,12")
	showTrace = flag.Bool("sim.trace", false, "print all that happens")
)

// TestSimulation plays seeds of the server. A failure is made shorter, with the command to play it again.
func TestSimulation(t *testing.T) { playSeeds(t, sim.PlayServer, *seedCount) }

// TestSimulationSite plays seeds of the Disbatch site, a third as many: one takes three times as long.
func TestSimulationSite(t *testing.T) { playSeeds(t, sitePlayer(t), *seedCount/3) }

// sitePlayer plays a site in a bubble of its own.
func sitePlayer(t *testing.T) sim.Player {
	return func(seed uint64, steps int, keep []bool) (result sim.Result) {
		synctest.Test(t, func(*testing.T) { result = sim.PlaySite(seed, steps, keep) })
		return result
	}
}

func playSeeds(t *testing.T, play sim.Player, seeds uint64) {
	first, last := *firstSeed, *firstSeed+seeds-1
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	keep, err := sim.ParseSteps(*keepSteps, *steps)
	if err != nil {
		t.Fatalf("-sim.keep: %v", err)
	}
	played, count := 0, 0
	for seed, began := first, time.Now(); *playFor == 0 && seed <= last || *playFor > 0 && time.Since(began) < *playFor; seed++ {
		r := play(seed, *steps, keep)
		played += *steps
		count++
		if *showTrace {
			fmt.Print(r.Trace)
		}
		if r.Failure != nil {
			command := strings.Replace(t.Name(), "TestSimulation", "make sim PLAY=", 1)
			t.Fatal(sim.Explain(play, command, seed, *steps, &r, keep))
		}
		if testing.Verbose() && *playFor == 0 {
			fmt.Println(r.Summary)
		}
	}
	t.Logf("%d seeds, %d steps", count, played)
}

// TestSimulationRepeats: a seed is the same play each time, to the last byte that any peer is sent.
func TestSimulationRepeats(t *testing.T) {
	for seed := uint64(1000); seed < 1004; seed++ {
		for _, play := range []sim.Player{sim.PlayServer, sitePlayer(t)} {
			a, b := play(seed, 600, nil), play(seed, 600, nil)
			if a.Failure != nil || b.Failure != nil {
				t.Fatal(a.Failure, b.Failure)
			}
			if x, y := a.Trace, b.Trace; x != y {
				i := 0
				for x[i] == y[i] {
					i++
				}
				t.Fatalf("seed %d, after\n%s\nonce\n%.300s\nonce\n%.300s", seed, x[max(0, i-300):i], x[i:], y[i:])
			}
		}
	}
}
