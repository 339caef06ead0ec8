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

// changeSteps are all operations that change a disk, each on its own disk with the files old and
// dir/inner.
var changeSteps = map[string]func(g vfs.FS) error{
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

// TestFailFSTrips checks that each failing operation trips the file system with the file's name and
// the cause while the store sees success. After that no operation reaches the disk or fails.
func TestFailFSTrips(t *testing.T) {
	for name, step := range changeSteps {
		disk := guardDisk(t)
		g := newFailFS(&faultFS{FS: disk, kind: failEIO, at: 1, only: func(op string) bool { return op == name }})
		if err := step(g); err != nil {
			t.Errorf("%s: the store hears of it: %v", name, err)
		}
		err := g.failure()
		if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), strings.Fields(name)[1]) {
			t.Errorf("%s: tripped by %v", name, err)
			continue
		}
		select {
		case <-g.down:
		default:
			t.Errorf("%s: down is not closed", name)
		}
		before := disk.String()
		for after, step := range changeSteps {
			if err := step(g); err != nil {
				t.Errorf("%s after %s: %v", after, name, err)
			}
		}
		if disk.String() != before {
			t.Errorf("after %s the disk changed from\n%s\nto\n%s", name, before, disk.String())
		}
		if again := g.failure(); again != err {
			t.Errorf("%s: then tripped by %v", name, again)
		}
	}
}

// TestFailFSShortWrite checks that a short write without an error trips the file system.
func TestFailFSShortWrite(t *testing.T) {
	g := newFailFS(&faultFS{FS: guardDisk(t), kind: shortQuiet, at: 1, only: func(op string) bool { return op == "write a" }})
	if err := changeSteps["write a"](g); err != nil {
		t.Fatal(err)
	}
	if err := g.failure(); err == nil || !strings.Contains(err.Error(), "short write") {
		t.Fatal(err)
	}
}

// TestFailFSHolds checks that an untripped file system changes the disk, and that a harmless error
// does not trip it.
func TestFailFSHolds(t *testing.T) {
	for name, step := range changeSteps {
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

// TestStoreReports checks that the store's background errors, its fatal messages, and a damaged
// block found while the server runs become one failure and never end the process.
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
			t.Errorf("%s: Close returns %v, Failed got %v %d times; %d after %d", name, err, d.failure, d.failed.Load(), d.j.Committed(), before)
		}
	}
}

// TestStorePanics checks that a panic inside the store during a checkpoint is an ordinary failure
// and loses nothing, because the log exists.
func TestStorePanics(t *testing.T) {
	f := vfs.NewMem()
	o := testOptions(f)
	o.LogSize = 1 // every group fills a log
	d := mustOpen(t, o)
	d.quiet()
	d.j.db.Close() // makes the next use of the store panic
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
