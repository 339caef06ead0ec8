package sched

import (
	"fmt"
	"strings"
	"testing"
)

// maxFailedBytes bounds what failedBytes measures of a million jobs.
const maxFailedBytes = 400

// failureTexts are what the four attempts at a job of failedBytes say.
var failureTexts = map[string]func(attempt int) string{
	"same":      func(int) string { return "cat: news.txt: No such file..." },
	"different": func(attempt int) string { return strings.Repeat(string(rune('a'+attempt)), 30) },
}

// failedBytes returns what a job takes that was given up after four attempts by four workers, each with an error text
// of 30 bytes: in memory, beside its name and its workload. A first job has made the chunks that all share.
func failedBytes(b testing.TB, jobs int, text func(attempt int) string) float64 {
	const attempts = 4
	x := newBenchSched(b, 1, 1)
	table, err := NewPolicies([]PolicyRule{{"*", FromFile, map[string]string{"retries": "3", "keep-failed": "2000000"}}})
	if err != nil {
		b.Fatal(err)
	}
	x.s.SetPolicies(table)
	x.s.ApplyPolicies(x.now, &x.sink)
	x.s.ApplyKeys(x.now, &x.sink)
	for i := range attempts {
		x.worker(0, 1).SetLabel("", fmt.Sprintf("periodic 127.0.0.1:4%d000", i))
	}
	fail := func() {
		began := x.now.Wall
		x.submit(0, 0)
		for i, p := range x.peers {
			x.reserve(p, 1)
			if err := x.s.Fail(x.now, p, x.sink.refs[0], []byte(text(i)), &x.sink); err != nil {
				b.Fatal(err)
			}
			x.sink.refs, x.sink.tags = x.sink.refs[:0], x.sink.tags[:0]
			x.now.Wall += 100_000 // as with a back-off
		}
		x.now.Wall = began + 1
	}
	fail()
	before := heapInUse()
	for range jobs {
		fail()
	}
	payload := len(x.name) + len(x.j.Workload)
	bytes := float64(heapInUse()-before)/float64(jobs) - float64(payload)
	if st := x.s.Stats(); st.Failed != jobs+1 {
		b.Fatalf("the counters are %+v", st)
	}
	return bytes
}

// BenchmarkFailedMemory measures a million jobs that were given up.
func BenchmarkFailedMemory(b *testing.B) {
	for name, text := range failureTexts {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				b.ReportMetric(failedBytes(b, 1_000_000, text), "bytes/job")
			}
		})
	}
}

// TestFailedMemory checks the bound of what a failed job takes. With the 32nd part of a million jobs the hash tables,
// which double, are as full as with a million.
func TestFailedMemory(t *testing.T) {
	for name, text := range failureTexts {
		if got := failedBytes(t, 1_000_000/32, text); got > maxFailedBytes {
			t.Errorf("%s texts: a failed job takes %.1f bytes, want at most %d", name, got, maxFailedBytes)
		}
	}
}
