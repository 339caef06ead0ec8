package journal

import (
	"slices"
	"sync"
	"time"
)

// Stats are the journal's metrics. Counters start at zero when the journal is opened.
type Stats struct {
	Groups  uint64 // committed
	Records uint64 // written in the groups: live puts, deletes and settings
	Bytes   uint64 // written in the groups
	// Committed is the number of the last committed group, Epoch that of this opening.
	Committed, Epoch uint64
	Jobs             int64 // stored
	// Backlog counts the changes that were appended and are not committed.
	Backlog int64
	// Stalls counts the groups that waited because too many full logs were not yet in the store.
	Stalls uint64
	// Recovery is the duration of Open and Replay, Recovered the number of records replayed.
	Recovery  time.Duration
	Recovered int64
	// Dropped counts the bytes at the ends of logs that Open left out. They hold no acknowledged
	// group, unless the disk damaged one.
	Dropped uint64
	// Size is the size of the data directory, Free the free space of its file system, in bytes.
	Size, Free uint64
	Full       bool
	// LastError is why the journal failed; empty while it works.
	LastError string
	Commit    Histogram // seconds from the drain of a group to its commit
	Group     Histogram // records in a group
}

// Histogram counts observations by size.
type Histogram struct {
	Bounds []float64 // upper, ascending, inclusive
	Counts []uint64  // one a bound, and one above the last
	Sum    float64
}

func (h *Histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.Bounds, v)
	h.Counts[i]++
	h.Sum += v
}

// Count returns the number of observations.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Cumulative returns the counts in the form of Prometheus: for each bound the number of
// observations up to it.
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

// bounds returns an empty histogram of n bounds, each factor times the one before.
func bounds(first, factor float64, n int) Histogram {
	h := Histogram{Bounds: make([]float64, n), Counts: make([]uint64, n+1)}
	for i := range h.Bounds {
		h.Bounds[i] = first
		first *= factor
	}
	return h
}

// statCounters are counted by the committer and the recovery.
type statCounters struct {
	sync.Mutex
	Stats
}

func newStatCounters() *statCounters {
	// Commit covers 50 us, the sync of a fast disk, to 6.5 s; Group covers 1 to a million records.
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

// Stats returns the current metrics. Any goroutine may call it at any time.
func (j *Journal) Stats() Stats {
	j.stats.Lock()
	s := j.stats.Stats
	s.Commit, s.Group = j.stats.Commit.clone(), j.stats.Group.clone()
	j.stats.Unlock()
	s.Committed, s.Epoch, s.Jobs = j.committed.Load(), j.epoch, j.records.Load()
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
