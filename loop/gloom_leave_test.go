package loop

import (
	"fmt"
	"testing"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
)

// TestManyQueuedJobsLeave: a master with 50,000 queued jobs disconnects; others are served
// between the batches in which they go, their ids are free at once, and in the end none is
// left.
func TestManyQueuedJobsLeave(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	master, other, worker := w.openGloom(0, true), w.openGloom(0, true), w.worker(0, "g")
	var all []byte
	for i := range 50_000 {
		all = gloom.AppendSubmit(all, fmt.Append(nil, i), []byte(`"t"`), 0, []byte("1"))
	}
	master.send(all)
	master.close()
	other.asks(`49999`, `"t"`, `,"body":1`)
	other.hears("the id of a queued job is free at once")
	for i := 0; ; i++ {
		w.sched.Tick(w.now(), &w.timer)
		left := w.sched.Stats().Jobs
		other.asks(`"mine"`, `"g"`, `,"body":1`)
		worker.grabs(1, 1)
		handle, _ := assigned(t, worker.frames()[0])
		worker.send(request(2, periodic.WorkDone, handle, []byte("1")))
		other.hears("while they go", `{"id":"mine","body":1}`)
		if left == 1 {
			if i < 2 {
				t.Errorf("50,000 jobs went in %d batches", i+1)
			}
			break
		}
		if i > 1000 {
			t.Fatalf("%d jobs stay", left)
		}
	}
	other.asks(`49998`, `"t"`, `,"body":1`)
	other.hears("the ids are free")
}

// TestSlaveThatLeaves: a slave that wants no more jobs takes its type back and makes no queue.
func TestSlaveThatLeaves(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	master, slave := w.openGloom(0, true), w.openGloom(0, false)
	for _, typ := range []string{`"t"`, gloom.Leaving} {
		slave.send(gloom.AppendJoin(nil, []byte(typ)))
		slave.hears("join "+typ, `{"ok":true}`)
	}
	master.asks(`1`, `"t"`, `,"body":1`)
	slave.hears("nothing: it has left")
	if got := w.sched.Stats().Queues; got != 1 {
		t.Errorf("%d queues", got)
	}
}
