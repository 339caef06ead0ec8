package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestCheckOfWholeStore checks that Check of an undamaged store reports its contents and changes
// nothing, and that Repair leaves it alone.
func TestCheckOfWholeStore(t *testing.T) {
	m, states := groups(t, Always, true)
	disk := m.disk(t)
	r, err := Check(testDir, disk)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Damage) > 0 || r.Format != presentFormat || int(r.Jobs) != len(states[0].jobs) || r.Settings != 1 || r.Epoch != 1 || r.Tables == 0 || r.Logs != 1 || r.Size == 0 || r.Kept != "" {
		t.Fatalf("%+v", r)
	}
	again, err := Repair(testDir, disk)
	if again.Size, r.Size = 0, 0; err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
		t.Fatalf("%+v, then %+v, %v", r, again, err)
	}
	for name, b := range takeImage(t, disk, testDir) {
		if path.Base(name) != lockName && !bytes.Equal(b, m[name]) {
			t.Errorf("%s was changed", name)
		}
	}
	// The torn end of a log is no damage.
	name, b := m.liveLog(t)
	if r, err := Check(testDir, m.with(name, b[:len(b)-5]).disk(t)); err != nil || len(r.Damage) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// repaired repairs a damaged image and returns the state afterwards. The damaged store must be kept
// unchanged.
func repaired(t *testing.T, m image) (Report, state) {
	t.Helper()
	disk := m.disk(t)
	checked, err := Check(testDir, disk)
	if err != nil || len(checked.Damage) == 0 {
		t.Fatalf("check: %+v, %v", checked, err)
	}
	r, err := Repair(testDir, disk)
	if err != nil {
		t.Fatalf("repair: %v", err)
	}
	if r.Jobs != checked.Jobs || r.Settings != checked.Settings || !slices.Equal(r.Damage, checked.Damage) {
		t.Fatalf("check says %+v, repair %+v", checked, r)
	}
	kept := takeImage(t, disk, testDir+"/"+r.Kept)
	for name, b := range m {
		if rest, ok := strings.CutPrefix(name, testDir+"/store/"); ok && rest != "LOCK" && !bytes.Equal(kept[testDir+"/"+r.Kept+"/"+rest], b) {
			t.Fatalf("%s is not kept in %s", name, r.Kept)
		}
	}
	got, err := reopen(disk)
	if err != nil {
		t.Fatalf("after the repair: %v", err)
	}
	if int(r.Jobs) != len(got.jobs) || int(r.Settings) != len(got.settings) {
		t.Fatalf("%d jobs and %d settings, the report says %d and %d", len(got.jobs), len(got.settings), r.Jobs, r.Settings)
	}
	if again, err := Check(testDir, disk); err != nil || len(again.Damage) > 0 || again.Epoch <= checked.Epoch || again.Group <= checked.Group {
		t.Fatalf("check after the repair: %+v, %v", again, err)
	}
	return r, got
}

// TestRepairLog checks that damage in one group of a log loses that group's changes and no others.
func TestRepairLog(t *testing.T) {
	f := vfs.NewCrashableMem()
	d := mustOpen(t, testOptions(f))
	for range 10 {
		for range 5 {
			d.create(50)
		}
		d.wait()
	}
	last := d.j.Committed()
	d.quiet()
	m := imageOf(t, f)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	name, b := m.liveLog(t)
	parts := mustScan(t, name, b)
	for i, p := range parts[:len(parts)-1] {
		bad := bytes.Clone(b)
		bad[(p.offset+p.end)/2] ^= 1
		r, got := repaired(t, m.with(name, bad))
		want := newState()
		for _, c := range d.changes {
			if c.group != last-uint64(len(parts)-1-i) {
				c.do(want)
			}
		}
		if !got.equal(want) {
			t.Fatalf("group %d damaged: %s", i, got.diff(want))
		}
		if r.Damage[0].Offset != p.offset || path.Base(r.Damage[0].File) != path.Base(name) {
			t.Fatalf("group %d at %d is reported as %v", i, p.offset, r.Damage)
		}
	}
}

// tables writes jobs into tables of many blocks.
func tables(t *testing.T) (image, *driver) {
	t.Helper()
	f := vfs.NewCrashableMem()
	o := testOptions(f)
	o.memTable, o.LogSize = 2<<20, 256<<10
	d := mustOpen(t, o)
	r := rand.New(rand.NewPCG(7, 8))
	for range 3000 {
		seq := d.next
		d.next++
		noise := make([]byte, 100)
		for i := range noise {
			noise[i] = byte(r.Uint32())
		}
		d.put(int(seq)%3, Record{Seq: seq, Space: 1, Name: noise[:20], Workload: noise})
	}
	d.setting("a", "1")
	d.wait() // the log is full
	for seq := uint64(1); seq <= 3000; seq += 10 {
		d.remove(seq)
	}
	d.wait()
	d.quiet()
	m := imageOf(t, f)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	return m, d
}

