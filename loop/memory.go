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
	// memoryPeriod is the time between two checks of the memory.
	memoryPeriod = 250 * time.Millisecond
	// memoryPart is the divisor of --max-memory that gives a part. A collection is due when the jobs have grown or
	// shrunk by a part, and new jobs are taken again when the memory has fallen by a part.
	memoryPart = 16
	// memoryAge is the longest time in milliseconds between two collections near the limit while the jobs do not
	// change: connections, names and buffers may have gone. The first times are shorter, and double.
	memoryAge = 10_000
	// peerPart is the divisor of --max-memory that gives each budget of peers: their unfinished requests, their unread
	// output, and what they reserve and watch. Peers are not refused at the limit, since they drain the jobs. So their
	// budgets are beyond the limit, where there is room for two sevenths of it and the kernel's part.
	peerPart = 8
	// memoryQuiet is the least time in milliseconds between two logs that new jobs are taken again. At the limit, new
	// jobs may be refused and taken many times a second.
	memoryQuiet = 10_000
)

// memoryLimit reports when the server holds as much memory as it may. A server without one has no limit.
//
// The memory that the server uses is the chunks of jobs and the rest. The scheduler counts the chunks exactly. The rest
// is names, indexes, connections, buffers and the runtime's own memory: what the last garbage collection has found live
// besides the chunks, and what the runtime uses besides objects. Garbage does not count.
//
// A burst of jobs meets the limit at once. Beyond the limit the server may take the rest that grows with the jobs
// between two collections, and one request for each event loop. That margin, and garbage, are between the limit and
// Go's soft limit, see memorySize of cmd/treadle.
//
// Near the limit, garbage hides how much is live. There check starts a collection: when the jobs have changed by a part
// of the limit since the last one, else after gcWait.
type memoryLimit struct {
	limit   int64 // in bytes
	sched   *sched.Scheduler
	read    func() memoryReading // readMemory, or a fake of the tests
	collect func()               // runtime.GC, or a fake of the tests
	refused func() uint64        // returns the number of requests refused since the start
	log     *slog.Logger
	rest    atomic.Int64 // bytes besides the chunks of jobs, as of the last collection
	// refusing is set when the memory reaches the limit. check resets it when the memory has fallen by a part.
	refusing   atomic.Bool
	refusingCh chan struct{} // receives when refusing is set
	closed     atomic.Bool

	// The fields below belong to the goroutine that calls check.

	lastGC   uint64 // number of the last collection that check has seen
	lastGCAt int64  // Mono when check saw it
	gcWait   int64  // milliseconds from lastGCAt to the next collection
	// peakJobs is the largest size of the jobs in bytes since check has made a collection, while new jobs are refused.
	peakJobs          int64
	loggedRefusal     bool   // the log says that new jobs are refused
	refusedWhenLogged uint64 // refused() when the log last said that new jobs are taken
	logAfter          int64  // Mono from which the log may say so again

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
	rest   int64  // bytes of other live objects; negative when jobs came while it was noted
}

// newMemoryLimit returns nil when most is 0.
func newMemoryLimit(most int64, s *sched.Scheduler, refused func() uint64, log *slog.Logger) *memoryLimit {
	if most == 0 {
		return nil
	}
	return &memoryLimit{limit: most, sched: s, read: readMemory, collect: runtime.GC, refused: refused, log: log, refusingCh: make(chan struct{}, 1)}
}

// noteCollections notes every collection from now on until close. The runtime runs the cleanup of an object that
// nothing refers to at the end of a collection.
func (m *memoryLimit) noteCollections() {
	runtime.AddCleanup(new([64]byte), func(m *memoryLimit) {
		if !m.closed.Load() {
			m.noteCollection()
			m.noteCollections()
		}
	}, m)
}

func (m *memoryLimit) close() { m.closed.Store(true) }

