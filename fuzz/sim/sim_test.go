//go:build invariants

package sim_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"treadle/fuzz/sim"
	"treadle/fuzz/sim/play"
	"treadle/fuzz/sim/site"
)

var (
	oneSeed   = flag.Uint64("sim.seed", 0, "the one seed to play; 0: the first -sim.seeds")
	seedCount = flag.Uint64("sim.seeds", 30, "how many seeds TestSimulation plays; with -short a third")
	playFor   = flag.Duration("sim.for", 0, "play seeds from -sim.from on for so long")
	firstSeed = flag.Uint64("sim.from", 1, "the first seed")
	steps     = flag.Int("sim.steps", 1000, "steps of each seed")
	keepSteps = flag.String("sim.keep", "", "play these steps alone, as in 0-7,12")
	shorten   = flag.Bool("sim.shorten", true, "make a failure shorter, which takes up to 20 s")
	showTrace = flag.Bool("sim.trace", false, "print all that happens")
)

// TestSimulation plays seeds of the server. A failure is made shorter, with the command to play it again.
func TestSimulation(t *testing.T) { playSeeds(t, sim.PlayServer, *seedCount) }

// TestSimulationSite plays seeds of the Disbatch site, a third as many: one takes three times as long.
func TestSimulationSite(t *testing.T) { playSeeds(t, sitePlayer(t), *seedCount/3) }

// sitePlayer plays a site in a bubble of its own.
func sitePlayer(t *testing.T) play.Player {
	return func(seed uint64, steps int, keep []bool) (result play.Result) {
		synctest.Test(t, func(*testing.T) { result = site.Play(seed, steps, keep) })
		return result
	}
}

func playSeeds(t *testing.T, player play.Player, seeds uint64) {
	if testing.Short() {
		seeds /= 3
	}
	first, last := *firstSeed, *firstSeed+seeds-1
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	keep, err := play.ParseSteps(*keepSteps, *steps)
	if err != nil {
		t.Fatalf("-sim.keep: %v", err)
	}
	played, count := 0, 0
	for seed, began := first, time.Now(); *playFor == 0 && seed <= last || *playFor > 0 && time.Since(began) < *playFor; seed++ {
		r := player(seed, *steps, keep)
		played += *steps
		count++
		if *showTrace {
			fmt.Print(r.Trace)
		}
		if r.Failure != nil && !*shorten {
			t.Fatal(r.Failure)
		}
		if r.Failure != nil {
			command := "make sim"
			if name := strings.TrimPrefix(t.Name(), "TestSimulation"); name != "" {
				command += " PLAY=" + name
			}
			t.Fatal(play.Explain(player, command, seed, *steps, &r, keep))
		}
		if testing.Verbose() && *playFor == 0 {
			fmt.Println(r.Summary)
		}
	}
	t.Logf("%d seeds, %d steps", count, played)
}

// TestDocFiles checks that the map of doc.go has every file and folder, and none that is not there.
func TestDocFiles(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, files, _ := strings.Cut(string(text), "# Files")
	files, _, _ = strings.Cut(files, "# Names")
	named := regexp.MustCompile(`\w+(\.go|/)`).FindAllString(files, -1)
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		switch name := e.Name(); {
		case e.IsDir():
			there = append(there, name+"/")
		case name != "doc.go" && !strings.HasSuffix(name, "_test.go"):
			there = append(there, name)
		}
	}
	slices.Sort(named)
	if !slices.Equal(named, there) {
		t.Errorf("doc.go has %v, there are %v", named, there)
	}
}

// TestSimulationRepeats: a seed is the same play in every process, to the last byte that any peer is sent.
func TestSimulationRepeats(t *testing.T) {
	for name, player := range map[string]play.Player{"TestSimulation": sim.PlayServer, "TestSimulationSite": sitePlayer(t)} {
		seeds := uint64(4)
		if testing.Short() {
			seeds = 1
		}
		for seed := uint64(1000); seed < 1000+seeds; seed++ {
			r := player(seed, 600, nil)
			again := exec.Command(os.Args[0], "-test.run", "^"+name+"$", "-sim.seed", fmt.Sprint(seed), "-sim.steps", "600", "-sim.trace")
			printed, err := again.CombinedOutput()
			if r.Failure != nil || err != nil {
				t.Fatalf("seed %d: %v, %v\n%s", seed, r.Failure, err, printed)
			}
			if x, y := r.Trace, string(printed); !strings.HasPrefix(y, x) {
				i := 0
				for i < len(y) && x[i] == y[i] {
					i++
				}
				t.Fatalf("seed %d, after\n%s\nhere\n%.300s\nin another process\n%.300s", seed, x[max(0, i-300):i], x[i:], y[i:])
			}
		}
	}
}
