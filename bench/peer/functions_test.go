package peer

import (
	"strings"
	"testing"

	"treadle/bench/load"
)

// TestFunctions sees to it that all functions get as many jobs, and that each is served by one worker.
func TestFunctions(t *testing.T) {
	const total, jobs = 1000, 5000
	f := newPeriodic(PeriodicOptions{Functions: total, Run: 1})
	nameOf := func(f *periodic, id int) string {
		frame := f.AppendSubmit(nil, 1, uint64(id), 0)
		return string(frame[(plainHeaderLen+argsAt)+1 : (plainHeaderLen+argsAt)+1+int(frame[(plainHeaderLen+argsAt)])])
	}
	got := map[string]int{}
	for id := range jobs {
		got[nameOf(f, id)]++
	}
	for worker := range total / FunctionsServed {
		for _, name := range f.servedBy(worker) {
			if got[name] != jobs/total {
				t.Errorf("%s, of worker %d: %d jobs are left for it, want %d", name, worker, got[name], jobs/total)
			}
			delete(got, name)
		}
	}
	if len(got) > 0 {
		t.Errorf("nobody serves %v", got)
	}
	runs := newPeriodic(PeriodicOptions{Functions: total, Run: 64})
	if a, b, c := nameOf(runs, 64), nameOf(runs, 127), nameOf(runs, 128); a != b || b == c {
		t.Errorf("in runs of 64: got %s, %s and %s", a, b, c)
	}
	one := newPeriodic(PeriodicOptions{Functions: 1, Run: 1})
	if a, b := one.servedBy(0), one.servedBy(7); len(a) != 1 || len(b) != 1 || a[0] != b[0] {
		t.Errorf("of one function: got %v and %v", a, b)
	}
}

// TestKeys sees to it that all keys get as many jobs, neighbouring jobs have different ones, and no name comes twice.
func TestKeys(t *testing.T) {
	const keys, jobs = 100_000, 300_000
	p := newPeriodic(PeriodicOptions{Keys: keys})
	of, names, last := map[string]int{}, map[string]bool{}, ""
	for id := range jobs {
		name := string(p.AppendSubmit(nil, 1, uint64(id), 0)[p.header+nameAt:][:load.JobNameLen])
		key, _, ok := strings.Cut(name, ":")
		if !ok || names[name] || key == last {
			t.Fatalf("job %d is %q, behind one of the key %q", id, name, last)
		}
		names[name], last = true, key
		of[key]++
	}
	for key, n := range of {
		if n != jobs/keys || len(of) != keys {
			t.Fatalf("%d keys, %q has %d jobs", len(of), key, n)
		}
	}
}

// TestStatusOfFunctions adds up what the functions of a run hold.
func TestStatusOfFunctions(t *testing.T) {
	const text = "b0001,1,3,0,1\nother,0,5,0,1\nb0002,1,4,1,1\n"
	if got, err := statusJobs([]byte(text), 5, functionPrefix); got != 7 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := statusJobs([]byte("b0001,1,many,0,1\n"), 5, functionPrefix); err == nil {
		t.Error("a number that is none was accepted")
	}
}
