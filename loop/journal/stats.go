package journal

import (
	"slices"
	"sync"
	"time"
)

// Stats are figures for people and for Prometheus. Counters start at zero when the
// journal is opened.
type Stats struct {
	Groups  uint64 // committed
	Records uint64 // written in them: puts, deletes and settings that were not undone
	Bytes   uint64 // written in them
	// Committed is the number of the last committed group, Epoch this opening's.
	Committed, Epoch uint64
	Jobs             int64 // stored
	// Backlog counts the changes that were appended and are not committed.
	Backlog int64
	// Stalls counts how often a group had to wait because the full logs before it were not
	// in the store yet.
	Stalls uint64
	// Recovery is the time that Open and Replay took, Recovered what they brought back.
	Recovery  time.Duration
	Recovered int64
	// Dropped is the number of bytes at the ends of logs that Open left out: no group that
	// was acknowledged is in them, unless the disk damaged it.
	Dropped uint64
	// Size is the data directory's in bytes, Free what its file system has left.
	Size, Free uint64
	Full       bool
	// LastError is why nothing is committed any more; empty while all is well.
	LastError string
	Commit    Histogram // seconds from the taking of a group to its commit
	Group     Histogram // records a group
}

// Histogram counts observations by size.
type Histogram struct {
	Bounds []float64 // upper, ascending, inclusive
	Counts []uint64  // one a bound, and one for what is above the last
	Sum    float64
}

func (h *Histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.Bounds, v)
	h.Counts[i]++
	h.Sum += v
}

// Count is the number of observations.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Cumulative is the form that Prometheus wants: for each bound, how many
// observations were not above it.
func (h *Histogram) Cumulative() map[float64]uint64 {
	all := make(map[float64]uint64, len(h.Bounds))
	var n uint64
	for i, b := range h.Bounds {
		n += h.Counts[i]
		all[b] = n
	}
	return all
}

func (h *Histogram) clone() Histogram {
	return Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum}
}

// bounds are factor apart.
func bounds(first, factor float64, n int) Histogram {
	h := Histogram{Bounds: make([]float64, n), Counts: make([]uint64, n+1)}
	for i := range h.Bounds {
		h.Bounds[i] = first
		first *= factor
	}
	return h
}

// figures are what the committer and the recovery count.
type statCounters struct {
	sync.Mutex
	Stats
}

func newStatCounters() *statCounters {
	// 50 us, the fastest disk's sync, to 6.5 s; 1 to a million records.
	return &statCounters{Stats: Stats{Commit: bounds(50e-6, 2, 18), Group: bounds(1, 4, 11)}}
}

// committed counts one written group.
func (f *statCounters) committed(records, bytes int, took time.Duration) {
	f.Lock()
	defer f.Unlock()
	f.Groups++
	f.Records += uint64(records)
	f.Bytes += uint64(bytes)
	f.Commit.observe(took.Seconds())
	f.Group.observe(float64(records))
}

// Stats reads all figures. It may be called at any time and from any goroutine.
func (j *Journal) Stats() Stats {
	j.stats.Lock()
	s := j.stats.Stats
	s.Commit, s.Group = j.stats.Commit.clone(), j.stats.Group.clone()
	j.stats.Unlock()
	s.Committed, s.Epoch, s.Jobs = j.committed.Load(), j.epoch, j.jobs.Load()
	s.Backlog = j.inFlight.Load()
	for i := range j.shards {
		g := &j.shards[i]
		g.mu.Lock()
		s.Backlog += int64(g.live)
		g.mu.Unlock()
	}
	s.Size = treeSize(j.options.FS, j.options.Dir)
	s.Free, s.Full = j.free.Load(), j.full.Load()
	if err := j.disk.failure(); err != nil {
		s.LastError = err.Error()
	}
	return s
}
