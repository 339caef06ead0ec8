package loop

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

const (
	// memoryPeriod is the time between two readings of the memory.
	memoryPeriod = 250 * time.Millisecond
	// memoryPart of --max-memory is how far jobs may have grown since the last collection before another one is made,
	// and how far the memory has to fall before new jobs are taken again.
	memoryPart = 16
	// memoryAge is for how many milliseconds a collection counts near the limit: connections and names may have gone.
	memoryAge = 10_000
)

// memoryLimit says when the server holds as much memory as it may. A server without one has no limit.
//
// What it holds is the chunks of jobs, which the scheduler counts exactly, and the rest: names, indexes, connections,
// buffers, the runtime's own. The rest is what the last garbage collection has found live beside the chunks, and what
// the runtime uses beside objects. So a burst of jobs meets the limit at once, and takes beyond it only the rest that
// grows with it between two readings, and one request for each event loop. That margin, and garbage, lie between the
// limit and Go's soft limit, see memorySize of cmd/treadle. Garbage itself does not count. Where it hides how much is
// live near the limit, a collection is made.
type memoryLimit struct {
	most   int64 // in bytes
	sched  *sched.Scheduler
	read   func() memoryReading
	log    *slog.Logger
	rest   atomic.Int64 // at the last look
	refuse atomic.Bool  // until the memory has fallen by a part

	// Of the last look, and used by look alone.
	cycles uint64 // collections
	jobs   int64  // bytes of jobs
	base   int64  // bytes of jobs at the last collection, or fewer
	at     int64  // Mono of the last collection
}

// memoryReading is what the Go runtime says.
type memoryReading struct {
	cycles   uint64 // collections so far
	live     int64  // bytes that the last one has found live
	objects  int64  // bytes of all objects, with garbage
	overhead int64  // bytes in use beside objects
}

// newMemoryLimit returns nil when most is 0.
func newMemoryLimit(most int64, s *sched.Scheduler, log *slog.Logger) *memoryLimit {
	if most == 0 {
		return nil
	}
	return &memoryLimit{most: most, sched: s, read: readMemory, log: log}
}

// readMemory reads the metrics of the runtime.
func readMemory() memoryReading {
	samples := [...]metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples[:])
	value := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
	return memoryReading{uint64(value(0)), value(1), value(2), value(3) - value(2) - value(4) - value(5)}
}

// full reports whether new jobs must be refused. m may be nil.
func (m *memoryLimit) full() bool { return m != nil && (m.refuse.Load() || m.held() >= m.most) }

// held returns how many bytes the server holds.
func (m *memoryLimit) held() int64 { return m.sched.Memory() + m.rest.Load() }

// look reads the memory and says when new jobs begin to be refused, and when they are taken again. One goroutine calls
// it. mono is the time of the scheduler.
func (m *memoryLimit) look(mono int64) {
	resume := m.most - m.most/memoryPart
	r := m.take(mono)
	moved := m.jobs - m.base
	if max(r.objects, r.live+moved)+r.overhead >= resume && (max(moved, -moved) >= m.most/memoryPart || mono-m.at >= memoryAge) {
		m.jobs = m.sched.Memory()
		runtime.GC()
		r = m.take(mono)
	}
	m.rest.Store(max(r.live-m.base, 0) + r.overhead)
	switch held := m.held(); {
	case !m.refuse.Load() && held >= m.most:
		m.refuse.Store(true)
		m.log.Warn("new jobs are refused: the server holds as much as --max-memory allows", "held", journal.Size(held), "max-memory", journal.Size(m.most))
	case m.refuse.Load() && held < resume:
		m.refuse.Store(false)
		m.log.Info("the server holds less than --max-memory again: new jobs are taken", "held", journal.Size(held), "max-memory", journal.Size(m.most))
	}
}

// take takes a reading. Jobs that came during a collection may be live in it or not: base has the fewest, so that the
// rest is never too small.
func (m *memoryLimit) take(mono int64) memoryReading {
	before := m.jobs
	r := m.read()
	m.jobs = m.sched.Memory()
	if r.cycles != m.cycles {
		m.cycles, m.at, m.base = r.cycles, mono, min(before, m.jobs)
	}
	return r
}

// watchMemory looks at the memory until ctx ends. It has its own goroutine because a collection takes time.
func (s *Server) watchMemory(ctx context.Context) {
	ticker := time.NewTicker(memoryPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.memory.look(s.now().Mono)
		}
	}
}

// refusing returns why new jobs are refused, protocol.ErrMaxMemory or protocol.ErrDisk, and nil while they are taken.
func (s *Server) refusing() error {
	switch {
	case s.memory.full():
		return protocol.ErrMaxMemory
	case s.journal.full():
		return protocol.ErrDisk
	}
	return nil
}

// refusingSamples are the metrics of what refuses new jobs.
func (s *Server) refusingSamples() (all []web.Sample) {
	for _, r := range []struct {
		reason protocol.Reason
		now    bool
	}{{protocol.ReasonDisk, s.journal.full()}, {protocol.ReasonMaxMemory, s.memory.full()}} {
		g := web.Gauge("treadle_refusing", "1 while new jobs are refused for this reason.", 0)
		if g.Label, g.LabelValue = "reason", r.reason.String(); r.now {
			g.Value = 1
		}
		all = append(all, g)
	}
	if s.memory != nil {
		all = append(all,
			web.Gauge("treadle_memory_held_bytes", "Memory in use without garbage, which --max-memory bounds.", s.memory.held()),
			web.Gauge("treadle_memory_limit_bytes", "The setting --max-memory.", s.memory.most))
	}
	return all
}
