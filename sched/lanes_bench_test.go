package sched

import "testing"

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
