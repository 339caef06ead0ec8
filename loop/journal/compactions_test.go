package journal

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// overlappingTables returns a disk with a store in "s" that needs a compaction, and that writes a table when it is
// opened.
func overlappingTables(t *testing.T) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewCrashableMem()
	o := storeOptions(disk, 0, silentLog(), storeEvents(newFailFS(disk)))
	o.DisableWAL, o.DisableAutomaticCompactions = false, true
	db, err := pebble.Open("s", o)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if err := errors.Join(db.Set([]byte("a"), []byte("b"), pebble.Sync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Set([]byte("a"), make([]byte, 2<<20), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	synced := disk.CrashClone(vfs.CrashCloneCfg{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return synced
}

// TestCompactionsBeginWithTheStore: a store that is opened compacts its tables, and one whose opening fails does not:
// the compaction would use what the failed opening has freed.
func TestCompactionsBeginWithTheStore(t *testing.T) {
	t.Parallel()
	compacts := make(chan struct{}, 100)
	begun := func(limit time.Duration) bool {
		select {
		case <-compacts:
			return true
		case <-time.After(limit):
			return false
		}
	}
	options := func(disk vfs.FS) *pebble.Options {
		events := storeEvents(newFailFS(disk))
		events.CompactionBegin = func(pebble.CompactionInfo) { compacts <- struct{}{} }
		return storeOptions(disk, 1<<20, silentLog(), events)
	}
	disk := overlappingTables(t)
	whole := disk.CrashClone(vfs.CrashCloneCfg{})
	failing := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRename { // of the file of options, the last that is written
			return errorfs.ErrInjected
		}
		return nil
	}))
	if _, err := openDB("s", options(failing)); !errors.Is(err, errorfs.ErrInjected) {
		t.Fatalf("the store was opened: %v", err)
	}
	if begun(200 * time.Millisecond) {
		t.Error("a compaction began in a store that is not open")
	}
	db, err := openDB("s", options(whole))
	if err != nil {
		t.Fatal(err)
	}
	if !begun(10 * time.Second) {
		t.Error("no compaction began in an open store")
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
