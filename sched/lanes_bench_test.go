package sched

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// BenchmarkPolicies times a job's way, submitted, reserved and finished, behind a backlog of 100,000 jobs: in a queue
// without a policy, in one with retries and a limit, and in fair order over 100,000 keys.
func BenchmarkPolicies(b *testing.B) {
	f := func(name string, values map[string]string) {
		b.Run(name, func(b *testing.B) {
			const backlog = 100_000
			x := newBenchSched(b, 1, 1)
			table, err := NewPolicies([]PolicyRule{{"function *", FromFile, values}})
			if err != nil {
				b.Fatal(err)
			}
			if values != nil {
				x.s.SetPolicies(table)
				x.s.ApplyPolicies(x.now, &x.sink)
				x.s.ApplyKeys(x.now, &x.sink)
			}
			name := []byte("12345678:")
			submit := func(i int) {
				for k, rest := 7, i%backlog; k >= 0; k, rest = k-1, rest/10 {
					name[k] = byte('0' + rest%10)
				}
				x.j.Name, x.j.Queue = name, x.queues[0]
				if err := x.s.Submit(x.now, &x.j, &x.sink); err != nil {
					b.Fatal(err)
				}
			}
			for i := range backlog {
				submit(i)
			}
			p := x.worker(0, 1)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				x.tick(i)
				x.reserve(p, 1)
				x.finish(p)
				submit(i)
				if i%64 == 0 && values != nil {
					x.s.ticks(x.now, &x.sink) // as the alarm of a server has it
				}
			}
		})
	}
	f("plain", nil)
	f("limits", map[string]string{"retries": "3", "concurrency": "1000"})
	f("fair", map[string]string{"key": "name before :", "fair": "key"})
}

// BenchmarkFailedMemory measures what a job takes that was given up after four attempts by four workers, each with an
// error text of 30 bytes: in memory, beside its name and its workload.
func BenchmarkFailedMemory(b *testing.B) {
	f := func(name string, text func(attempt int) string) {
		b.Run(name, func(b *testing.B) {
			const jobs, attempts = 1_000_000, 4
			for range b.N {
				before := heapInUse()
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
				for range jobs {
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
				if st := x.s.Stats(); st.Failed != jobs {
					b.Fatalf("the counters are %+v", st)
				}
				payload := len(x.name) + len(x.j.Workload)
				b.ReportMetric(float64(heapInUse()-before)/jobs-float64(payload), "bytes/job")
				runtime.KeepAlive(x)
			}
		})
	}
	f("same", func(int) string { return "cat: news.txt: No such file..." })
	f("different", func(attempt int) string { return strings.Repeat(string(rune('a'+attempt)), 30) })
}
