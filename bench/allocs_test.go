package main

import (
	"os/exec"
	"strings"
	"testing"
)

// allocationTables are two tables of benchstat's: of a benchmark that grew, two that did not, and one that is new.
const allocationTables = `goos: linux
pkg: treadle/loop
,baseline.txt,,new.txt,,,
,allocs/op,CI,allocs/op,CI,vs base,P
Mailbox,0,0%,1,0%,?,p=0.002 n=6
geomean,,,,,?,

pkg: treadle/sched
,baseline.txt,,new.txt,,,
,allocs/op,CI,allocs/op,CI,vs base,P
Extend,2,0%,2,0%,~,p=1.000 n=6
Stage/submit,3,0%,1,0%,-66.67%,p=0.002 n=6
Stage/new,,,7,0%,,
geomean,,,,,+0.00%,
`

func TestJudgeAllocations(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		awk := exec.Command("awk", "-f", "allocs.awk")
		awk.Stdin = strings.NewReader(in)
		got, err := awk.Output()
		if passes := strings.Contains(want, "none allocates more"); (err == nil) != passes {
			t.Errorf("got %v for\n%s", err, in)
		}
		if !strings.Contains(string(got), want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(allocationTables, "more allocations than in the baseline:\ntreadle/loop Mailbox: 1, was 0")
	f(strings.Replace(allocationTables, "Mailbox,0,0%,1", "Mailbox,1,0%,1", 1), "3 benchmarks, none allocates more")
	f(strings.Replace(allocationTables, "Extend,2,0%,2", "Extend,2,0%,3", 1), "treadle/sched Extend: 3, was 2")
	f("pkg: treadle/sched\n", "no benchmark is in both runs")
	f("Extend,2,0%,many,0%,~,\n", "cannot read benchstat's table")
}
