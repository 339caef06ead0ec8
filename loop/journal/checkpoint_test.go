package journal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestGroupLargerThanLog checks that a group much larger than a log, written in many parts, is
// complete after kill -9 when its log is already in the store.
func TestGroupLargerThanLog(t *testing.T) {
	t.Parallel()
	f := vfs.NewCrashableMem()
	o := testOptions(f)
	o.BatchSize = 4 << 10
	for _, size := range []int{50, 70, 90, 130, 200} { // KiB
		d := mustOpen(t, o)
		for range size {
			d.create(1000)
		}
		if !d.wait() {
			t.Fatal(d.failure)
		}
		d.quiet()
		m := imageOf(t, f)
		got, err := reopen(m.disk(t))
		if err == nil {
			err = d.verify(got, d.j.Committed())
		}
		if err != nil {
			t.Errorf("%d KiB: %v", size, err)
		}
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecordsHaveOwnTables: no table holds records beside other keys. The meta of every checkpoint would make all
// tables overlap, and each checkpoint would write all records again.
func TestRecordsHaveOwnTables(t *testing.T) {
	t.Parallel()
	d := mustOpen(t, testOptions(vfs.NewMem()))
	for range 5 {
		for range 50 {
			d.create(1000)
		}
		if !d.wait() {
			t.Fatal(d.failure)
		}
	}
	d.quiet()
	levels, err := d.j.db.SSTables()
	if err != nil {
		t.Fatal(err)
	}
	records, others := 0, 0
	for _, level := range levels {
		for _, table := range level {
			first, last := table.Smallest.UserKey[0] == keyRecord, table.Largest.UserKey[0] == keyRecord
			switch {
			case first != last:
				t.Errorf("a table has the keys %q to %q", table.Smallest.UserKey, table.Largest.UserKey)
			case first:
				records++
			default:
				others++
			}
		}
	}
	if records == 0 || others == 0 {
		t.Errorf("there are %d tables of records and %d of other keys", records, others)
	}
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
}

// inStore returns a disk on which the first log is in the store and the process was killed before
// it retired the log. The manifest entry of the log's tables is not synced.
func inStore(t *testing.T) (d *driver, disk *vfs.MemFS) {
	t.Helper()
	f := vfs.NewCrashableMem()
	d = mustOpen(t, testOptions(f))
	for range 50 {
		d.create(1000)
	}
	d.wait()
	d.create(10) // the first log is full and retired
	d.wait()
	d.quiet()
	before := imageOf(t, f)
	name, _ := before.liveLog(t)
	for range 50 {
		d.create(1000)
	}
	d.wait()
	full := imageOf(t, f)[name]
	changes := len(d.changes)
	d.create(10)
	d.wait()
	d.quiet()
	m := imageOf(t, f)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	d.changes = d.changes[:changes]
	for _, next := range m.logs() {
		delete(m, next) // the next log did not exist yet
	}
	for _, spare := range m.names(spareSuffix) {
		delete(m, spare)
	}
	m[name] = full
	for file, b := range before {
		if path.Ext(file) == ".sst" && m[file] == nil {
			m[file] = b // a compaction removed it, which waits for a sync of the manifest
		}
	}
	var manifest string
	for file := range m {
		if strings.HasPrefix(path.Base(file), "MANIFEST-") && file > manifest {
			manifest = file
		}
	}
	all, synced := m[manifest], before[manifest]
	if m[name] == nil || !bytes.HasPrefix(all, synced) || len(all) == len(synced) {
		t.Fatalf("%s: %d bytes, and %d bytes of the manifest, %d of them synced", name, len(m[name]), len(all), len(synced))
	}
	disk = m.with(manifest, synced).crashable(t)
	file, err := disk.OpenReadWrite(manifest, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(bytes.Clone(all[len(synced):]), int64(len(synced))); err != nil {
		t.Fatal(err)
	}
	return d, disk
}

// TestLogThatIsInStore checks that the next start retires a log that is already in the store, but
// not while a loss of power can still undo the manifest.
func TestLogThatIsInStore(t *testing.T) {
	t.Parallel()
	for at := int64(1); ; at++ {
		d, disk := inStore(t)
		o := testOptions(disk)
		faulty := &faultFS{FS: disk, at: at, forever: true}
		o.FS = faulty
		next, err := openDriver(t, o)
		hit := faulty.hit.Load()
		if hit == nil {
			if logs := imageOf(t, disk).logs(); len(logs) != 1 {
				t.Errorf("%v", logs)
			}
		}
		after := disk.CrashClone(vfs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(1, 2))})
		if err == nil {
			_ = next.j.Close() // the disk may fail by now
		}
		got, err := reopen(after)
		if err == nil {
			err = d.verify(got, d.changes[len(d.changes)-1].group)
		}
		if err != nil {
			t.Fatalf("operation %d: %v", at, err)
		}
		if hit == nil {
			return
		}
	}
}

// TestDamageBeforeEmptyLog checks, also in mode Never, that an unreadable group in a full log,
// which was synced when it was closed, is reported even while the next log is empty.
func TestDamageBeforeEmptyLog(t *testing.T) {
	t.Parallel()
	f := vfs.NewCrashableMem()
	o := testOptions(f)
	o.Sync = Never
	d := mustOpen(t, o)
	for range 3 {
		d.create(100)
		d.wait()
	}
	m := imageOf(t, f)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	name, b := m.liveLog(t)
	parts := mustScan(t, name, b)
	whole := completeLog(t, 1, parts)
	m[path.Join(path.Dir(name), logName(2))] = nil
	if _, err := reopen(m.with(name, whole).disk(t)); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		bad := bytes.Clone(whole)
		bad[p.offset+chunkHead] ^= 1
		var damage *DamageError
		if _, err := reopen(m.with(name, bad).disk(t)); !errors.As(err, &damage) {
			t.Errorf("at %d of %d: %v", p.offset, len(b), err)
		}
	}
}

// TestFullLogCannotBeReadBack checks that a full log that reads differently from what was written
// causes no panic, and that nothing of it reaches the store.
func TestFullLogCannotBeReadBack(t *testing.T) {
	t.Parallel()
	f := vfs.NewCrashableMem()
	o := testOptions(f)
	o.LogSize = 4 << 20
	d := mustOpen(t, o)
	for range 3 {
		d.create(100)
		d.wait()
	}
	name, b := imageOf(t, f).liveLog(t)
	parts := mustScan(t, name, b)
	b = completeLog(t, fileNumber(path.Base(name)), parts)
	b[parts[1].offset+chunkHead] ^= 1
	file, err := f.Create(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = file.Write(b)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	err = d.j.checkpointFull(fullLog{path.Base(name), 0, nil})
	if m, _ := readMeta(d.j.db); err == nil || !strings.Contains(err.Error(), "read back") || d.j.storePanicked || m.group > 0 {
		t.Errorf("%v, and the store has group %d", err, m.group)
	}
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
}
