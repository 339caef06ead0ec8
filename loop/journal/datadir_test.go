package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestInUse checks that every command refuses a directory in use, with its name and the setting
// that names another, and that the directory is free again afterwards.
func TestInUse(t *testing.T) {
	for name, f := range map[string]vfs.FS{"disk": vfs.Default, "memory": vfs.NewMem()} {
		dir := filepath.Join(t.TempDir(), "data")
		j, err := Open(Options{Dir: dir, FS: f})
		if err != nil {
			t.Fatal(err)
		}
		_, second := Open(Options{Dir: dir, FS: f})
		_, check := Check(dir, f)
		_, repair := Repair(dir, f)
		imp := importFrom(f, dir, strings.NewReader(`{"treadle_journal":1}`), nil)
		exp := export(f, dir, &strings.Builder{}, nil)
		for what, err := range map[string]error{"open": second, "check": check, "repair": repair, "import": imp, "export": exp} {
			if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "name another directory") {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if j, err = Open(Options{Dir: dir, FS: f}); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInUseByAnotherProcess checks the same for a directory that another process has locked.
func TestInUseByAnotherProcess(t *testing.T) {
	if dir := os.Getenv("JOURNAL_TEST_HOLD"); dir != "" {
		j, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("held\n")
		bufio.NewReader(os.Stdin).ReadString('\n')
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := filepath.Join(t.TempDir(), "data")
	other := exec.Command(os.Args[0], "-test.run=^TestInUseByAnotherProcess$")
	other.Env = append(os.Environ(), "JOURNAL_TEST_HOLD="+dir)
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatal(line, err)
	}
	holder := fmt.Sprintf("is in use by another treadle (process %d); stop that one, or name another directory", other.Process.Pid)
	var log bytes.Buffer
	if _, err := Open(Options{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), holder) {
		t.Errorf("%v", err)
	}
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "waiting for the data directory") || !strings.Contains(said, holder) {
		t.Errorf("the log says %s", said)
	}
	in.Close()
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	j, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestVersion checks that a directory of another version is refused with both version numbers
// before anything in it changes, and that a missing version is not guessed.
func TestVersion(t *testing.T) {
	m, _ := groups(t, Always, false)
	name := testDir + "/store/" + formatName
	if got := string(m[name]); got != formatText(presentFormat) || !strings.HasPrefix(got, "treadle journal 4, sum ") {
		t.Fatalf("the format file says %q", got)
	}
	for text, want := range map[string]string{
		formatText(5):         "has version 5, written by a newer treadle; this one knows version 4",
		"treadle journal 1\n": "has version 1; this treadle reads versions 2 to 4: export it with the one that wrote it",
		formatText(99):        "has version 99",
		"treadle journal 3\n": "does not say which version",
		strings.Replace(formatText(3), "3", "2", 1): "does not say which version",
		"":                      "does not say which version",
		"treadle journal 0\n":   "does not say which version",
		"treadle journal one\n": "does not say which version",
		"something else\n":      "does not say which version",
	} {
		newer := m.with(name, []byte(text))
		disk := newer.disk(t)
		_, err := Open(testOptions(disk))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if malformed := strings.HasPrefix(want, "does not"); errors.As(err, new(*DamageError)) != malformed {
			t.Errorf("%q: %v; is a DamageError: %v", text, err, !malformed)
		}
		for n, b := range takeImage(t, disk, testDir) {
			if n != testDir+"/"+lockName && string(b) != string(newer[n]) {
				t.Errorf("%q: %s was changed", text, n)
			}
		}
		if strings.HasPrefix(want, "has version") {
			if _, err := Check(testDir, newer.disk(t)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("check of %q: %v", text, err)
			}
			if _, err := Repair(testDir, newer.disk(t)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("repair of %q: %v", text, err)
			}
		}
	}
}

// TestInterruptedSwap checks that a swap interrupted at any step leaves a complete store, old or
// new, and that the next opening removes the rest.
func TestInterruptedSwap(t *testing.T) {
	m, states := groups(t, Always, false)
	moved := func(from, to string) func(image) {
		return func(m image) {
			for name, b := range m {
				if rest, ok := strings.CutPrefix(name, testDir+"/"+from+"/"); ok {
					delete(m, name)
					m[testDir+"/"+to+"/"+rest] = b
				}
			}
		}
	}
	for name, c := range map[string]struct {
		change func(image)
		err    string
	}{
		"a new store without its format file": {change: func(m image) { m[testDir+"/store.new/x.sst"] = []byte("x") }},
		"a new store beside the old": {change: func(m image) {
			m[testDir+"/store.new/FORMAT"] = []byte("treadle journal 1\n")
		}},
		"the old one moved away":             {change: moved("store", "store.new")},
		"scratch of a repair":                {change: func(m image) { m[testDir+"/store.scratch/1.sst"] = nil }},
		"only a damaged one":                 {change: moved("store", "store.damaged-1"), err: "rename store.damaged-1 to store and run"},
		"a damaged one and half a new one":   {change: func(m image) { moved("store", "store.damaged-1")(m); m[testDir+"/store.new/x"] = nil }, err: "rename store.damaged-1 to store and run"},
		"a damaged one and the one in place": {change: func(m image) { m[testDir+"/store.damaged-1/x"] = nil }},
	} {
		copied := maps.Clone(m)
		c.change(copied)
		disk := copied.disk(t)
		got, err := reopen(disk)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		case err != nil || missing(states, got) != 0:
			t.Errorf("%s: %v, lacks %d groups", name, err, missing(states, got))
		}
		for file := range takeImage(t, disk, testDir) {
			if strings.Contains(file, "store.new") || strings.Contains(file, "store.scratch") {
				t.Errorf("%s: %s is left", name, file)
			}
		}
	}
}

// TestDataDirErrors checks that an error of creating, reading or locking names the directory.
func TestDataDirErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
	if _, err := Open(Options{Dir: filepath.Join(file, "below")}); err == nil || !strings.Contains(err.Error(), "cannot create the data directory") {
		t.Error(err)
	}
	if _, err := Check(file, nil); err == nil || err.Error() != fmt.Sprintf("cannot open the data directory %q: not a directory", file) {
		t.Error(err)
	}
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	_, check := Check(nowhere, nil)
	_, repair := Repair(nowhere, nil)
	for what, err := range map[string]error{"check": check, "repair": repair, "export": Export(nowhere, nil, nil)} {
		if err == nil || !strings.Contains(err.Error(), "cannot open the data directory") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Stat(nowhere); !os.IsNotExist(err) {
		t.Errorf("looking made the directory: %v", err)
	}
	empty := t.TempDir()
	_, check = Check(empty, nil)
	_, repair = Repair(empty, nil)
	for what, err := range map[string]error{"check": check, "repair": repair, "export": Export(empty, nil, nil)} {
		if err == nil || !strings.Contains(err.Error(), "holds no store") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDirectoryMode checks that only the owner can read a new directory.
func TestDirectoryMode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data")
	j, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatal(info.Mode(), err)
	}
}

// TestStoreFormatIsPinned checks that a new version of the store's package does not raise the
// store's format.
func TestStoreFormatIsPinned(t *testing.T) {
	f := vfs.NewMem()
	if _, err := reopen(f); err != nil {
		t.Fatal(err)
	}
	desc, err := pebble.Peek(testDir+"/store", f)
	if err != nil || desc.FormatMajorVersion != 21 || storeFormat != 21 {
		t.Fatal(desc, err)
	}
}
