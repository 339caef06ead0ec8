package loop

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"treadle/codec/periodic"
)

// The tests here run many peers at once on two loops, each in goroutines of its own. They check which peer got
// which job and result, and not how long it took.

// work does jobs until the connection ends, with so many grabs outstanding at any time. do decides how each job
// ends.
func (w *testConn) work(slots int, functions []string, do func(j *periodic.Job, handle []byte) [][]byte) {
	var b []byte
	for _, f := range functions {
		b = append(b, request(1, periodic.CanDo, str8(f))...)
	}
	for i := range slots {
		b = append(b, request(uint32(100+i), periodic.GrabJob)...)
	}
	if w.trySend(b) != nil {
		return
	}
	for {
		r, err := w.tryNext()
		if err != nil {
			return
		}
		handle, j := assigned(w.t, r)
		for _, b := range append(do(&j, handle), request(r.MsgID, periodic.GrabJob)) {
			if w.trySend(b) != nil {
				return
			}
		}
	}
}

// done ends a job well, with a result.
func done(handle []byte, result ...byte) [][]byte {
	return [][]byte{request(2, periodic.WorkDone, handle, result)}
}

// crew runs workers until the end of the test.
func (r *testServer) crew(n int, slots int, functions []string, do func(j *periodic.Job, handle []byte) [][]byte) {
	var all sync.WaitGroup
	r.t.Cleanup(all.Wait)
	for range n {
		w := r.greet(periodic.Worker)
		all.Go(func() { w.work(slots, functions, do) })
		r.t.Cleanup(func() { w.Close() })
	}
}

// pipeline sends n requests, window at a time, and calls got with every reply.
func (w *testConn) pipeline(n, window int, ask func(i int) []byte, got func(r periodic.Response)) {
	sent := 0
	for answered := 0; answered < n; answered++ {
		for ; sent < n && sent < answered+window; sent++ {
			if err := w.trySend(ask(sent)); err != nil {
				w.t.Error(err)
				return
			}
		}
		r, err := w.tryNext()
		if err != nil {
			w.t.Errorf("%d of %d requests are answered: %v", answered, n, err)
			return
		}
		got(r)
	}
}

var functions = []string{"alpha", "beta", "gamma", "delta", "epsilon"}

// TestExactlyOnce: 8 clients submit, 8 workers work, and every job is handed out
// once.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 2000
	r := startServer(t, Options{Loops: 2})
	var given [clients * each]atomic.Int32
	r.crew(8, 16, functions, func(j *periodic.Job, handle []byte) [][]byte {
		given[binary.BigEndian.Uint32(j.Workload)].Add(1)
		return done(handle)
	})
	var all sync.WaitGroup
	for c := range clients {
		w := r.greet(periodic.Client)
		all.Go(func() {
			w.pipeline(each, 64, func(i int) []byte {
				n := c*each + i
				return request(uint32(i), periodic.SubmitJob, job(functions[n%len(functions)], fmt.Sprint(n), binary.BigEndian.AppendUint32(nil, uint32(n))...))
			}, func(r periodic.Response) {
				if len(r.Body) != 1 || r.Body[0] != byte(periodic.Success) {
					t.Errorf("SUBMIT_JOB is answered %x", r.Body)
				}
			})
		})
	}
	all.Wait()
	r.until("all jobs to be done", func() bool { return r.sched.Stats().Done == clients*each })
	for i := range given {
		if n := given[i].Load(); n != 1 {
			t.Errorf("job %d was handed out %d times", i, n)
		}
	}
	if st := r.sched.Stats(); st.Jobs != 0 || st.Assigned != clients*each || st.Stale != 0 {
		t.Errorf("afterwards: %+v", st)
	}
}

// TestResultsNeverLost: workers are faster than the reply to a request, and every RUN_JOB gets its own result once.
func TestResultsNeverLost(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 1000
	r := startServer(t, Options{Loops: 2})
	r.crew(8, 16, functions, func(j *periodic.Job, handle []byte) [][]byte {
		return done(handle, append(j.Workload, j.Name...)...)
	})
	var all sync.WaitGroup
	for c := range clients {
		w := r.greet(periodic.Client)
		all.Go(func() {
			got := map[uint32]bool{}
			w.pipeline(each, 32, func(i int) []byte {
				return request(uint32(i), periodic.RunJob, job(functions[(c+i)%len(functions)], fmt.Sprint(c, " ", i), byte(c)))
			}, func(r periodic.Response) {
				if want := string(append([]byte{byte(c)}, fmt.Sprint(c, " ", r.MsgID)...)); string(r.Body) != want || got[r.MsgID] {
					t.Errorf("client %d got %q for message %d, want %q once", c, r.Body, r.MsgID, want)
				}
				got[r.MsgID] = true
			})
		})
	}
	all.Wait()
}

