package sched

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
)

// lastSink is a Sink that keeps the last references and tags handed out, and allocates nothing.
type lastSink struct {
	refs  []Run
	tags  []uint64
	bytes int
}

func (s *lastSink) Deliver(d *Delivery) {
	if d.Effect == Assign {
		s.refs, s.tags = append(s.refs, d.Job.Run()), append(s.tags, d.Tag)
	}
	s.bytes += len(d.Job.Name) + len(d.Job.Workload)
}

// benchSched is a scheduler with workers under a benchmark. Jobs have 10 bytes of name and 100 of
// workload.
type benchSched struct {
	b      testing.TB
	s      *Scheduler
	now    Time
	queues [][]byte
	peers  []*Peer
	sink   lastSink
	name   [10]byte
	j      Submission
	next   uint64
}

func newBenchSched(b testing.TB, shards, queues int) *benchSched {
	x := &benchSched{b: b, s: New(Options{Shards: shards, Window: 1 << 62}), now: Time{Wall: 1_700_000_000_000}}
	x.s.SetTimeout(600_000)
	for i := range queues {
		x.queues = append(x.queues, fmt.Append(nil, "function ", i))
	}
	x.j = Submission{Name: x.name[:], Workload: make([]byte, 100)}
	return x
}

// worker connects a peer that serves n queues from the first on.
func (x *benchSched) worker(first, n int) *Peer {
	p := x.s.NewPeer(SessionID(len(x.peers)))
	for i := range n {
		if err := x.s.Watch(x.now, p, x.queues[(first+i)%len(x.queues)], false, &x.sink); err != nil {
			x.b.Fatal(err)
		}
	}
	x.peers = append(x.peers, p)
	return p
}

// submit submits the next job. Names do not repeat.
func (x *benchSched) submit(queue int, at int64) {
	x.next++
	binary.BigEndian.PutUint64(x.name[:], x.next)
	x.j.Queue, x.j.SchedAt = x.queues[queue], at
	if err := x.s.Submit(x.now, &x.j, &x.sink); err != nil {
		x.b.Fatal(err)
	}
}

func (x *benchSched) reserve(p *Peer, tag uint64) {
	if err := x.s.Reserve(x.now, p, tag, &x.sink); err != nil {
		x.b.Fatal(err)
	}
}

// finish finishes the jobs handed out last, all by one peer.
func (x *benchSched) finish(p *Peer) {
	for _, ref := range x.sink.refs {
		if err := x.s.Finish(x.now, p, ref, nil, &x.sink); err != nil {
			x.b.Fatal(err)
		}
	}
	x.sink.refs, x.sink.tags = x.sink.refs[:0], x.sink.tags[:0]
}

// tick advances the clock, as between two turns of an event loop.
func (x *benchSched) tick(i int) {
	if i%64 == 0 {
		x.now.Wall++
		x.now.Mono++
	}
}

// BenchmarkHandOff times the way of nearly every job of a server that keeps up: a worker waits, a
// job is submitted, handed over at once and finished.
func BenchmarkHandOff(b *testing.B) {
	x := newBenchSched(b, 1, 1)
	p := x.worker(0, 1)
	b.ReportAllocs()
	for i := range b.N {
		x.tick(i)
		x.reserve(p, 1)
		x.submit(0, 0)
		x.finish(p)
	}
}

// BenchmarkHandOff64 is BenchmarkHandOff with 64 reserves outstanding, by one worker and by 64.
func BenchmarkHandOff64(b *testing.B) {
	f := func(name string, workers, slots int) {
		b.Run(name, func(b *testing.B) {
			x := newBenchSched(b, 1, 1)
			for range workers {
				p := x.worker(0, 1)
				for tag := range slots {
					x.reserve(p, uint64(tag))
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				x.tick(i)
				p := x.peers[i%workers]
				x.submit(0, 0)
				tag := x.sink.tags[0]
				x.finish(p)
				x.reserve(p, tag)
			}
		})
	}
	f("1x64", 1, 64)
	f("64x1", 64, 1)
	f("1x4096", 1, 4096)
}

// BenchmarkBacklog times jobs that wait for workers: filling a queue, and draining it.
func BenchmarkBacklog(b *testing.B) {
	b.Run("submit", func(b *testing.B) {
		x := newBenchSched(b, 1, 1)
		b.ReportAllocs()
		for i := range b.N {
			x.tick(i)
			x.submit(0, 0)
		}
	})
	b.Run("drain", func(b *testing.B) {
		x := newBenchSched(b, 1, 1)
		for i := range b.N {
			x.tick(i)
			x.submit(0, 0)
		}
		p := x.worker(0, 1)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			x.tick(i)
			x.reserve(p, 1)
			x.finish(p)
		}
	})
}

// BenchmarkManyQueues has a thousand queues over 16 shards and a hundred workers that serve ten
// each. It times waiting for jobs, and finding them.
func BenchmarkManyQueues(b *testing.B) {
	f := func(name string, first, second func(x *benchSched, queue int)) {
		b.Run(name, func(b *testing.B) {
			x := newBenchSched(b, 16, 1000)
			for i := range 100 {
				x.worker(10*i, 10)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				x.tick(i)
				queue := i * 7 % 1000
				first(x, queue)
				second(x, queue)
				x.finish(x.peers[queue/10])
			}
		})
	}
	reserve := func(x *benchSched, queue int) { x.reserve(x.peers[queue/10], 1) }
	submit := func(x *benchSched, queue int) { x.submit(queue, 0) }
	f("waiting", reserve, submit)
	f("finding", submit, reserve)
}

// BenchmarkDelayed times delayed jobs, those of each second together: submitted, promoted by Tick,
// handed over.
func BenchmarkDelayed(b *testing.B) {
	x := newBenchSched(b, 1, 1)
	p := x.worker(0, 1)
	b.ReportAllocs()
	for i := 0; i < b.N; {
		batch := min(1000, b.N-i)
		for k := range batch {
			x.submit(0, x.now.Wall/1000+1+int64(k%10))
		}
		for range 10 {
			x.now.Wall += 1000
			x.now.Mono += 1000
			x.s.ticks(x.now, &x.sink)
			for range batch/10 + 1 {
				x.reserve(p, 1)
			}
			x.finish(p)
		}
		i += batch
	}
}

// BenchmarkMemory measures the bytes of a million ready jobs, and what is left after they are done.
func BenchmarkMemory(b *testing.B) {
	const jobs = 1_000_000
	for range b.N {
		before := heapInUse()
		x := newBenchSched(b, 1, 1)
		for i := range jobs {
			x.tick(i)
			x.submit(0, 0)
		}
		full := heapInUse()
		p := x.worker(0, 1)
		for range jobs {
			x.reserve(p, 1)
			x.finish(p)
		}
		empty := heapInUse()
		b.ReportMetric(float64(full-before)/jobs, "bytes/job")
		b.ReportMetric(float64(empty-before)/1024, "KB-left")
		runtime.KeepAlive(x)
	}
}

// heapInUse returns the bytes of the heap without garbage.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}
