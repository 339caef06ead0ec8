package journal

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestReopen checks that the next opening has everything appended, in the order of creation, and
// continues the group numbers, the epoch and the highest Seq.
func TestReopen(t *testing.T) {
	f := vfs.NewMem()
	want := newState()
	var group, epoch uint64
	for round := range 4 {
		d := mustOpen(t, testOptions(f))
		if !d.start.equal(want) {
			t.Fatalf("round %d: %s", round, d.start.diff(want))
		}
		if d.j.Committed() <= group || d.j.epoch != epoch+1 {
			t.Fatalf("round %d begins at group %d of epoch %d after group %d of epoch %d", round, d.j.Committed(), d.j.epoch, group, epoch)
		}
		if s := d.j.Stats(); s.Jobs != int64(len(want.jobs)) || s.Recovered != s.Jobs || s.Recovery <= 0 {
			t.Fatalf("round %d: %d jobs, %d recovered in %v, want %d", round, s.Jobs, s.Recovered, s.Recovery, len(want.jobs))
		}
		var seqs []uint64
		for range 300 {
			seqs = append(seqs, d.create(200))
		}
		d.wait()
		for _, seq := range seqs[100:] {
			d.remove(seq)
		}
		d.change(seqs[0], 5)
		d.setting("timeout", fmt.Sprint(round))
		d.setting("keepalive", "x")
		d.setting("keepalive", "")
		d.wait()
		group, epoch = d.j.Committed(), d.j.epoch
		want = d.after(math.MaxUint64)
		if got := d.j.Stats().Jobs; got != int64(len(want.jobs)) {
			t.Fatalf("round %d: %d jobs stored, want %d", round, got, len(want.jobs))
		}
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
		if d.failed.Load() != 0 {
			t.Fatal(d.failure)
		}
	}
	if len(want.jobs) != 400 || want.settings["timeout"] != "3" || len(want.settings) != 1 {
		t.Fatalf("%d jobs, settings %v", len(want.jobs), want.settings)
	}
}

// TestLastSeq checks that a Seq is never reused: the highest is known after a restart although its
// job is deleted.
func TestLastSeq(t *testing.T) {
	f := vfs.NewMem()
	d := mustOpen(t, testOptions(f))
	if d.j.LastSeq() != 0 {
		t.Fatal(d.j.LastSeq())
	}
	for range 50 {
		d.create(10)
	}
	d.wait()
	for seq := uint64(2); seq <= 50; seq++ {
		d.remove(seq)
	}
	d.wait()
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, testOptions(f))
	defer d.j.Close()
	if d.j.LastSeq() != 50 || len(d.start.jobs) != 1 {
		t.Fatalf("last %d, %d jobs", d.j.LastSeq(), len(d.start.jobs))
	}
}

// TestReplay checks that settings come first and jobs in the order of their Seq, that progress
// increases to the total, and that a callback's error is returned.
func TestReplay(t *testing.T) {
	f := vfs.NewMem()
	d := mustOpen(t, testOptions(f))
	const jobs = 2*progressEvery + 10
	for range jobs {
		d.create(1)
	}
	d.document(KindProgress, "p1", "j", "{}")
	d.document(KindProject, "p1", "", "{}")
	d.setting("b", "2")
	d.setting("a", "1")
	d.wait()
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	j, err := Open(testOptions(f))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var order []string
	var last uint64
	var progress [][2]int64
	err = j.Replay(ReplayFuncs{Record: func(r *Record) error {
		if r.Seq <= last {
			return fmt.Errorf("job %d after %d", r.Seq, last)
		}
		last = r.Seq
		return nil
	}, Setting: func(key string, value []byte) error {
		order = append(order, fmt.Sprint(key, string(value), last))
		return nil
	}, Document: func(d *Document) error {
		order = append(order, fmt.Sprint(d.Kind, " ", string(d.Project), string(d.Name), string(d.Value), last))
		return nil
	}, Progress: func(done, total int64) { progress = append(progress, [2]int64{done, total}) }})
	if err != nil || last != jobs || !slices.Equal(order, []string{"a10", "b20", "project p1{}0", "progress p1j{}0"}) {
		t.Fatal(err, last, order)
	}
	if want := [][2]int64{{progressEvery, jobs}, {2 * progressEvery, jobs}, {jobs, jobs}}; !slices.Equal(progress, want) {
		t.Fatalf("progress %v, want %v", progress, want)
	}
	if err := j.Replay(ReplayFuncs{}); err != nil {
		t.Fatal(err)
	}
	mine := errors.New("mine")
	if err := j.Replay(ReplayFuncs{Record: func(*Record) error { return mine }}); err != mine {
		t.Fatal(err)
	}
	if err := j.Replay(ReplayFuncs{Setting: func(string, []byte) error { return mine }}); err != mine {
		t.Fatal(err)
	}
}

