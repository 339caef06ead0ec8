package sched

import (
	"flag"
	"os"
	"testing"
)

// TestMain sets up rapid: a failing test prints the seed that repeats it and writes no file. Under
// the race detector, which makes these single-goroutine tests five times as long, it runs fewer
// cases.
func TestMain(m *testing.M) {
	flag.Parse()
	set := map[string]string{"rapid.nofailfile": "true"}
	if underRace {
		set["rapid.checks"] = "25"
	}
	flag.Visit(func(f *flag.Flag) { delete(set, f.Name) })
	for name, value := range set {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
