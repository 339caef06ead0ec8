package journal

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardSteps are all operations that change a disk, each on a disk of its own with
// the files old and dir/inner.
var guardSteps = map[string]func(g vfs.FS) error{
	"create a": func(g vfs.FS) error {
		f, err := g.Create("a", "")
		return errors.Join(err, f.Close())
	},
	"write a": func(g vfs.FS) error {
		f, err := g.Create("a", "")
		n, werr := f.Write([]byte("12345678"))
		if n != 8 {
			werr = errors.Join(werr, errors.New("a short count"))
		}
		return errors.Join(err, werr, f.Close())
	},
	"sync a": func(g vfs.FS) error {
		f, err := g.Create("a", "")
		return errors.Join(err, f.Sync(), f.SyncData(), f.Close())
	},
	"close a": func(g vfs.FS) error {
		f, err := g.Create("a", "")
		return errors.Join(err, f.Close())
	},
	"reuse a": func(g vfs.FS) error {
		f, err := g.ReuseForWrite("old", "a", "")
		_, serr := f.Stat()
		return errors.Join(err, serr, f.Close())
	},
	"link a":      func(g vfs.FS) error { return g.Link("old", "a") },
	"rename old":  func(g vfs.FS) error { return g.Rename("old", "a") },
	"remove old":  func(g vfs.FS) error { return g.Remove("old") },
	"remove dir":  func(g vfs.FS) error { return g.RemoveAll("dir") },
	"make new":    func(g vfs.FS) error { return g.MkdirAll("new", 0o700) },
	"sync dir":    func(g vfs.FS) error { return syncDir(g, "dir") },
	"sync manifs": func(g vfs.FS) error { _, err := g.Create("manifs/MANIFEST-000001", ""); return err },
}

func guardDisk(t *testing.T) *vfs.MemFS {
	t.Helper()
	f := vfs.NewMem()
	for _, dir := range []string{"dir", "manifs"} {
		if err := f.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"old", "dir/inner"} {
		file, err := f.Create(name, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte("kept")); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// Each operation that fails breaks the guard with the file's name and the reason,
// and the store hears of a success. After that no operation of any kind reaches the
// disk, nor does it fail.
func TestGuardBreaks(t *testing.T) {
	for name, step := range guardSteps {
		disk := guardDisk(t)
		g := newFailFS(&faultFS{FS: disk, kind: failEIO, at: 1, only: func(op string) bool { return op == name }})
		if err := step(g); err != nil {
			t.Errorf("%s: the store hears of it: %v", name, err)
		}
		err := g.failure()
		if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), strings.Fields(name)[1]) {
			t.Errorf("%s: broken by %v", name, err)
			continue
		}
		select {
		case <-g.down:
		default:
			t.Errorf("%s: nobody is told", name)
		}
		before := disk.String()
		for after, step := range guardSteps {
			if err := step(g); err != nil {
				t.Errorf("%s after %s: %v", after, name, err)
			}
		}
		if disk.String() != before {
			t.Errorf("after %s the disk changed from\n%s\nto\n%s", name, before, disk.String())
		}
		if again := g.failure(); again != err {
			t.Errorf("%s: then broken by %v", name, again)
		}
	}
}

// A write that is short without an error is a failure too.
func TestGuardShortWrite(t *testing.T) {
	g := newFailFS(&faultFS{FS: guardDisk(t), kind: shortQuiet, at: 1, only: func(op string) bool { return op == "write a" }})
	if err := guardSteps["write a"](g); err != nil {
		t.Fatal(err)
	}
	if err := g.failure(); err == nil || !strings.Contains(err.Error(), "short write") {
		t.Fatal(err)
	}
}

// An unbroken guard changes the disk, and what is no failure does not break it.
func TestGuardHolds(t *testing.T) {
	for name, step := range guardSteps {
		disk := guardDisk(t)
		g := newFailFS(disk)
		before := disk.String()
		if err := errors.Join(step(g), g.failure()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.HasPrefix(name, "sync dir") && disk.String() == before {
			t.Errorf("%s did nothing", name)
		}
	}
	g := newFailFS(guardDisk(t))
	if err := g.Remove("nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove of nothing: %v", err)
	}
	if _, err := g.GetDiskUsage("dir"); !errors.Is(err, vfs.ErrUnsupported) {
		t.Errorf("disk usage: %v", err)
	}
	if _, err := g.Open("nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of nothing: %v", err)
	}
	if err := g.failure(); err != nil {
		t.Error(err)
	}
}

// What the store reports in the background, what it calls fatal, and a block that it
// finds damaged while the server runs end in one failure, and never the process.
func TestStoreReports(t *testing.T) {
	mine := errors.New("mine")
	for name, c := range map[string]struct {
		report func(g *failFS)
		want   string
	}{
		"background": {func(g *failFS) { storeEvents(g).BackgroundError(mine) }, "mine"},
		"fatal":      {func(g *failFS) { storeLog{log: silentLog().log, trip: g.trip}.Fatalf("it is %d", 5) }, "a fatal error: it is 5"},
		"corruption": {func(g *failFS) {
			storeEvents(g).DataCorruption(pebble.DataCorruptionInfo{Path: "store/7.sst", Details: mine})
		}, "store/7.sst is damaged: mine"},
	} {
		d := mustOpen(t, testOptions(vfs.NewMem()))
		d.create(10)
		d.wait()
		c.report(d.j.disk)
		c.report(d.j.disk)
		before := d.j.Committed()
		d.create(10)
		d.j.Flush(1)
		err := d.j.Close()
		if err == nil || !strings.Contains(err.Error(), c.want) || d.failed.Load() != 1 || d.failure != err || d.j.Committed() != before {
			t.Errorf("%s: Close says %v, Failed heard %v %d times; %d after %d", name, err, d.failure, d.failed.Load(), d.j.Committed(), before)
		}
	}
}

// A panic inside the store while a log is brought into it is a failure like another, and
// costs nothing: the log is there.
func TestStorePanics(t *testing.T) {
	f := vfs.NewMem()
	o := testOptions(f)
	o.LogSize = 1 // every group fills a log
	d := mustOpen(t, o)
	d.quiet()
	d.j.db.Close() // what comes next makes the store panic
	d.create(10)
	d.wait()
	<-d.j.disk.down
	if err := d.j.Close(); err == nil || !strings.Contains(err.Error(), "panicked") || d.failed.Load() != 1 {
		t.Fatal(err, d.failed.Load())
	}
	if _, err := os.Stat(testDir); err == nil {
		t.Fatal("the test wrote to the disk")
	}
	got, err := reopen(f)
	if err == nil {
		err = d.verify(got, d.j.Committed())
	}
	if err != nil {
		t.Fatal(err)
	}
}
