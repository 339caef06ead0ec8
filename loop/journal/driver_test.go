package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// testTB is a testing.T or a rapid.T.
type testTB interface {
	Helper()
	Fatalf(format string, args ...any)
}

const testDir = "data"

// testOptions returns options for a journal in memory that fills logs and writes tables often.
func testOptions(f vfs.FS) Options {
	return Options{Dir: testDir, FS: f, Shards: 3, memTable: 64 << 10, LogSize: 40 << 10, Interval: time.Millisecond}
}

// state is the expected content of a journal: the stored values of jobs and settings. Documents are
// among the settings, under their keys in the store.
type state struct {
	jobs     map[uint64]string
	settings map[string]string
}

func newState() state { return state{jobs: map[uint64]string{}, settings: map[string]string{}} }

func (s state) equal(o state) bool {
	return maps.Equal(s.jobs, o.jobs) && maps.Equal(s.settings, o.settings)
}

func (s state) clone() state { return state{maps.Clone(s.jobs), maps.Clone(s.settings)} }

// diff describes briefly how a state differs from the expected one.
func (s state) diff(want state) string {
	var b strings.Builder
	n := 0
	note := func(format string, args ...any) {
		if n++; n <= 8 {
			fmt.Fprintf(&b, format, args...)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want.jobs)) {
		if s.jobs[k] != want.jobs[k] {
			note(" job %d is %.40q, not %.40q;", k, s.jobs[k], want.jobs[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.jobs)) {
		if _, ok := want.jobs[k]; !ok {
			note(" job %d is back;", k)
		}
	}
	if !maps.Equal(s.settings, want.settings) {
		note(" settings %v, not %v;", s.settings, want.settings)
	}
	return fmt.Sprintf("%d differences:%s", n, b.String())
}

// readState replays a journal.
func readState(j *Journal) (state, error) {
	s := newState()
	err := j.Replay(ReplayFuncs{Record: func(r *Record) error {
		if n := len(s.jobs); n > 0 {
			if _, twice := s.jobs[r.Seq]; twice {
				return fmt.Errorf("job %d is replayed twice", r.Seq)
			}
		}
		s.jobs[r.Seq] = string(appendRecord(nil, r))
		return nil
	}, Setting: func(key string, value []byte) error {
		s.settings[key] = string(value)
		return nil
	}, Document: func(d *Document) error {
		s.settings[string(d.key(nil))] = string(d.Value)
		return nil
	}})
	return s, err
}

// change is one appended change.
type change struct {
	group uint64 // of the change
	do    func(state)
}

// driver appends to a journal and remembers the changes, so that it knows which states are possible
// after a crash.
type driver struct {
	tb      testTB
	j       *Journal
	start   state
	changes []change
	failed  atomic.Int32
	failure error
	next    uint64
	news    chan struct{} // a group was committed since the last receive
}

// signal records that a group was committed.
func (d *driver) signal() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// openDriver opens a journal and reads its state.
func openDriver(tb testTB, o Options) (*driver, error) {
	tb.Helper()
	d := &driver{tb: tb, news: make(chan struct{}, 1)}
	o.Committed = func(uint64) { d.signal() }
	o.Failed = func(err error) {
		d.failure = err
		d.failed.Add(1)
	}
	j, err := Open(o)
	if err != nil {
		return nil, err
	}
	d.j = j
	if d.start, err = readState(j); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	d.next = j.LastSeq() + 1
	return d, nil
}

func mustOpen(tb testTB, o Options) *driver {
	tb.Helper()
	d, err := openDriver(tb, o)
	if err != nil {
		tb.Fatalf("cannot open: %v", err)
	}
	return d
}

// group returns the group of the change just appended, in every mode. After a failure the change
// may have been dropped.
func (d *driver) group(g *shardBuffer) uint64 {
	if d.j.disk.tripped.Load() {
		return math.MaxUint64
	}
	return g.last.Load()
}

func (d *driver) put(shard int, r Record) {
	value := string(appendRecord(nil, &r))
	d.j.Put(shard, &r)
	d.changes = append(d.changes, change{d.group(&d.j.shards[shard]), func(s state) { s.jobs[r.Seq] = value }})
}

// create puts a new job with a workload of the given size.
func (d *driver) create(size int) uint64 {
	seq := d.next
	d.next++
	d.put(int(seq)%d.j.options.Shards, Record{
		Seq: seq, Space: 1, Queue: []byte("queue"), Name: fmt.Appendf(nil, "name-%d", seq),
		Workload: bytes.Repeat([]byte{byte(seq)}, size),
	})
	return seq
}

func (d *driver) change(seq uint64, revision int64) {
	d.put(int(seq)%d.j.options.Shards, Record{Seq: seq, Space: 1, Name: fmt.Appendf(nil, "name-%d", seq), Revision: revision, Holder: []byte("holder")})
}

func (d *driver) remove(seq uint64) {
	shard := int(seq) % d.j.options.Shards
	d.j.Delete(shard, seq)
	d.changes = append(d.changes, change{d.group(&d.j.shards[shard]), func(s state) { delete(s.jobs, seq) }})
}

func (d *driver) setting(key, value string) {
	if value == "" {
		d.j.settingsBuffer().raw(opDelete, settingKey(key), nil)
		d.j.touch()
	} else {
		d.j.PutSetting(key, []byte(value))
	}
	d.changes = append(d.changes, change{d.group(d.j.settingsBuffer()), func(s state) {
		if value == "" {
			delete(s.settings, key)
		} else {
			s.settings[key] = value
		}
	}})
}

// document puts a document, or deletes it when the value is empty.
func (d *driver) document(kind Kind, project, name, value string) {
	doc := Document{Kind: kind, Project: []byte(project), Name: []byte(name), Value: []byte(value)}
	key := string(doc.key(nil))
	if value == "" {
		d.j.DeleteDocument(&doc)
	} else {
		d.j.PutDocument(&doc)
	}
	d.changes = append(d.changes, change{d.group(d.j.settingsBuffer()), func(s state) {
		if value == "" {
			delete(s.settings, key)
		} else {
			s.settings[key] = value
		}
	}})
}

// wait flushes and waits until every change is committed or the journal has failed. It reports
// whether the changes are committed.
func (d *driver) wait() bool {
	d.tb.Helper()
	d.j.Flush(1)
	var last uint64
	for _, c := range d.changes {
		last = max(last, c.group)
	}
	end := time.NewTimer(20 * time.Second)
	defer end.Stop()
	for d.j.Committed() < last {
		select {
		case <-d.news:
		case <-d.j.disk.down:
			return d.j.Committed() >= last
		case <-end.C:
			d.tb.Fatalf("group %d is not committed, only %d", last, d.j.Committed())
		}
	}
	return true
}

// after returns the state after all changes up to a group.
func (d *driver) after(group uint64) state {
	s := d.start.clone()
	for _, c := range d.changes {
		if c.group <= group {
			c.do(s)
		}
	}
	return s
}

// verify checks that got is the state after the acknowledged group or a later one.
func (d *driver) verify(got state, acknowledged uint64) error {
	groups := []uint64{acknowledged}
	for _, c := range d.changes {
		if c.group > acknowledged {
			groups = append(groups, c.group)
		}
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	for _, g := range groups {
		if got.equal(d.after(g)) {
			return nil
		}
	}
	return fmt.Errorf("not the state after any group of %v; compared with the first, %s", groups, got.diff(d.after(acknowledged)))
}

// reopen opens the directory on f and returns its state.
func reopen(f vfs.FS) (state, error) {
	j, err := Open(testOptions(f))
	if err != nil {
		return state{}, err
	}
	s, err := readState(j)
	return s, errors.Join(err, j.Close())
}

// poll waits for a condition without an event: the store's background work, and metrics.
func poll(tb testTB, what string, is func() bool) {
	tb.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s", what)
		}
	}
}

// awaitStats waits until the metrics satisfy right.
func (d *driver) awaitStats(right func(Stats) bool) (s Stats) {
	d.tb.Helper()
	poll(d.tb, "the metrics never reach the expected values", func() bool { s = d.j.Stats(); return right(s) })
	return s
}

// image is a copy of all files in a directory.
type image map[string][]byte

func takeImage(tb testTB, f vfs.FS, dir string) image {
	tb.Helper()
	m := image{}
	names, err := f.List(dir)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	for _, name := range names {
		name = f.PathJoin(dir, name)
		info, err := f.Stat(name)
		if err != nil {
			tb.Fatalf("%v", err)
		}
		if info.IsDir() {
			maps.Copy(m, takeImage(tb, f, name))
			continue
		}
		b, err := readFile(f, name)
		if err != nil {
			tb.Fatalf("%v", err)
		}
		m[name] = b
	}
	return m
}

// quiet waits until no background work is left: all logs but the open one are in the store, the
// spare file is ready, and the store is idle.
func (d *driver) quiet() {
	d.tb.Helper()
	poll(d.tb, "the store stays busy", func() bool {
		m := d.j.db.Metrics()
		names, err := d.j.options.FS.List(d.j.dir.log(""))
		if err != nil {
			d.tb.Fatalf("%v", err)
		}
		full, spares := -1, 0
		for _, name := range names {
			switch {
			case strings.HasSuffix(name, logSuffix):
				full++
			case strings.HasSuffix(name, spareSuffix):
				spares++
			}
		}
		busy := m.Flush.NumInProgress + m.Compact.NumInProgress + m.Table.ObsoleteCount + m.Table.ZombieCount
		return full <= 0 && spares == len(d.j.files.spares) && busy == 0
	})
}

// imageOf returns the image of a disk at one moment while writes continue.
func imageOf(tb testTB, f *vfs.MemFS) image {
	tb.Helper()
	return takeImage(tb, f.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), testDir)
}

