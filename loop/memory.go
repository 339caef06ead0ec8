package loop

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

const (
	// memoryPeriod is the time between two looks at the memory.
	memoryPeriod = 250 * time.Millisecond
	// memoryPart of --max-memory is by how much jobs may grow or shrink until a collection says how much is live, and
	// how far the memory has to fall before new jobs are taken again.
	memoryPart = 16
	// memoryAge is after how many milliseconds another collection is made near the limit although the jobs are as many:
	// connections, names and buffers may have gone. The first ones are made earlier, at times that double.
	memoryAge = 10_000
	// peerPart of --max-memory is what each budget of peers may have: their unfinished requests, their unread output, and
	// what they reserve and watch. They are not refused at the limit, because jobs are drained by them, so their budgets
	// lie beyond it, where there is room for two sevenths of it and the kernel's part.
	peerPart = 8
	// memoryQuiet is how many milliseconds after the log has said that new jobs are taken it says so again. Jobs that come
	// and go at the limit have them refused and taken many times a second.
	memoryQuiet = 10_000
)

// memoryLimit says when the server holds as much memory as it may. A server without one has no limit.
//
// The memory that it holds is the chunks of jobs, which the scheduler counts exactly, and the rest: names, indexes, connections,
// buffers, the runtime's own. The rest is what the last garbage collection has found live beside the chunks, and what
// the runtime uses beside objects. So a burst of jobs meets the limit at once, and takes beyond it only the rest that
// grows with it between two collections, and one request for each event loop. That margin, and garbage, lie between
// the limit and Go's soft limit, see memorySize of cmd/treadle. Garbage itself does not count. Where it hides near the
// limit how much is live, a collection is made.
type memoryLimit struct {
	limit        int64 // in bytes
	sched        *sched.Scheduler
	read         func() memoryReading // readMemory, and the next is runtime.GC, but for tests
	collect      func()
	refused      func() uint64 // how many requests were refused since the start
	log          *slog.Logger
	atCollection atomic.Int64  // at the last collection
	refuse       atomic.Bool   // until a look finds that the memory has fallen by a part
	began        chan struct{} // that refuse is set
	closed       atomic.Bool

	// Used by the goroutine that looks alone.

	seen   uint64 // the last collection that look has used, and at Mono when it found it
	seenAt int64
	wait   int64  // milliseconds from there to the next collection
	peak   int64  // bytes of jobs: the most while new ones are refused, since look has made a collection
	said   bool   // the log says that new jobs are refused
	told   uint64 // refused when the log last said that they are taken, and at Mono when it may say so again
	quiet  int64

	mu   sync.Mutex
	last collection
}

// memoryReading is what the Go runtime says.
type memoryReading struct {
	cycles   uint64 // collections so far
	live     int64  // bytes that the last one has found live
	objects  int64  // bytes of all objects, with garbage
	overhead int64  // bytes in use beside objects
}

// collection is what a garbage collection has found.
type collection struct {
	cycles uint64 // how many there were, with this one
	jobs   int64  // bytes of jobs at its end
	beside int64  // bytes of other live objects; negative when jobs came while it was noted
}

// newMemoryLimit returns nil when most is 0.
func newMemoryLimit(most int64, s *sched.Scheduler, refused func() uint64, log *slog.Logger) *memoryLimit {
	if most == 0 {
		return nil
	}
	return &memoryLimit{limit: most, sched: s, read: readMemory, collect: runtime.GC, refused: refused, log: log, began: make(chan struct{}, 1)}
}

// follow notes every collection from now on until close. The runtime runs the cleanup of an object that nothing refers
// to at the end of a collection.
func (m *memoryLimit) follow() {
	runtime.AddCleanup(new([64]byte), func(m *memoryLimit) {
		if !m.closed.Load() {
			m.note()
			m.follow()
		}
	}, m)
}

func (m *memoryLimit) close() { m.closed.Store(true) }

