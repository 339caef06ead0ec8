package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSizeBound checks that the directory's size follows the stored jobs: however many jobs come
// and go, each synced, it stays below a bound independent of their number. In mode Always a job and
// its deletion are in different groups, so all of them reach the disk.
func TestSizeBound(t *testing.T) {
	jobs := 100_000
	if n := os.Getenv("JOURNAL_TEST_JOBS"); n == "million" {
		jobs = 1_000_000
	}
	w := newWaiters()
	dir := filepath.Join(t.TempDir(), "data")
	j, err := Open(Options{Dir: dir, Shards: 4, Committed: w.committed})
	if err != nil {
		t.Fatal(err)
	}
	w.j.Store(j)
	r := benchRecord()
	var highest uint64
	const turn = 500
	for first := uint64(1); first < uint64(jobs); first += turn {
		for seq := first; seq < first+turn; seq++ {
			r.Seq = seq
			j.Put(0, &r)
		}
		j.Flush(1)
		w.wait(j.Group(0))
		for seq := first; seq < first+turn; seq++ {
			j.Delete(0, seq)
		}
		j.Flush(1)
		w.wait(j.Group(0))
		if first%(20*turn) == 1 {
			highest = max(highest, onDisk(t, dir))
		}
	}
	s := j.Stats()
	size := onDisk(t, dir)
	t.Logf("%d jobs, %d records: %d KiB at the end, %d KiB at most", jobs, s.Records, size>>10, highest>>10)
	if s.Jobs != 0 || s.Records != uint64(2*jobs) || s.Size > size || max(size, highest) > 4*defaultLogSize {
		t.Fatalf("%+v", s)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	// The next start leaves only the empty store and one spare file.
	if j, err = Open(Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if size := onDisk(t, dir); size > defaultLogSize+1<<20 {
		t.Fatalf("%d KiB after a restart", size>>10)
	}
}

// onDisk returns the disk space of the files below dir, including allocated, unused space.
func onDisk(t *testing.T, dir string) (size uint64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the store has just removed it
		}
		if err == nil {
			size += uint64(info.Sys().(*syscall.Stat_t).Blocks) * 512
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return size
}

// TestSizeText checks that a size is printed in the largest unit that fits, rounded unless it is to be exact.
func TestSizeText(t *testing.T) {
	for size, want := range map[Size]string{
		0: "0 bytes", 1: "1 byte", 2: "2 bytes", 1023: "1023 bytes", 1 << 10: "1KiB", 1<<10 + 1: "1.0KiB", 1536: "1.5KiB", 64 << 10: "64KiB",
		64 << 20: "64MiB", 64<<20 + 1: "64.0MiB", 64<<20 - 1<<10: "64.0MiB", 70_000_000: "66.8MiB", 254541824: "242.8MiB",
		1 << 30: "1GiB", 3 << 29: "1.5GiB", 1<<31 - 1: "2.0GiB", 5 << 40: "5120GiB",
		55<<30 + 12345678: "55.0GiB", 1<<20 - 1: "1.0MiB", 1048525: "1.0MiB", 1048524: "1023.9KiB", 1<<30 - 1: "1.0GiB", -1: "-1 bytes",
	} {
		if got := size.String(); got != want {
			t.Errorf("%d: %q, want %q", int64(size), got, want)
		}
	}
	for size, want := range map[Size]string{0: "0 bytes", 1: "1 byte", 1<<10 + 1: "1025 bytes", 1536: "1536 bytes", 64<<20 - 1<<10: "65535KiB", 1<<31 - 1: "2147483647 bytes", 1 << 40: "1024GiB", -1: "-1 bytes"} {
		if got := size.Exact(); got != want {
			t.Errorf("%d: %q, want exactly %q", int64(size), got, want)
		}
	}
}