// TestRepairTable checks that damaged blocks of a table lose the jobs in these blocks, a run of
// neighbours a block, and no others. Deleted jobs stay deleted.
func TestRepairTable(t *testing.T) {
	t.Parallel()
	m, d := tables(t)
	want := d.after(math.MaxUint64)
	name := ""
	for _, n := range m.names(".sst") { // a table that a compaction read may be there still: the newest is the live one
		if len(m[n]) >= 200<<10 {
			name = n
		}
	}
	b := m[name]
	for _, at := range [][]int{{100, len(b) / 2}, {len(b) / 3, len(b)/3 + 17<<10}} {
		bad := bytes.Clone(b)
		for _, i := range at {
			bad[i] ^= 0x10
		}
		r, got := repaired(t, m.with(name, bad))
		lost := 0
		for seq, v := range want.jobs {
			if have, ok := got.jobs[seq]; !ok {
				lost++
			} else if have != v {
				t.Fatalf("job %d differs", seq)
			}
		}
		for seq := range got.jobs {
			if _, ok := want.jobs[seq]; !ok {
				t.Errorf("damage at %d: job %d is back", at, seq)
			}
		}
		if got.settings["a"] != "1" {
			t.Errorf("damage at %d: the settings are gone", at)
		}
		// A block of 16 KiB holds about 130 of these jobs.
		if lost < 100*len(at) || lost > 160*len(at) {
			t.Errorf("damage at %d: %d jobs lost", at, lost)
		}
		if len(r.Damage) != len(at) {
			t.Errorf("damage at %d is reported as %v", at, r.Damage)
		}
		for i, x := range r.Damage {
			if path.Base(x.File) != path.Base(name) || x.Offset > int64(at[i]) || x.Offset+x.Length < int64(at[i]) {
				t.Errorf("damage at %d is reported as %v", at[i], x)
			}
		}
	}
}

// TestRepairWithoutManifest checks that without a usable manifest all tables and logs are read and
// nothing is lost.
func TestRepairWithoutManifest(t *testing.T) {
	m, d := tables(t)
	want := d.after(math.MaxUint64)
	marker := m.names("")[slices.IndexFunc(m.names(""), func(n string) bool { return strings.Contains(n, "marker.manifest") })]
	manifest := testDir + "/store/" + marker[strings.Index(marker, "MANIFEST"):]
	withoutMarker := maps.Clone(m)
	delete(withoutMarker, marker)
	withoutManifest := maps.Clone(m)
	delete(withoutManifest, manifest)
	torn := bytes.Clone(m[manifest])
	torn[20] ^= 1
	for name, bad := range map[string]image{
		"no marker": withoutMarker, "no manifest": withoutManifest, "a damaged manifest": m.with(manifest, torn),
		"an empty manifest": m.with(manifest, nil), "half a manifest": m.with(manifest, m[manifest][:len(m[manifest])/2]),
	} {
		if got, err := reopen(bad.disk(t)); err == nil {
			// The state of an older manifest with its logs may be complete.
			if !got.equal(want) {
				t.Errorf("%s: %s", name, got.diff(want))
			}
			continue
		}
		r, got := repaired(t, bad)
		if !got.equal(want) {
			t.Errorf("%s: %s", name, got.diff(want))
		}
		if len(r.Damage) == 0 || r.Damage[0].File == "" {
			t.Errorf("%s is reported as %v", name, r.Damage)
		}
	}
}