// note notes the last collection, which has just ended.
func (m *memoryLimit) note() {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, jobs := m.read(), m.sched.Memory()
	if r.cycles != m.last.cycles {
		m.last = collection{r.cycles, jobs, r.live - jobs}
		m.atCollection.Store(m.last.beside + r.overhead)
	}
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

// full reports whether new jobs must be refused. Once they are, it takes a look to take them again. m may be nil.
func (m *memoryLimit) full() bool {
	if m == nil || m.refuse.Load() {
		return m != nil
	}
	if m.held() < m.limit {
		return false
	}
	if m.refuse.CompareAndSwap(false, true) {
		select {
		case m.began <- struct{}{}:
		default:
		}
	}
	return true
}

// held returns how many bytes the server holds.
func (m *memoryLimit) held() int64 { return m.sched.Memory() + m.atCollection.Load() }

// look reads the memory, has new jobs taken again when it has fallen, and logs that. One goroutine calls it. mono is the
// time of the scheduler.
//
// While new jobs are refused nothing may be allocated that makes the runtime collect garbage. So look does, as soon as
// the jobs have fallen by a part: the rest may have been found too large beside jobs that have gone.
func (m *memoryLimit) look(mono int64) {
	m.sayRefused()
	resume := m.limit - m.limit/memoryPart
	r, last, jobs := m.read(), m.lastCollection(mono), m.sched.Memory()
	if m.peak = max(m.peak, jobs); !m.refuse.Load() {
		m.peak = jobs
	}
	moved := jobs - last.jobs
	if max(moved, -moved, m.peak-jobs) >= m.limit/memoryPart {
		m.wait = 0
	}
	most := max(m.held(), max(r.objects, jobs+last.beside)+r.overhead)
	if most >= resume && mono-m.seenAt >= m.wait {
		m.wait = min(max(2*m.wait, memoryPeriod.Milliseconds()), memoryAge)
		m.peak = jobs
		m.collect()
		m.note()
		m.lastCollection(mono)
	}
	if m.full() && m.held() < resume {
		m.refuse.Store(false)
	}
	m.sayTaken(mono)
}

// sayRefused logs that new jobs are refused, unless the log says so.
func (m *memoryLimit) sayRefused() {
	if m.refuse.Load() && !m.said {
		m.said = true
		m.log.Warn("new jobs are refused: the server holds as much as --max-memory allows", "held", journal.Size(m.held()), "max-memory", journal.Size(m.limit))
	}
}

// sayTaken logs that new jobs are taken again, unless it has done so moments ago: then it waits.
func (m *memoryLimit) sayTaken(mono int64) {
	if m.said && !m.refuse.Load() && mono >= m.quiet {
		refused := m.refused()
		m.log.Info("the server holds less than --max-memory again: new jobs are taken", "refused", refused-m.told, "held", journal.Size(m.held()), "max-memory", journal.Size(m.limit))
		m.said, m.told, m.quiet = false, refused, mono+memoryQuiet
	}
}

// lastCollection returns the last collection. It keeps when that was new.
func (m *memoryLimit) lastCollection(mono int64) collection {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.cycles != m.seen {
		m.seen, m.seenAt = m.last.cycles, mono
	}
	return m.last
}

// watchMemory looks at the memory until ctx ends. It has its own goroutine because a collection takes time.
func (s *Server) watchMemory(ctx context.Context) {
	s.memory.follow()
	defer s.memory.close()
	ticker := time.NewTicker(memoryPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.memory.began:
			s.memory.sayRefused()
		case <-ticker.C:
			s.memory.look(s.now().Mono)
		}
	}
}

// refusedAtMemory returns how many requests of all protocols --max-memory has refused.
func (s *Server) refusedAtMemory() (n uint64) {
	for _, one := range s.conns.protocols {
		n += one.refusals[protocol.ReasonMaxMemory].Load()
	}
	return n
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
		all = append(all, web.Gauge("treadle_refusing", "1 while new jobs are refused for this reason.", oneIf(r.now)).With("reason", r.reason.String()))
	}
	if s.memory != nil {
		all = append(all,
			web.Gauge("treadle_memory_held_bytes", "Memory in use without garbage, which --max-memory bounds.", s.memory.held()),
			web.Gauge("treadle_memory_limit_bytes", "The setting --max-memory.", s.memory.limit))
	}
	return all
}
