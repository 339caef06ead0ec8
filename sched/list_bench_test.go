package sched

import (
	"flag"
	"testing"
)

// listJobs is how many jobs BenchmarkListPage lists from: 10,000,000 take 3 GB.
var listJobs = flag.Int("list.jobs", 100_000, "jobs in the queue of BenchmarkListPage")

// BenchmarkListPage lists pages of 50 jobs of one queue, one behind the other.
func BenchmarkListPage(b *testing.B) {
	x := newBenchSched(b, 1, 1)
	for range *listJobs {
		x.submit(0, 0)
	}
	b.ReportAllocs()
	after := ""
	for b.Loop() {
		l, err := NewListing(&Match{}, x.queues[0], false, after)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for done := false; n < 50 && !done; {
			done = x.s.List(x.now, l, WalkBatch, func(*JobView) bool { n++; return n < 50 })
		}
		if after = l.Cursor(); n < 50 {
			after = ""
		}
	}
}

// BenchmarkListText searches the workloads of 100,000 jobs, of 100 bytes each, for a text that none has.
func BenchmarkListText(b *testing.B) {
	x := newBenchSched(b, 1, 1)
	for range 100_000 {
		x.submit(0, 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		l, err := NewListing(&Match{Texts: []string{"needle"}}, nil, true, "")
		if err != nil {
			b.Fatal(err)
		}
		for done := false; !done; {
			done = x.s.List(x.now, l, WalkBatch, func(*JobView) bool { b.Fatal("it is found"); return true })
		}
	}
}
