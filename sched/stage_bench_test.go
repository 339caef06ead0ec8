package sched

import "testing"

// stageBatch is how many jobs go through one stage before the next: as many as wait in
// a server whose producers have filled their windows.
const stageBatch = 4096

// BenchmarkStage times what a job costs the scheduler, stage by stage. While one stage
// runs on a batch of jobs, the clock of the others stands.
func BenchmarkStage(b *testing.B) {
	f := func(name string, timed int) {
		b.Run(name, func(b *testing.B) {
			x := newBenchSched(b, 1, 1)
			p := x.worker(0, 1)
			b.ReportAllocs()
			b.ResetTimer()
			b.StopTimer()
			for left := b.N; left > 0; left -= stageBatch {
				batch := min(left, stageBatch)
				for stage, run := range []func(){
					func() {
						for i := range batch {
							x.tick(i)
							x.submit(0, 0)
						}
					},
					func() {
						for i := range batch {
							x.tick(i)
							x.reserve(p, 1)
						}
					},
					func() { x.finish(p) },
				} {
					if stage == timed {
						b.StartTimer()
					}
					run()
					b.StopTimer()
				}
			}
		})
	}
	f("submit", 0)
	f("reserve", 1)
	f("finish", 2)
}

// BenchmarkIndex pushes a job behind stageBatch others and takes out the first: with the
// keys of ready jobs, which are the same for a whole second, and of delayed jobs that
// are due in no order.
func BenchmarkIndex(b *testing.B) {
	f := func(name string, at func(i int) sortKey) {
		b.Run(name, func(b *testing.B) {
			var pool buckets
			jobs, x := newSlab(), newIndex()
			push := func(i int) {
				slot, _ := jobs.alloc()
				x.pushBack(&pool, &jobs, at(i), slot)
			}
			for i := range stageBatch {
				push(i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				push(stageBatch + i)
				slot := x.head(&pool)
				x.remove(&pool, &jobs, slot)
				jobs.free(slot)
			}
		})
	}
	f("ready", func(i int) sortKey { return sortKey{0, int64(i / 1_000_000)} })
	f("delayed", func(i int) sortKey { return sortKey{int64(uint32(i) * 2654435761 >> 8), 0} })
}
