package sched

import (
	"flag"
	"os"
	"testing"
)

// A failure of a rapid test prints the seed that repeats it; no file is written. The
// race detector makes these tests five times as long and sees one goroutine in them:
// under it they are run for fewer cases.
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