// TestRepairCutManifest checks that a manifest that has lost its end, wherever, costs no job: the tables that it does
// not list are read. Those that a compaction has replaced are gone.
func TestRepairCutManifest(t *testing.T) {
	t.Parallel()
	for _, checkpoints := range []int{3, 5} {
		f := vfs.NewCrashableMem()
		o := testOptions(f)
		o.LogSize = 20 << 10 // each round is a checkpoint
		d := mustOpen(t, o)
		for range checkpoints {
			first := d.next
			for range 40 {
				d.create(1000)
			}
			d.remove(first)
			d.wait()
			d.quiet()
		}
		m := imageOf(t, f)
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
		want := d.after(math.MaxUint64)
		dropReplaced(t, m)
		// A compaction of records alone leaves the last group where it was. The store does not open without its table.
		names := m.names(".sst")
		moved := m.with(path.Dir(names[0])+"/000999.sst", m[names[0]])
		delete(moved, names[0])
		if _, got := repaired(t, moved); !got.equal(want) {
			t.Errorf("%d checkpoints, a table whose compaction is not in the manifest: %s", checkpoints, got.diff(want))
		}
		names = m.names("")
		manifest := names[slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(path.Base(n), "MANIFEST") && len(m[n]) > 100 })]
		for cut := 0; cut < len(m[manifest]); cut += 23 {
			bad := m.with(manifest, m[manifest][:cut])
			got, err := reopen(bad.disk(t))
			if err != nil {
				_, got = repaired(t, bad)
			}
			if !got.equal(want) {
				t.Errorf("%d checkpoints, cut at %d of %d (%v): %s", checkpoints, cut, len(m[manifest]), err, got.diff(want))
			}
		}
	}
}

// dropReplaced removes the tables that the manifest does not list.
func dropReplaced(t *testing.T, m image) {
	t.Helper()
	d, err := openReadOnly(m.disk(t), testDir)
	if err != nil {
		t.Fatal(err)
	}
	_, s, err := d.check(nil)
	if err := errors.Join(err, d.close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range m.names(".sst") {
		if _, live := s.tables[path.Base(name)]; !live {
			delete(m, name)
		}
	}
}

// TestRepairAgain checks that several repairs keep several damaged stores, that a damaged format
// file is rewritten, and that a record that cannot be decoded is reported and left out.
func TestRepairAgain(t *testing.T) {
	m, states := groups(t, Always, false)
	disk := m.with(testDir+"/store/"+formatName, []byte("?")).disk(t)
	for i := 1; i <= 3; i++ {
		r, err := Repair(testDir, disk)
		if err != nil || r.Kept != fmt.Sprint("store.damaged-", i) || int(r.Jobs) != len(states[0].jobs) {
			t.Fatalf("%+v, %v", r, err)
		}
		got, err := reopen(disk)
		if err != nil || !got.equal(states[0]) {
			t.Fatal(err, got.diff(states[0]))
		}
		f, err := disk.Create(testDir+"/store/"+formatName, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnknownRecord checks that a record of an unknown version ends a replay as damage that names
// the version, and that a repair leaves it out.
func TestUnknownRecord(t *testing.T) {
	f := vfs.NewCrashableMem()
	d := mustOpen(t, testOptions(f))
	d.create(10)
	d.create(10)
	d.wait()
	g := &d.j.shards[2]
	g.mu.Lock()
	at := len(g.buf)
	g.mu.Unlock()
	d.create(10) // number 3, in shard 0
	g = &d.j.shards[0]
	g.mu.Lock()
	g.buf[at+2+recordKeySize+1] = 9 // behind the value's length
	g.mu.Unlock()
	d.wait()
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := reopen(f); err == nil || !strings.Contains(err.Error(), "version 9") {
		t.Fatal(err)
	}
	r, err := Repair(testDir, f)
	if err != nil || len(r.Damage) == 0 || !strings.Contains(r.Damage[0].What, "version 9") || r.Jobs != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, err := reopen(f); err != nil || len(got.jobs) != 2 {
		t.Fatal(err, len(got.jobs))
	}
}

// TestRepairFails checks that a repair without enough disk space fails, destroys nothing and can be
// repeated.
func TestRepairFails(t *testing.T) {
	t.Parallel()
	m, _ := groups(t, Always, true)
	name, b := m.liveLog(t)
	bad := bytes.Clone(b)
	bad[50] ^= 1
	m = m.with(name, bad)
	tables := m.names(".sst")
	m = m.with(tables[len(tables)-1], []byte("no table"))
	step := int64(1)
	if testing.Short() {
		step = 10
	}
	for at := int64(1); ; at += step {
		disk := m.disk(t)
		f := &faultFS{FS: disk, kind: failENOSPC, at: at, forever: true}
		_, err := Repair(testDir, f)
		if f.hit.Load() == nil {
			if err != nil || at < 20 {
				t.Fatal(at, err)
			}
			return
		}
		if _, err := Repair(testDir, disk); err != nil {
			t.Fatalf("after it failed at operation %d (%s): %v", at, *f.hit.Load(), err)
		}
		if _, err := reopen(disk); err != nil {
			t.Fatalf("after it failed at operation %d (%s): %v", at, *f.hit.Load(), err)
		}
	}
}