// TestWaitersShareAResult: many clients await few jobs, which each submits again and again. Each gets the result of a
// run that ended after its request.
func TestWaitersShareAResult(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 500
	r := startServer(t, Options{Loops: 2})
	var runs [8]atomic.Uint32
	r.crew(4, 4, functions, func(j *periodic.Job, handle []byte) [][]byte {
		run := runs[j.Name[0]-'0'].Add(1)
		return done(handle, binary.BigEndian.AppendUint32(nil, run)...)
	})
	var all sync.WaitGroup
	for c := range clients {
		w := r.greet(periodic.Client)
		all.Go(func() {
			var before [8]uint32
			for i := range each {
				k := (c + i) % 8
				before[k] = runs[k].Load()
				w.pipeline(1, 1, func(int) []byte {
					return request(uint32(i), periodic.RunJob, job(functions[k%len(functions)], fmt.Sprint(k)))
				}, func(r periodic.Response) {
					if len(r.Body) != 4 || binary.BigEndian.Uint32(r.Body) < before[k] {
						t.Errorf("job %d: got %x from before its submission", k, r.Body)
					}
				})
			}
		})
	}
	all.Wait()
}

// TestWorkerKilled: jobs of a worker that vanishes are given to the next one.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{Loops: 2})
	client := r.greet(periodic.Client)
	const jobs = 50
	for i := range jobs {
		client.send(request(uint32(i), periodic.RunJob, job("f", fmt.Sprint(i))))
	}
	client.ping()
	for round := range 4 {
		w := r.greet(periodic.Worker)
		w.send(request(1, periodic.CanDo, str8("f")))
		for i := range jobs {
			w.send(request(uint32(100+i), periodic.GrabJob))
		}
		seen := map[string]bool{}
		for range jobs {
			_, j := assigned(t, w.next())
			seen[string(j.Name)] = true
		}
		if len(seen) != jobs {
			t.Fatalf("worker %d got %d different jobs of %d", round, len(seen), jobs)
		}
		w.Close()
	}
	r.crew(1, 8, []string{"f"}, func(j *periodic.Job, handle []byte) [][]byte { return done(handle, j.Name...) })
	for range jobs {
		if got := client.next(); string(got.Body) != fmt.Sprint(got.MsgID) {
			t.Errorf("got %q for message %d", got.Body, got.MsgID)
		}
	}
}

// TestUnreliableWorkers: workers fail, put off, stay silent and vanish. Every client gets every result once.
func TestUnreliableWorkers(t *testing.T) {
	t.Parallel()
	const clients, each = 4, 300
	r := startServer(t, Options{Loops: 2})
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 4))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for range 6 {
		first := r.greet(periodic.Worker)
		workers.Go(func() {
			for w := first; ; w = r.greet(periodic.Worker) {
				w.work(8, functions, func(j *periodic.Job, handle []byte) [][]byte {
					switch draw(20) {
					case 0:
						return [][]byte{request(2, periodic.WorkFail, handle)}
					case 1:
						return [][]byte{request(2, periodic.SchedLater, handle, make([]byte, 8), []byte{0, 1})}
					case 2:
						w.Close()
						return nil
					}
					return done(handle, j.Name...)
				})
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	var all sync.WaitGroup
	for c := range clients {
		w := r.greet(periodic.Client)
		all.Go(func() {
			got := map[uint32]bool{}
			w.pipeline(each, 16, func(i int) []byte {
				return request(uint32(i), periodic.RunJob, job(functions[i%len(functions)], fmt.Sprint(c, "-", i)))
			}, func(r periodic.Response) {
				if string(r.Body) != fmt.Sprint(c, "-", r.MsgID) || got[r.MsgID] {
					t.Errorf("client %d got %q for message %d", c, r.Body, r.MsgID)
				}
				got[r.MsgID] = true
			})
		})
	}
	all.Wait()
	close(stop)
	if st := r.sched.Stats(); st.Abandoned == 0 || st.Released == 0 {
		t.Errorf("nothing was unreliable: %+v", st)
	}
	r.eachReactor(func(re *reactor) {
		for s := range re.sessions.all() {
			s.End(errStopping)
		}
	})
	workers.Wait()
}
