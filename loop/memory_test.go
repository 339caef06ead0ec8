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
	t        *testing.T
	log      bytes.Buffer
	live     int64
	garbage  int64
	cycles   uint64
	mono     int64
	forced   uint64
	asked    uint64 // requests refused
	overhead int64  // bytes in use apart from objects
}

func newMemoryWorld(t *testing.T, most int64) *memoryWorld {
	w := &memoryWorld{t: t, overhead: 1 << 20}
	w.memoryLimit = newMemoryLimit(most, sched.New(sched.Options{Shards: 1}), func() uint64 { return w.asked }, slog.New(slog.NewTextHandler(&w.log, nil)))
	w.read = func() memoryReading {
		return memoryReading{cycles: w.cycles, live: w.live, objects: w.live + w.garbage, overhead: w.overhead}
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
	w.check(w.mono)
	if w.full() != refused || w.forced != forced {
		w.t.Errorf("at %d ms: refused %v after %d collections, want %v after %d", w.mono, w.full(), w.forced, refused, forced)
	}
}

// TestMemoryLimit: what is live counts, garbage does not. New jobs are taken again when the memory has fallen by a
// part. Near the limit collections are made, ever more rarely while nothing changes.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	w := newMemoryWorld(t, 8<<20)
	w.after(250, false, 0)
	n := 0
	for ; !w.full() && n < 1000; n++ {
		w.submit(n)
	}
	if held := int64(n) * (64 << 10); held > 8<<20 || held < 6<<20 {
		t.Errorf("%d bytes of jobs are taken, of 7 MiB", held)
	}
	for i := range 20 {
		w.remove(i)
	}
	if !w.full() {
		t.Error("new jobs are taken before a look")
	}
	w.after(250, false, 1)
}

// submit submits a job of 64 KiB, and remove removes it.
func (w *memoryWorld) submit(n int) {
	w.t.Helper()
	err := w.sched.Submit(sched.Time{}, &sched.Submission{Queue: []byte("q"), Name: []byte{byte(n), byte(n >> 8)}, Workload: make([]byte, 64<<10)}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *memoryWorld) remove(n int) {
	w.sched.Remove(sched.Time{}, 0, []byte("q"), []byte{byte(n), byte(n >> 8)}, nil)
}

// TestMemoryAfterDrain: when the jobs are gone that were too many, new ones are taken at the next look, although the
// runtime makes no collection, or noted its last one when the jobs that it found had gone.
func TestMemoryAfterDrain(t *testing.T) {
	t.Parallel()
	const jobs = 96
	drained := func(w *memoryWorld) {
		for i := range jobs {
			w.remove(i)
		}
		w.live = 0
	}
	for name, drain := range map[string]func(w *memoryWorld){
		"no collection": drained,
		"a late note": func(w *memoryWorld) {
			w.cycles++
			drained(w)
			w.live = jobs * 64 << 10
			w.noteCollection()
			w.live = 0
		},
		"less overhead": func(w *memoryWorld) {
			w.cycles++
			w.overhead = 10 << 20
			w.noteCollection()
			w.overhead = 1 << 20
			drained(w)
		},
	} {
		w := newMemoryWorld(t, 8<<20)
		w.after(250, false, 0)
		for i := range jobs {
			w.submit(i)
		}
		w.live, w.overhead = jobs*64<<10, 4<<20
		w.cycles++
		w.noteCollection()
		w.after(250, true, w.forced+1)
		forced := w.forced
		drain(w)
		if !w.full() {
			t.Errorf("%s: new jobs are taken before a look", name)
		}
		w.overhead = 1 << 20
		w.check(w.mono + 1)
		if w.full() || w.forced > forced+1 {
			t.Errorf("%s: a look after the drain leaves new jobs refused: %v, after %d collections", name, w.full(), w.forced-forced)
		}
	}
}

// TestMemoryLog: a refusal is logged at once, also one that ends before the next look, and its end with how many
// requests were refused. Refusals that follow each other within moments have one pair of lines.
func TestMemoryLog(t *testing.T) {
	t.Parallel()
	w := newMemoryWorld(t, 64<<20)
	w.after(250, false, 0)
	refuse := func(n uint64) {
		w.t.Helper()
		w.rest.Store(64 << 20)
		if !w.full() || len(w.refusingCh) != 1 {
			t.Fatal("the watcher is not told")
		}
		<-w.refusingCh
		w.asked += n
		w.rest.Store(1 << 20)
	}
	wants := func(lines ...string) {
		t.Helper()
		got := strings.Split(strings.TrimSuffix(w.log.String(), "\n"), "\n")
		if w.log.Reset(); len(got) != max(len(lines), 1) {
			t.Errorf("the log has %q, want %q", got, lines)
			return
		}
		for i, line := range lines {
			if !strings.Contains(got[i], line) {
				t.Errorf("the log has %q, want %q", got[i], line)
			}
		}
	}
	refuse(7)
	w.logRefused()
	wants("new jobs are refused")
	w.after(1, false, 0)
	wants("new jobs are taken\" refused=7 ")
	for range 10 {
		refuse(2)
		w.after(250, false, 0)
	}
	wants("new jobs are refused")
	w.after(memoryQuiet, false, 0)
	wants("new jobs are taken\" refused=20 ")
	w.after(memoryQuiet, false, 0)
	wants()
}

// TestMemoryCollections: every collection of the runtime is noted until the end.
func TestMemoryCollections(t *testing.T) {
	t.Parallel()
	m := newMemoryLimit(1<<40, sched.New(sched.Options{Shards: 1}), nil, slog.New(slog.DiscardHandler))
	m.noteCollections()
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
