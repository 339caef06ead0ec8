package kts46

import (
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	codec "treadle/codec/kts46"
	"treadle/sched"
)

// TestKts46ListKeepsNobody: listing very many jobs or tasks blocks others only while the data is copied, not while it
// is sorted and encoded.
func TestKts46ListKeepsNobody(t *testing.T) {
	const jobs = 5000
	r := newTestHub(t, Options{})
	r.does("createProject", "p")
	for i := range jobs {
		name := fmt.Sprint("job ", i)
		r.does("addJob", "p", name, "simulationParameters: {duration: 2, stepDuration: 1, batchLength: 1}")
		r.does("runJob", "p", name)
		if i%2 == 0 {
			r.does("getJob", fmt.Sprint("worker ", i))
		}
	}
	var looked atomic.Bool // the list has begun its turn
	r.server.clock = func() sched.Time {
		looked.Store(true)
		return r.clock
	}
	f := func(what string, list func()) {
		t.Helper()
		// A hundred lock acquisitions take far less time than sorting, once this goroutine runs at the same time. On a
		// busy machine that takes several attempts.
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
		t.Errorf("%s: no other call has a turn meanwhile", what)
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
