package journal

import (
	"bytes"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestConvert3 checks the exact export of a format 3 directory with records of every kind, before
// and after its conversion, and of an import of that format's own export.
func TestConvert3(t *testing.T) {
	golden := path.Join("testdata", "format3.jsonl")
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"killed", "closed"} {
		m, old := oldDirectory(t, 3, name)
		disk := m.disk(t)
		if got := exported(t, disk); sortedLines(got) != sortedLines(string(want)) {
			t.Errorf("%s: not as in %s:\n%s", name, golden, got)
		}
		j, err := Open(testOptions(disk))
		if err != nil {
			t.Fatal(err)
		}
		if j.Stats().Jobs != 31 || j.LastSeq() != 40 {
			t.Errorf("%s: %d records, the last is %d", name, j.Stats().Jobs, j.LastSeq())
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if got := exported(t, disk); got != string(want) {
			t.Errorf("%s, converted: not as in %s:\n%s", name, golden, got)
		}
		if r, err := Check(testDir, disk); err != nil || r.Format != presentFormat || r.Jobs != 31 || r.Documents != 22 || r.Settings != 3 || len(r.Damage) > 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		imported := vfs.NewMem()
		if err := importFrom(imported, testDir, bytes.NewReader(old), nil); err != nil {
			t.Fatal(err)
		}
		if got := exported(t, imported); got != string(want) {
			t.Errorf("%s, imported: not as in %s:\n%s", name, golden, got)
		}
	}
}

func exported(t *testing.T, f vfs.FS) string {
	t.Helper()
	var text strings.Builder
	if err := export(f, testDir, &text, nil); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestRepair3 checks that a repair of a format 3 directory builds one of the present format.
func TestRepair3(t *testing.T) {
	m, _ := oldDirectory(t, 3, "killed")
	want := exported(t, m.disk(t))
	for range 2 { // the second repairs one of the present format
		disk := m.with(formatFile, []byte("treadle journal ?\n")).disk(t)
		if r, err := Repair(testDir, disk); err != nil || len(r.Damage) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if got := exported(t, disk); sortedLines(got) != sortedLines(want) {
			t.Errorf("repaired, it is\n%s\nand was\n%s", got, want)
		}
		m = takeImage(t, disk, testDir)
	}
}

// TestV1TaskMalformed checks that arbitrary bytes in place of a version 1 task are an error and
// never a panic.
func TestV1TaskMalformed(t *testing.T) {
	whole := []byte("\x01w\x09\x01........\x01++++++++\x00work")
	for n := range whole[:len(whole)-len("work")] {
		r := Record{Space: v1SpaceDwork, Workload: whole[:n]}
		if err := r.upgradeV1(); err == nil {
			t.Errorf("%d bytes are accepted", n)
		}
	}
	r := Record{Space: v1SpaceDwork, Due: -5, Workload: whole}
	if err := r.upgradeV1(); err != nil || string(r.Holder) != "w" || len(r.Log) != 1 || len(r.After) != 1 || string(r.Workload) != "work" || r.Due != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestConvertLog3 checks that changes in the logs of a format 3 directory that supersede earlier
// ones, in the store and in the logs, do so after the conversion.
func TestConvertLog3(t *testing.T) {
	disk := vfs.NewCrashableMem()
	d := mustOpen(t, testOptions(disk))
	d.setting("kts46.project.kept", "1")
	d.setting("kts46.counts.kept\x00job", "{}")
	d.setting("kts46.project.first", "1")
	seq := d.create(10)
	d.wait()
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, testOptions(disk)) // applies them to the store
	d.setting("kts46.project.second", "1")
	d.wait()
	for _, key := range []string{"kts46.project.first", "kts46.project.second", "kts46.counts.kept\x00job"} {
		d.setting(key, "")
	}
	d.setting("kts46.project.kept", "2")
	d.remove(seq)
	d.create(10)
	d.wait()
	m := imageOf(t, disk)
	if err := d.j.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := reopen(m.with(formatFile, []byte(formatText(3))).disk(t))
	if err != nil {
		t.Fatal(err)
	}
	kept := Document{Kind: KindProject, Project: []byte("kept")}
	if len(got.jobs) != 1 || len(got.settings) != 1 || got.settings[string(kept.key(nil))] != `{"last_id":2}` {
		t.Errorf("%d jobs, %q", len(got.jobs), got.settings)
	}
}
