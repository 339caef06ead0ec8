package journal

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// heap is the number of bytes in use after a garbage collection.
func heap() int {
	runtime.GC()
	runtime.GC() // frees what a finalizer held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestLargeBatchesAreLetGo stores large jobs and removes them. The batches that brought them into
// the store leave the memory, though nothing is appended any more. Several of the smaller ones
// wait in the store's queue together, which makes its array longer.
func TestLargeBatchesAreLetGo(t *testing.T) {
	for _, sizes := range [][]int{{63_000_000}, {5 << 20, 5 << 20, 8 << 20}} {
		o := testOptions(vfs.Default)
		o.Dir, o.memTable, o.LogSize = filepath.Join(t.TempDir(), testDir), 0, 0
		before, total := heap(), 0
		d := mustOpen(t, o)
		flushes := d.j.db.Metrics().Flush.Count
		for _, size := range sizes {
			d.j.Put(0, &Record{Seq: d.next, Workload: make([]byte, size)})
			d.next++
			total += size
		}
		d.j.Flush(1)
		poll(t, "the jobs are not committed", func() bool { return d.j.Committed() >= d.j.Group(0) })
		for seq := range d.next {
			d.j.Delete(0, seq)
		}
		d.j.Flush(1) // this group begins the next log: the full one goes to the store
		poll(t, "the batches stay in memory", func() bool {
			if n := d.j.db.Metrics().Flush.Count; n != flushes { // else a collection would be in vain
				flushes = n
				return heap()-before < total/4
			}
			return false
		})
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoIdleFlushWithoutRoom holds that nothing is flushed on a full disk, where a write that
// fails would end the journal. This journal has no store: a flush would panic.
func TestNoIdleFlushWithoutRoom(t *testing.T) {
	f := &roomFS{FS: vfs.NewMem()}
	f.free.Store(cutRoom - 1)
	j := Journal{options: Options{FS: f}, idleFlushes: 1}
	if err := j.flushIdle(); err != nil || j.idleFlushes != 1 {
		t.Errorf("%v, %d flushes left, want 1", err, j.idleFlushes)
	}
	f.free.Store(cutRoom)
	if err := j.flushIdle(); err == nil || j.idleFlushes != 0 {
		t.Errorf("with room: %v, %d flushes left, want the panic and 0", err, j.idleFlushes)
	}
}
