package journal

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// benchRecord returns a job of usual size: a short queue name, a name of 16 bytes and a workload of
// 100 bytes.
func benchRecord() Record {
	return Record{Space: 1, Queue: []byte("echo"), Name: make([]byte, 16), Workload: make([]byte, 100), Due: 1_700_000_000_000}
}

// benchDir returns a directory on the disk of the tests' temporary directories.
func benchDir(b *testing.B) string { return filepath.Join(b.TempDir(), "data") }

// waiters let goroutines wait for a group with one broadcast a group, so that the benchmark does
// not measure a wake-up for each of them.
type waiters struct {
	mu   sync.Mutex
	cond sync.Cond
	j    atomic.Pointer[Journal]
}

func newWaiters() *waiters {
	w := &waiters{}
	w.cond.L = &w.mu
	return w
}

func (w *waiters) committed(uint64) {
	w.mu.Lock()
	w.cond.Broadcast()
	w.mu.Unlock()
}

func (w *waiters) wait(group uint64) {
	w.mu.Lock()
	for w.j.Load().Committed() < group {
		w.cond.Wait()
	}
	w.mu.Unlock()
}

// BenchmarkAlways appends a job and waits for its group, in several goroutines at once. For
// comparison it reports the cost of one append of as many bytes with fdatasync on the same disk.
func BenchmarkAlways(b *testing.B) {
	for _, n := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("appenders=%d", n), func(b *testing.B) { benchAlways(b, n) })
	}
}

func benchAlways(b *testing.B, appenders int) {
	w := newWaiters()
	j, err := Open(Options{Dir: benchDir(b), Shards: 16, Committed: w.committed})
	if err != nil {
		b.Fatal(err)
	}
	w.j.Store(j)
	var seq, left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, appenders)
	var all sync.WaitGroup
	b.ResetTimer()
	for i := range appenders {
		all.Go(func() {
			r := benchRecord()
			for left.Add(-1) >= 0 {
				began := time.Now()
				r.Seq = uint64(seq.Add(1))
				binary.BigEndian.PutUint64(r.Name, r.Seq)
				j.Put(i%16, &r)
				group := j.Group(i % 16)
				j.Flush(1)
				w.wait(group)
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	report(b, slices.Concat(took...))
	s := j.Stats()
	b.ReportMetric(float64(s.Records)/float64(s.Groups), "records/group")
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkDisk measures the disk alone: appending one such record with fdatasync to a growing
// file, as a new log is written, and to an existing file, as a reused log is.
func BenchmarkDisk(b *testing.B) {
	for _, again := range []bool{false, true} {
		name := "growing"
		if again {
			name = "again"
		}
		b.Run(name, func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "probe"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			if again {
				if _, err := f.Write(make([]byte, 16<<20)); err != nil {
					b.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					b.Fatal(err)
				}
			}
			buf := make([]byte, 256)
			var took []time.Duration
			b.ResetTimer()
			for i := range b.N {
				began := time.Now()
				if _, err := f.WriteAt(buf, int64(i)*256%(16<<20)); err != nil {
					b.Fatal(err)
				}
				if err := unix.Fdatasync(int(f.Fd())); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			b.StopTimer()
			report(b, took)
		})
	}
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkFlood appends from one goroutine as fast as possible, in turns of 100, without waiting.
// The time ends when everything is committed.
func BenchmarkFlood(b *testing.B) {
	for _, mode := range []Mode{Always, Interval, Never} {
		b.Run("sync="+mode.String(), func(b *testing.B) {
			j, err := Open(Options{Dir: benchDir(b), Shards: 16, Sync: mode})
			if err != nil {
				b.Fatal(err)
			}
			r := benchRecord()
			b.ResetTimer()
			for i := range b.N {
				r.Seq++
				j.Put(i%16, &r)
				if i%100 == 99 {
					j.Flush(1)
				}
			}
			appended := b.Elapsed()
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			s := j.stats
			b.ReportMetric(float64(appended.Nanoseconds())/float64(b.N), "append-ns")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(s.Groups), "groups")
			b.ReportMetric(float64(s.Stalls), "stalls")
		})
	}
}

// BenchmarkUndone puts and deletes each job within one interval, so that no job is written: one hot
// shard, turns of 100.
func BenchmarkUndone(b *testing.B) {
	j, err := Open(Options{Dir: benchDir(b), Shards: 16, Sync: Interval})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	r := benchRecord()
	const behind = 1000 // jobs in flight
	b.ResetTimer()
	for i := range b.N {
		r.Seq++
		j.Put(3, &r)
		if r.Seq > behind {
			j.Delete(3, r.Seq-behind)
		}
		if i%100 == 99 {
			j.Flush(1)
		}
	}
	b.ReportMetric(float64(j.Stats().Records), "written")
}

// BenchmarkRecovery measures Open and Replay of a million stored jobs.
func BenchmarkRecovery(b *testing.B) {
	const jobs = 1_000_000
	dir := benchDir(b)
	fillJournal(b, dir, jobs)
	var opened, replayed time.Duration
	b.ResetTimer()
	for range b.N {
		began := time.Now()
		j, err := Open(Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		opened += time.Since(began)
		n := 0
		if err := j.Replay(ReplayFuncs{Record: func(*Record) error { n++; return nil }}); err != nil || n != jobs {
			b.Fatalf("%d jobs, %v", n, err)
		}
		replayed += time.Since(began)
		if err := j.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(opened.Seconds()/float64(b.N), "open-s")
	b.ReportMetric(replayed.Seconds()/float64(b.N), "recovery-s")
}

func fillJournal(tb testing.TB, dir string, jobs int) {
	w := newWaiters()
	j, err := Open(Options{Dir: dir, Shards: 16, Committed: w.committed})
	if err != nil {
		tb.Fatal(err)
	}
	w.j.Store(j)
	r := benchRecord()
	for i := range jobs {
		r.Seq = uint64(i + 1)
		binary.BigEndian.PutUint64(r.Name, r.Seq)
		j.Put(i%16, &r)
		if i%1000 == 999 {
			j.Flush(1)
			if i%20_000 == 19_999 {
				w.wait(j.Group(i % 16))
			}
		}
	}
	if err := j.Close(); err != nil {
		tb.Fatal(err)
	}
}