// TestGroups checks that in mode Always nothing is committed before its group is, and that groups
// are announced in order, once each, after they are committed.
func TestGroups(t *testing.T) {
	f := &slowSync{FS: vfs.NewMem(), came: make(chan struct{}, 1)}
	o := testOptions(f)
	var mu sync.Mutex
	var groups []uint64
	var j *Journal
	d := &driver{tb: t, news: make(chan struct{}, 1)}
	o.Committed = func(group uint64) {
		mu.Lock()
		defer mu.Unlock()
		if j.Committed() != group {
			t.Errorf("group %d is announced at %d", group, j.Committed())
		}
		groups = append(groups, group)
		d.signal()
	}
	var err error
	if j, err = Open(o); err != nil {
		t.Fatal(err)
	}
	d.j, d.start, d.next = j, newState(), 1
	if g := j.Group(1); g > j.Committed() {
		t.Fatalf("nothing was appended and group %d covers it", g)
	}
	<-f.came      // the opening's own group
	f.hold.Lock() // stops the disk
	d.create(10)
	first := j.Group(1)
	if first <= j.Committed() {
		t.Fatalf("group %d of a job that was just appended is committed", first)
	}
	j.Flush(1)
	<-f.came
	d.create(10)
	d.setting("a", "1")
	if second := j.Group(2); second != first+1 || j.SettingsGroup() != second || j.Group(1) != first {
		t.Fatalf("groups %d, then %d and %d", first, second, j.SettingsGroup())
	}
	if j.Committed() >= first || j.Stats().Backlog != 3 {
		t.Fatalf("committed %d while the disk stands still; backlog %d", j.Committed(), j.Stats().Backlog)
	}
	j.Flush(1)
	f.hold.Unlock()
	d.wait()
	if s := j.Stats(); s.Backlog != 0 || s.Groups != 2 || s.Records != 3 || s.Commit.Count() != 2 || s.Group.Cumulative()[1] != 1 || s.Group.Sum != 3 {
		t.Fatalf("%+v", s)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(groups, []uint64{first, first + 1}) {
		t.Fatalf("announced %v", groups)
	}
}

// slowSync is a disk whose log syncs wait for hold and whose new tables wait for tables.
type slowSync struct {
	vfs.FS
	hold, tables sync.Mutex
	came         chan struct{} // a log sync has begun to wait for hold; may be nil
}

func (s *slowSync) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		s.tables.Lock()
		defer s.tables.Unlock()
	}
	f, err := s.FS.Create(name, c)
	if err == nil && strings.HasSuffix(name, ".log") {
		f = &slowFile{f, s}
	}
	return f, err
}

type slowFile struct {
	vfs.File
	s *slowSync
}

func (f *slowFile) SyncData() error {
	select {
	case f.s.came <- struct{}{}:
	default:
	}
	f.s.hold.Lock()
	defer f.s.hold.Unlock()
	return f.File.SyncData()
}

// TestCancelledIsCommitted checks that a job finished before its commit is acknowledged without a
// write.
func TestCancelledIsCommitted(t *testing.T) {
	d := mustOpen(t, testOptions(vfs.NewMem()))
	defer d.j.Close()
	for range 100 {
		seq := d.create(100)
		d.remove(seq)
		d.wait()
	}
	if s := d.j.Stats(); s.Groups != 0 || s.Bytes != 0 || s.Jobs != 0 {
		t.Fatalf("%+v", s)
	}
}

