package kts46

import (
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	codec "treadle/codec/kts46"
	"treadle/sched"
)

// TestKtsListKeepsNobody: whoever lists very many jobs or tasks has the book for a look at them; others
// have their turns while they are put in order and into words.
func TestKtsListKeepsNobody(t *testing.T) {
	const jobs = 5000
	r := newRig(t, Options{})
	r.does("createProject", "p")
	for i := range jobs {
		name := fmt.Sprint("job ", i)
		r.does("addJob", "p", name, "simulationParameters: {duration: 2, stepDuration: 1, batchLength: 1}")
		r.does("runJob", "p", name)
		if i%2 == 0 {
			r.does("getJob", fmt.Sprint("worker ", i))
		}
	}
	var looked atomic.Bool // the listing has begun its turn
	r.server.clock = func() sched.Time {
		looked.Store(true)
		return r.clock
	}
	f := func(what string, list func()) {
		t.Helper()
		// A lock is taken a hundred times in far less than it takes to sort them, once this goroutine
		// runs meanwhile, which takes several tries on a machine that is busy with other things.
		const enough, tries = 100, 500
		for range tries {
			looked.Store(false)
			done, turns := make(chan struct{}), 0
			go func() {
				defer close(done)
				list()
			}()
			for over := false; !over; {
				r.mu.Lock()
				if looked.Load() {
					turns++
				}
				r.mu.Unlock()
				select {
				case <-done:
					over = true
				default:
				}
			}
			if turns >= enough {
				return
			}
		}
		t.Errorf("%s: nobody has a turn meanwhile", what)
	}
	for _, method := range []string{"getServerStatus", "getCurrentTasks"} {
		f(method, func() { _, _ = r.callXML(&codec.Call{Method: method}) })
	}
	for _, method := range []string{"getProjectStatus", "getJobsList"} {
		f(method, func() { _, _ = r.callXML(&codec.Call{Method: method, Params: []any{"p"}}) })
	}
	f("GET", func() { r.sendStatus(httptest.NewRecorder()) })
	f("getCurrentTasks of version 2", func() { _, _ = r.callJSON(&codec.Request{Method: "getCurrentTasks"}) })
}
