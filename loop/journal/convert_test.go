package journal

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// format2 returns a directory written by the last program of format 2, and its contents. Its log is
// in a reused file, and some of its data is in a table. The killed variant has groups of several
// parts.
func format2(t *testing.T, name string) (image, state) {
	t.Helper()
	m, export := oldDirectory(t, 2, name)
	want := stateOf(t, export)
	if len(want.jobs) < 90 {
		t.Fatalf("%d jobs", len(want.jobs))
	}
	return m, want
}

// stateOf returns the state in an export.
func stateOf(t *testing.T, export []byte) state {
	t.Helper()
	f := vfs.NewMem()
	if err := importFrom(f, testDir, bytes.NewReader(export), nil); err != nil {
		t.Fatal(err)
	}
	s, err := reopen(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// oldDirectory returns a directory written by the last program of a format, and that program's
// export of it. Directories of format 3 hold records of every kind.
func oldDirectory(t *testing.T, format int, name string) (m image, export []byte) {
	t.Helper()
	packed, err := os.Open(fmt.Sprintf("testdata/format%d.tar.gz", format))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	m = image{}
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if file, ok := strings.CutPrefix(h.Name, name+"/"); ok && h.Typeflag == tar.TypeReg {
			m[path.Join(testDir, file)] = b
		}
		if h.Name == name+".jsonl" {
			export = b
		}
	}
	return m, export
}

// sortedLines returns the lines of a text in order.
func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestConvert checks that a directory of format 2 keeps its contents and continues in the present
// format, and that Check and Export do not change it.
func TestConvert(t *testing.T) {
	for _, name := range []string{"killed", "closed"} {
		m, want := format2(t, name)
		disk := m.disk(t)
		r, err := Check(testDir, disk)
		if err != nil || r.Format != 2 || len(r.Damage) > 0 || int(r.Jobs) != len(want.jobs) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if err := export(disk, testDir, io.Discard, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for file, b := range takeImage(t, disk, testDir) {
			if !bytes.Equal(b, m[file]) {
				t.Errorf("%s: a read changed %s", name, file)
			}
		}
		d := mustOpen(t, testOptions(disk))
		if !d.start.equal(want) {
			t.Fatalf("%s: %s", name, d.start.diff(want))
		}
		d.create(100)
		d.remove(d.next - 20)
		d.wait()
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := reopen(disk)
		if err == nil {
			err = d.verify(got, d.j.Committed())
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r, err := Check(testDir, disk); err != nil || r.Format != presentFormat || len(r.Damage) > 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		kept := image{}
		for file, b := range takeImage(t, disk, testDir) {
			if strings.Contains(file, oldName) || strings.Contains(file, newName) {
				t.Errorf("%s: %s is left", name, file)
			}
			if rest, ok := strings.CutPrefix(file, testDir+"/"+keptName+"-2/"); ok {
				kept[testDir+"/"+storeName+"/"+rest] = b
			}
		}
		for file, b := range m {
			if strings.Contains(file, "/"+storeName+"/") && !bytes.Equal(kept[file], b) {
				t.Errorf("%s: the way back has another %s", name, file)
			}
		}
	}
}

// killedAt runs do on a disk on which operation at and all later ones fail. It returns what a loss
// of power leaves, or nil when there are fewer operations.
func killedAt(t *testing.T, m image, at int64, do func(vfs.FS) error) *vfs.MemFS {
	t.Helper()
	disk := m.crashable(t)
	f := &faultFS{FS: disk, at: at, forever: true}
	err := do(f)
	if f.hit.Load() == nil {
		if err != nil {
			t.Fatalf("without a fault: %v", err)
		}
		return nil
	}
	return disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(at % 3 * 50), RNG: rand.New(rand.NewPCG(uint64(at), 6))})
}

// TestConvertKilled checks that a conversion killed at any step leaves a directory with its
// contents.
func TestConvertKilled(t *testing.T) {
	t.Parallel()
	for _, format := range []int{2, 3} {
		m, export := oldDirectory(t, format, "killed")
		convertKilled(t, m, stateOf(t, export))
	}
}

func convertKilled(t *testing.T, m image, want state) {
	t.Helper()
	step := int64(1)
	if testing.Short() {
		step = 7
	}
	for at := int64(1); ; at += step {
		disk := killedAt(t, m, at, func(f vfs.FS) error {
			j, err := Open(testOptions(f))
			if err != nil {
				return err
			}
			return j.Close()
		})
		if disk == nil {
			if at < 40 {
				t.Fatalf("only %d operations", at)
			}
			return
		}
		if got, err := reopen(disk); err != nil || !got.equal(want) {
			t.Fatalf("operation %d: %v, %s", at, err, got.diff(want))
		}
	}
}

// TestImportKilled checks that an import killed at any step leaves everything imported or an empty
// directory.
func TestImportKilled(t *testing.T) {
	t.Parallel()
	text := `{"treadle_journal":1}
{"kind":"setting","key":"a","value":"b"}
{"kind":"job","space":1,"queue":"q","name":"one"}
{"kind":"job","space":1,"queue":"q","name":"two"}
`
	empty := vfs.NewMem()
	if _, err := reopen(empty); err != nil {
		t.Fatal(err)
	}
	m := takeImage(t, empty, testDir)
	took, left := 0, 0
	for at := int64(1); ; at++ {
		disk := killedAt(t, m, at, func(f vfs.FS) error { return importFrom(f, testDir, strings.NewReader(text), nil) })
		if disk == nil {
			break
		}
		got, err := reopen(disk)
		switch {
		case err == nil && len(got.jobs) == 2 && got.settings["a"] == "b":
			took++
		case err == nil && len(got.jobs)+len(got.settings) == 0:
			left++
		default:
			t.Fatalf("operation %d: %v, %s", at, err, got.diff(newState()))
		}
	}
	if left < 10 { // the last operation may be the one that makes the import survive
		t.Fatalf("%d times all, %d times nothing", took, left)
	}
	whole := m.disk(t)
	if err := importFrom(whole, testDir, strings.NewReader(text), nil); err != nil {
		t.Fatal(err)
	}
	if got, err := reopen(whole); err != nil || len(got.jobs) != 2 || got.settings["a"] != "b" {
		t.Fatalf("without a kill: %v, %s", err, got.diff(newState()))
	}
}

// TestConvertDamaged checks that damage in a directory of format 2 is reported before the
// conversion, and that a repair builds a directory of the present format from the readable data.
func TestConvertDamaged(t *testing.T) {
	m, want := format2(t, "killed")
	name, b := m.liveLog(t)
	parts, _ := format2Framing(fileNumber(path.Base(name))).parts(t, b)
	for _, p := range parts[:5] {
		bad := bytes.Clone(b)
		bad[p.offset+format2Head+60] ^= 1
		disk := m.with(name, bad).disk(t)
		var damage *DamageError
		if _, err := reopen(disk); !errors.As(err, &damage) {
			t.Fatalf("%v", err)
		}
		if r, err := Repair(testDir, disk); err != nil || len(r.Damage) == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		got, err := reopen(disk)
		if err != nil || len(got.jobs) < len(want.jobs)/2 {
			t.Fatalf("%v, %s", err, got.diff(want))
		}
	}
}
