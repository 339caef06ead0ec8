package journal

import (
	"bytes"
	"errors"
	"log/slog"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestLastRecordDamaged flips one bit of the last record. After a kill the record is dropped, and a
// start and a check report file, offset and size. After a clean shutdown it is damage.
func TestLastRecordDamaged(t *testing.T) {
	f := vfs.NewCrashableMem()
	d := mustOpen(t, testOptions(f))
	for range 3 {
		d.create(100)
		d.wait()
	}
	killed := imageOf(t, f)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	closed := imageOf(t, f)
	name, b := killed.liveLog(t)
	parts := mustScan(t, name, b)
	last := parts[len(parts)-1]
	bad := bytes.Clone(b)
	bad[(last.offset+last.end)/2] ^= 1

	disk := killed.with(name, bad).disk(t)
	r, err := Check(testDir, disk)
	if err != nil || len(r.Damage) > 0 || len(r.Dropped) != 1 || r.Dropped[0].Offset != last.offset ||
		r.Dropped[0].Length < last.end-last.offset || path.Join(testDir, r.Dropped[0].File) != name {
		t.Errorf("%+v, %v", r, err)
	}
	next := mustOpen(t, testOptions(disk))
	if got := next.j.Stats().Dropped; got != uint64(r.Dropped[0].Length) || len(next.start.jobs) != 2 {
		t.Errorf("%d bytes dropped, %d jobs", got, len(next.start.jobs))
	}
	if err := next.j.Close(); err != nil {
		t.Fatal(err)
	}
	if again, err := Check(testDir, disk); err != nil || len(again.Dropped) > 0 {
		t.Errorf("%+v, %v", again, err)
	}

	var damage *DamageError
	disk = closed.with(name, bad).disk(t)
	if _, err := reopen(disk); !errors.As(err, &damage) || damage.Damage[0].Offset != last.offset || !strings.Contains(err.Error(), "although a clean shutdown followed") {
		t.Errorf("%v", err)
	}
	if r, err := Repair(testDir, disk); err != nil || len(r.Damage) != 1 || r.Jobs != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if got, err := reopen(disk); err != nil || len(got.jobs) != 2 {
		t.Errorf("%v, %d jobs", err, len(got.jobs))
	}
}

// TestClosedMarker checks that the marker of a clean shutdown is used, and stays true when more is
// written.
func TestClosedMarker(t *testing.T) {
	f := vfs.NewCrashableMem()
	d := mustOpen(t, testOptions(f))
	d.create(100)
	d.wait()
	marker := path.Join(testDir, storeName, closedName)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	m := imageOf(t, f)
	log, _ := m.liveLog(t)
	without := m.with(log, nil)
	delete(without, log)
	for what, bad := range map[string]image{
		"the last log is gone":      without,
		"the last log is empty":     m.with(log, nil),
		"the last log is zeros":     m.with(log, make([]byte, len(m[log]))),
		"the marker is overwritten": m.with(marker, []byte("x")),
		"the marker says more":      m.with(marker, []byte(closedText(17))),
	} {
		var damage *DamageError
		if _, err := reopen(bad.disk(t)); !errors.As(err, &damage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	disk := m.crashable(t)
	d = mustOpen(t, testOptions(disk))
	d.create(100)
	d.wait()
	m = imageOf(t, disk)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := reopen(m.disk(t)); err != nil || len(got.jobs) != 2 || m[marker] == nil {
		t.Errorf("%v, %d jobs", err, len(got.jobs))
	}
}

// TestReadOnlyLeavesNothing checks that Check and Export leave nothing in a directory, not even a
// lock.
func TestReadOnlyLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	for what, look := range map[string]func() error{
		"check":  func() error { _, err := Check(dir, nil); return err },
		"export": func() error { return Export(dir, &bytes.Buffer{}, nil) },
	} {
		if err := look(); err == nil || !strings.Contains(err.Error(), "holds no store") {
			t.Errorf("%s: %v", what, err)
		}
		if names, err := vfs.Default.List(dir); err != nil || len(names) > 0 {
			t.Errorf("%s left %v, %v", what, names, err)
		}
	}
}

// TestDuplicates checks that several jobs with one name are reported: all but the last must have
// ended, and that a repair keeps the last.
func TestDuplicates(t *testing.T) {
	f := vfs.NewMem()
	d := mustOpen(t, testOptions(f))
	put := func(r Record, queue, name string) uint64 {
		r.Seq, r.Queue, r.Name = d.next, []byte(queue), []byte(name)
		d.next++
		d.put(int(r.Seq)%3, r)
		return r.Seq
	}
	job := func(space uint8, queue, name string) uint64 { return put(Record{Space: space}, queue, name) }
	first := job(1, "a", "b")
	job(2, "a", "b")
	job(1, "ab", "")
	second := job(1, "a", "b")
	put(Record{Kind: KindEdge}, "q", "")
	put(Record{Kind: KindEdge}, "q", "")
	job(1, "dropped", "c")
	put(Record{Kind: KindDropped}, "dropped", "")
	job(1, "dropped", "c")
	last := job(1, "a", "b")
	d.wait()
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := Check(testDir, f); err != nil || len(r.Damage) != 1 || !strings.Contains(r.Damage[0].What, "later job, because their deletions were lost: 2, ") {
		t.Errorf("%+v, %v", r, err)
	}
	r, err := Repair(testDir, f)
	if err != nil || r.Duplicates != 2 || r.Jobs != 8 {
		t.Errorf("%+v, %v", r, err)
	}
	got, err := reopen(f)
	if err != nil || got.jobs[first]+got.jobs[second] != "" || got.jobs[last] == "" || len(got.jobs) != 8 {
		t.Errorf("%v, %d jobs", err, len(got.jobs))
	}
}

// TestCloseOnFullDisk checks that a shutdown is clean although the full disk has no room for its
// marker.
func TestCloseOnFullDisk(t *testing.T) {
	f := &faultFS{FS: vfs.NewMem(), kind: failENOSPC, at: 1, forever: true, only: func(op string) bool {
		return strings.Contains(op, closedName) && !strings.HasPrefix(op, "sync") && !strings.HasPrefix(op, "close")
	}}
	var log lines
	o := testOptions(f)
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	d := mustOpen(t, o)
	d.create(10)
	d.wait()
	if err := d.j.Close(); err != nil || f.hit.Load() == nil || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("%v, %s", err, log.String())
	}
	if got, err := reopen(f.FS); err != nil || len(got.jobs) != 1 {
		t.Errorf("%v, %d jobs", err, len(got.jobs))
	}
}
