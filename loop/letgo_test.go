package loop

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"treadle/codec/periodic"
)

// TestLargeJobsAreLetGo: when large jobs with large results are done, nothing of them stays in memory but
// in the journal's store, without further events.
func TestLargeJobsAreLetGo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	const jobs, size = 24, 4 << 20
	r := startServer(t, Options{Shards: 16, Loops: 2, Data: t.TempDir()})
	before := heapBytes()
	client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
	workload := make([]byte, size)
	for i := range uint32(jobs) {
		function := fmt.Sprint("f", i)
		worker.send(request(1, periodic.CanDo, str8(function)))
		client.send(request(i, periodic.RunJob, job(function, "large", workload...)))
		worker.send(request(2, periodic.GrabJob, nil))
		handle, _ := assigned(t, worker.next())
		worker.send(request(3, periodic.WorkDone, append(handle, workload...)))
		client.next()
	}
	client.in, worker.in = nil, nil
	r.until("the memory to be given back", func() bool {
		r.eachReactor((*reactor).sweep)
		return heapBytes()-before < jobs*size/2 // with the race detector the store takes its memory from the heap
	})
}

// TestLargeScratch: a conversation's buffer for a large request is not kept for ever.
func TestLargeScratch(t *testing.T) {
	r := startServer(t, Options{Gloom: GloomOptions{Masters: []string{"tcp://127.0.0.1:0"}, Slaves: []string{"off"}}})
	before := heapBytes()
	c := r.dialGloom(true)
	submit := `{"action":"submit","id":1,"type":"t","body":"` + strings.Repeat("x", 32<<20) + `"}`
	c.send(append(binary.BigEndian.AppendUint32(nil, uint32(len(submit))), submit...))
	if got, want := c.nextGloom("m", submit), `m < {"ok":true,"id":1}`; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	c.Close()
	r.until("the memory to be given back", func() bool {
		r.eachReactor((*reactor).sweep)
		return r.conns.count() == 0 && heapBytes()-before < 4<<20
	})
}

// heapBytes returns how many bytes are in use after garbage collection.
func heapBytes() int {
	runtime.GC()
	runtime.GC() // values with a finalizer go in the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