// disk returns a file system with the files of the image.
func (m image) disk(tb testTB) *vfs.MemFS {
	tb.Helper()
	return m.writeTo(tb, vfs.NewMem())
}

// crashable returns a crashable disk on which the image is synced.
func (m image) crashable(tb testTB) *vfs.MemFS {
	tb.Helper()
	return m.writeTo(tb, vfs.NewCrashableMem())
}

func (m image) writeTo(tb testTB, f *vfs.MemFS) *vfs.MemFS {
	tb.Helper()
	dirs := map[string]bool{".": true, testDir: true}
	if len(m) == 0 {
		return f
	}
	for name, b := range m {
		if f.PathBase(name) == lockName {
			continue
		}
		if err := f.MkdirAll(f.PathDir(name), 0o755); err != nil {
			tb.Fatalf("%v", err)
		}
		dirs[f.PathDir(name)] = true
		file, err := f.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			tb.Fatalf("%v", err)
		}
		if _, err := file.Write(bytes.Clone(b)); err != nil {
			tb.Fatalf("%v", err)
		}
		if err := errors.Join(file.Sync(), file.Close()); err != nil {
			tb.Fatalf("%v", err)
		}
	}
	for dir := range dirs {
		if err := syncDir(f, dir); err != nil {
			tb.Fatalf("%v", err)
		}
	}
	return f
}

// with returns the image with one file replaced.
func (m image) with(name string, b []byte) image {
	c := maps.Clone(m)
	c[name] = b
	return c
}

// names returns the files with a suffix, in order.
func (m image) names(suffix string) []string {
	var names []string
	for name := range m {
		if strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// lines collects the output of a log handler.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var _ io.Writer = (*lines)(nil)
var _ testTB = (*testing.T)(nil)
