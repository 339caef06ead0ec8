package kts46

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/loop/protocol"
)

// Large definitions for TestKts46DefinitionsTakeNoMemory: together far more than maxHeap.
const (
	largeDefinitions = 200
	largeDefinition  = 512 << 10
	// maxHeap is enough for an idle journal, whose store has its tables and its cache in the heap in a build without C,
	// and for these jobs of 500 bytes. It is less than the definitions.
	maxHeap = 90 << 20
)

// heap returns the bytes in use after garbage collection.
func heap() int {
	runtime.GC()
	runtime.GC() // the second run frees objects with finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// wantHeap checks that the heap has grown by little.
func wantHeap(t *testing.T, when string, before int) {
	t.Helper()
	if more := heap() - before; more > maxHeap {
		t.Errorf("%s: %d bytes more are in use for %d definitions of %d, want %d at most", when, more, largeDefinitions, largeDefinition, maxHeap)
	}
}

// TestKts46DefinitionsTakeNoMemory adds many large definitions. Only the journal has their texts, and a start parses
// none.
func TestKts46DefinitionsTakeNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	if raceDetector {
		t.Skip("the journal's store takes its memory from the heap then, and YAML takes minutes")
	}
	t.Chdir(t.TempDir())
	before := heap()
	d := newDiskOn(vfs.Default)
	r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	r.does("createProject", "p")
	long := strings.Repeat("#"+strings.Repeat("x", 79)+"\n", largeDefinition/81)
	for i := range largeDefinitions {
		r.does("addJob", "p", fmt.Sprint(i), definition(float64(i), 0.5, i+1)+long)
	}
	wantHeap(t, "after addJob", before)
	wanted := r.does("getServerStatus")
	r = r.again(d)
	wantHeap(t, "after a start", before)
	if n := r.parsed.Load(); n != 0 {
		t.Errorf("the start has parsed %d definitions", n)
	}
	if got := r.does("getServerStatus"); !sameJSON(got, wanted) {
		t.Errorf("the status was %v, is %v", wanted, got)
	}
}

// TestKts46DefinitionsOfOldDirectories opens directories of versions that journaled no numbers, or those of another
// definition. Both definitions are parsed once.
func TestKts46DefinitionsOfOldDirectories(t *testing.T) {
	d := newDisk()
	r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	r.does("createProject", "p")
	for i := range 10 {
		r.does("addJob", "p", fmt.Sprint("job", i), definition(float64(i), 0.25, 2))
	}
	status := r.does("getServerStatus")
	restart := func(parsed uint64) {
		t.Helper()
		r.server.Flush(1)
		r = r.again(d)
		if got := r.parsed.Load(); got != parsed {
			t.Errorf("the start has parsed %d definitions, want %d", got, parsed)
		}
		if got := r.does("getServerStatus"); !sameJSON(got, status) {
			t.Errorf("the status was %v, is %v", status, got)
		}
	}
	restart(0)
	for i := range 7 {
		r.drop(r.projects["p"].jobs[fmt.Sprint("job", i)].document(protocol.KindBatchParams, nil))
	}
	restart(7)
	restart(0)
	r.put(r.projects["p"].jobs["job3"].document(protocol.KindDefinition, []byte(definition(300, 0.5, 2))))
	r.put(r.projects["p"].jobs["job4"].document(protocol.KindBatchParams, []byte("what is no JSON")))
	r.server.Flush(1)
	r = r.again(d)
	if got := r.parsed.Load(); got != 2 {
		t.Errorf("the start has parsed %d definitions, want the two whose numbers do not fit", got)
	}
	for name, want := range map[string]string{"job3": "p.job3: 0 (0/600).", "job4": "p.job4: 0 (0/16)."} {
		if got := r.does("getJobStatus", "p", name); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