// noteCollection notes the last collection, which has just ended.
func (m *memoryLimit) noteCollection() {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, jobs := m.read(), m.sched.Memory()
	if r.cycles != m.last.cycles {
		m.last = collection{r.cycles, jobs, r.live - jobs}
		m.rest.Store(m.last.rest + r.overhead)
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

// full reports whether new jobs must be refused. Once they are, only check takes them again. m may be nil.
func (m *memoryLimit) full() bool {
	switch {
	case m == nil:
		return false
	case m.refusing.Load():
		return true
	case m.used() < m.limit:
		return false
	}
	if m.refusing.CompareAndSwap(false, true) {
		select {
		case m.refusingCh <- struct{}{}:
		default:
		}
	}
	return true
}

// used returns how many bytes the server uses, without garbage.
func (m *memoryLimit) used() int64 { return m.sched.Memory() + m.rest.Load() }

// check reads the memory, takes new jobs again when it has fallen by a part, and logs that. One goroutine calls it.
// mono is the time of the scheduler.
//
// While new jobs are refused, the process may allocate too little to start a collection. So check starts one when the
// memory of jobs has fallen by 1/memoryPart of the limit. The rest may then be smaller than the last collection found.
func (m *memoryLimit) check(mono int64) {
	m.logRefused()
	resume := m.limit - m.limit/memoryPart
	r, last, jobs := m.read(), m.lastCollection(mono), m.sched.Memory()
	if m.peakJobs = max(m.peakJobs, jobs); !m.refusing.Load() {
		m.peakJobs = jobs
	}
	moved := jobs - last.jobs
	if max(moved, -moved, m.peakJobs-jobs) >= m.limit/memoryPart {
		m.gcWait = 0
	}
	most := max(m.used(), max(r.objects, jobs+last.rest)+r.overhead)
	if most >= resume && mono-m.lastGCAt >= m.gcWait {
		m.gcWait = min(max(2*m.gcWait, memoryPeriod.Milliseconds()), memoryAge)
		m.peakJobs = jobs
		m.collect()
		m.noteCollection()
		m.lastCollection(mono)
	}
	if m.full() && m.used() < resume {
		m.refusing.Store(false)
	}
	m.logTaken(mono)
}

// logRefused logs that new jobs are refused, unless the log says so.
func (m *memoryLimit) logRefused() {
	if m.refusing.Load() && !m.loggedRefusal {
		m.loggedRefusal = true
		m.log.Warn("new jobs are refused: the server holds as much as --max-memory allows", "held", journal.Size(m.used()), "max-memory", journal.Size(m.limit))
	}
}

// logTaken logs that new jobs are taken again, unless it has done so moments ago: then it waits.
func (m *memoryLimit) logTaken(mono int64) {
	if m.loggedRefusal && !m.refusing.Load() && mono >= m.logAfter {
		refused := m.refused()
		m.log.Info("the server holds less than --max-memory again: new jobs are taken", "refused", refused-m.refusedWhenLogged, "held",
			journal.Size(m.used()), "max-memory", journal.Size(m.limit))
		m.loggedRefusal, m.refusedWhenLogged, m.logAfter = false, refused, mono+memoryQuiet
	}
}

// lastCollection returns the last collection. It keeps when that was new.
func (m *memoryLimit) lastCollection(mono int64) collection {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.cycles != m.lastGC {
		m.lastGC, m.lastGCAt = m.last.cycles, mono
	}
	return m.last
}

// watchMemory checks the memory until ctx ends. It has its own goroutine because a collection takes time.
func (s *Server) watchMemory(ctx context.Context) {
	s.memory.noteCollections()
	defer s.memory.close()
	ticker := time.NewTicker(memoryPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.memory.refusingCh:
			s.memory.logRefused()
		case <-ticker.C:
			s.memory.check(s.now().Mono)
		}
	}
}

// refusedAtMemory returns how many requests of all protocols --max-memory has refused.
func (s *Server) refusedAtMemory() (n uint64) {
	for _, p := range s.conns.protocols {
		n += p.refusals[protocol.ReasonMaxMemory].Load()
	}
	return n
}

// checkCapacity returns why new jobs are refused, protocol.ErrMaxMemory or protocol.ErrDisk, and nil while they are
// taken.
func (s *Server) checkCapacity() error {
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
			web.Gauge("treadle_memory_held_bytes", "Memory in use without garbage, which --max-memory bounds.", s.memory.used()),
			web.Gauge("treadle_memory_limit_bytes", "The setting --max-memory.", s.memory.limit))
	}
	return all
}
