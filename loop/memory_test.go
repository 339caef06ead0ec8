package loop

import (
	"bytes"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"treadle/sched"
)

// memoryWorld is a memoryLimit whose runtime a test plays. The collections that it forces find what live says.
type memoryWorld struct {
	*memoryLimit
	t       *testing.T
	log     bytes.Buffer
	live    int64
	garbage int64
	cycles  uint64
	mono    int64
	forced  uint64
}

func newMemoryWorld(t *testing.T, most int64) *memoryWorld {
	w := &memoryWorld{t: t}
	w.memoryLimit = newMemoryLimit(most, sched.New(sched.Options{Shards: 1}), slog.New(slog.NewTextHandler(&w.log, nil)))
	w.read = func() memoryReading {
		return memoryReading{cycles: w.cycles, live: w.live, objects: w.live + w.garbage, overhead: 1 << 20}
	}
	w.collect = func() {
		w.cycles++
		w.garbage = 0
		w.forced++
	}
	return w
}

// after lets time pass and checks whether new jobs are refused, and how many collections were forced so far.
func (w *memoryWorld) after(ms int64, refused bool, forced uint64) {
	w.t.Helper()
	w.mono += ms
	w.look(w.mono)
	if w.full() != refused || w.forced != forced {
		w.t.Errorf("at %d ms: refused %v after %d collections, want %v after %d", w.mono, w.full(), w.forced, refused, forced)
	}
}

// TestMemoryLimit: what is live counts, garbage does not. New jobs are taken again when the memory has fallen by a part.
// Near the limit collections are made, ever more rarely while nothing changes.
func TestMemoryLimit(t *testing.T) {
	w := newMemoryWorld(t, 64<<20)
	w.live, w.garbage = 10<<20, 20<<20
	w.after(250, false, 0)
	w.garbage = 60 << 20
	w.after(250, false, 1)
	w.garbage = 60 << 20
	w.after(100, false, 1) // too early
	w.after(150, false, 2)
	w.live = 64 << 20
	w.after(500, true, 3)
	w.live = 60 << 20
	w.after(1000, true, 4) // not by a part, with the overhead
	w.live = 58 << 20
	w.after(1000, true, 4) // nothing has said so
	w.after(1000, false, 5)
	if text := w.log.String(); strings.Count(text, "new jobs are refused") != 1 || strings.Count(text, "new jobs are taken") != 1 {
		t.Errorf("the log: %s", text)
	}
}

// TestMemoryBurst: jobs count at once, without a look.
func TestMemoryBurst(t *testing.T) {
	w := newMemoryWorld(t, 8<<20)
	w.after(250, false, 0)
	n := 0
	for ; !w.full() && n < 1000; n++ {
		err := w.sched.Submit(sched.Time{}, &sched.Submission{Queue: []byte("q"), Name: []byte{byte(n), byte(n >> 8)}, Workload: make([]byte, 64<<10)}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	if held := int64(n) * (64 << 10); held > 8<<20 || held < 6<<20 {
		t.Errorf("%d bytes of jobs are taken, of 7 MiB", held)
	}
	for i := range 20 {
		w.sched.Remove(sched.Time{}, 0, []byte("q"), []byte{byte(i), byte(i >> 8)}, nil)
	}
	if !w.full() {
		t.Error("new jobs are taken before a look")
	}
	w.after(250, false, 1)
}

// TestMemoryCollections: every collection of the runtime is noted until the end.
func TestMemoryCollections(t *testing.T) {
	m := newMemoryLimit(1<<40, sched.New(sched.Options{Shards: 1}), slog.New(slog.DiscardHandler))
	m.follow()
	defer m.close()
	runtime.GC()
	for range 1000 { // cleanups run some time after a collection
		m.mu.Lock()
		noted := m.last.cycles
		m.mu.Unlock()
		if noted > 0 {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
	t.Error("no collection is noted")
}