// TestModesThatDoNotWait checks that in the modes Interval and Never every change counts as
// committed at once and is written an interval later.
func TestModesThatDoNotWait(t *testing.T) {
	for _, mode := range []Mode{Interval, Never} {
		f := vfs.NewMem()
		o := testOptions(f)
		o.Sync, o.Interval = mode, time.Hour
		d := mustOpen(t, o)
		for range 100 {
			d.create(10)
			d.j.Flush(1)
		}
		d.setting("a", "1")
		if d.j.Group(1) > d.j.Committed() || d.j.SettingsGroup() > d.j.Committed() {
			t.Fatalf("%v: group %d waits", mode, d.j.Group(1))
		}
		if s := d.j.Stats(); s.Groups != 0 || s.Backlog != 101 {
			t.Fatalf("%v: %+v", mode, s)
		}
		want := d.after(math.MaxUint64)
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := reopen(f); err != nil || !got.equal(want) {
			t.Fatalf("%v: %v, %s", mode, err, got.diff(want))
		}
		o.Interval = time.Millisecond
		d = mustOpen(t, o)
		d.create(10)
		d.wait()
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyAppenders checks that goroutines which append to their shards and wait for their groups
// all finish, and that every acknowledged change is there.
func TestManyAppenders(t *testing.T) {
	f := vfs.NewMem()
	w := newWaiters()
	o := testOptions(f)
	o.Shards, o.Committed = 4, w.committed
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	w.j.Store(j)
	const each = 300
	var all sync.WaitGroup
	for shard := range 4 {
		for half := range 2 {
			all.Go(func() {
				for i := range each {
					seq := uint64(1 + shard + 4*half + 8*i)
					j.Put(shard, &Record{Seq: seq, Space: 1})
					group := j.Group(shard)
					j.Flush(1)
					w.wait(group)
					if i%3 == 0 {
						j.Delete(shard, seq)
						j.Flush(1)
					}
				}
			})
		}
	}
	all.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := reopen(f)
	if err != nil || len(s.jobs) != 4*2*each*2/3 {
		t.Fatal(len(s.jobs), err)
	}
}

// TestJoined checks that the changes between Begin and End are in one group, whenever the committer takes them.
func TestJoined(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Shards = 1
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq < 2000; seq += 2 {
		j.Begin(0)
		j.Put(0, &Record{Seq: seq, Space: 1})
		first := j.Group(0)
		j.Flush(1)
		runtime.Gosched()
		j.Put(0, &Record{Seq: seq + 1, Space: 1})
		last := j.Group(0)
		j.End(0)
		if first != last {
			t.Fatalf("changes %d and %d are in the groups %d and %d", seq, seq+1, first, last)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLargeGroup checks that a group larger than a batch is committed in parts and as a whole.
func TestLargeGroup(t *testing.T) {
	f := vfs.NewMem()
	o := testOptions(f)
	o.BatchSize = 20 << 10
	d := mustOpen(t, o)
	for range 1000 {
		d.create(100)
	}
	d.create(100 << 10) // larger than a batch and the store's memory table
	d.remove(7)
	d.wait()
	for range 100 {
		d.create(100)
	}
	d.wait()
	want := d.after(math.MaxUint64)
	if got := d.j.Stats().Jobs; got != int64(len(want.jobs)) {
		t.Fatalf("%d jobs stored, want %d", got, len(want.jobs))
	}
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := reopen(f)
	if err != nil || !got.equal(want) {
		t.Fatal(err, got.diff(want))
	}
}

// TestOptions checks that invalid options are refused and defaults are set.
func TestOptions(t *testing.T) {
	bad := func(o Options, want string) {
		t.Helper()
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	bad(Options{}, "directory")
	bad(Options{Dir: testDir, FS: vfs.NewMem(), Sync: Never + 1}, "mode")
	bad(Options{Dir: testDir, FS: vfs.NewMem(), Interval: -1}, "negative")
	bad(Options{Dir: testDir, FS: vfs.NewMem(), Shards: -1}, "negative")
	j, err := Open(Options{Dir: "a/b/c", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	if j.options.Shards != 1 || j.options.Interval != 50*time.Millisecond {
		t.Fatalf("%+v", j.options)
	}
	j.Flush(1)
	if err := errors.Join(j.Close(), j.Close()); err != nil {
		t.Fatal(err)
	}
}
