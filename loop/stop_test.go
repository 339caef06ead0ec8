package loop

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"treadle/codec/periodic"
	"treadle/loop/protocol"
)

// refused waits until an address has no listener any more.
func (r *testServer) refused() {
	r.t.Helper()
	r.until("the listeners to be closed", func() bool {
		c, err := net.DialTimeout("unix", r.unix, patience)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

// TestStopDeliversResults: a client gets the result of a running job although the server is stopping.
// Then all connections are closed.
func TestStopDeliversResults(t *testing.T) {
	t.Parallel()
	for _, loops := range []int{1, 2} {
		r := startServer(t, Options{Loops: loops, Drain: time.Hour})
		client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
		client.send(request(1, periodic.RunJob, job("f", "n")), request(2, periodic.RunJob, job("g", "nobody does it")))
		worker.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob))
		handle, _ := assigned(t, worker.next())
		r.end()
		r.refused()
		client.ping() // a connected peer is served
		worker.send(request(3, periodic.WorkDone, handle, []byte("result")))
		client.want(1, []byte("result")...)
		r.wait()
		if got := client.wantClosed(); len(got) > 0 {
			t.Errorf("the client got %x in the end", got)
		}
		worker.wantClosed()
		if n := r.closedFor(errStopping); n != 2 {
			t.Errorf("%d connections are counted as closed by the stop, want 2", n)
		}
	}
}

// TestStopWaitsForRunningJobs: a stopping server hands out no job, and waits for the running jobs that
// a restart would repeat, also when no client awaits their results.
func TestStopWaitsForRunningJobs(t *testing.T) {
	t.Parallel()
	for _, loops := range []int{1, 2} {
		log := &logBuffer{}
		r := startServer(t, Options{Loops: loops, Drain: time.Hour, Log: log.log()})
		client, worker, idle := r.greet(periodic.Client), r.greet(periodic.Worker), r.greet(periodic.Worker)
		worker.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob))
		worker.ping()
		client.ask(1, periodic.SubmitJob, job("f", "first"), byte(periodic.Success))
		handle, _ := assigned(t, worker.next())
		idle.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob))
		idle.ping()
		r.end()
		r.refused()
		waits := func() bool { return len(log.lines("waiting for those that are running\" jobs=1 ")) == 1 }
		r.until("the stop to wait", waits)
		client.ask(2, periodic.SubmitJob, job("f", "second"), byte(periodic.Success))
		worker.send(request(3, periodic.GrabJob))
		worker.ping()
		idle.ping() // and gets nothing else
		worker.send(request(4, periodic.WorkDone, handle))
		r.wait()
		for _, w := range []*testConn{worker, idle} {
			if got := w.wantClosed(); len(got) > 0 {
				t.Errorf("a worker got %x", got)
			}
		}
		if !waits() || len(log.lines("level=WARN")) > 0 {
			t.Errorf("the log says %s", log.said.String())
		}
	}
}

// TestStopSaysWhatItLeaves: when the drain time is over, the log says how many jobs of which functions
// are still running. A drain time of none waits for none. Tasks stay with their workers.
func TestStopSaysWhatItLeaves(t *testing.T) {
	t.Parallel()
	for _, drain := range []time.Duration{time.Nanosecond, 50 * time.Millisecond} {
		log := &logBuffer{}
		r := startServer(t, Options{Drain: drain, Log: log.log(), Dwork: DworkOptions{Listen: []string{"tcp://127.0.0.1:0"}}})
		client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
		worker.send(request(1, periodic.CanDo, str8("a b")), request(2, periodic.CanDo, str8("c")))
		for i, j := range [][]byte{job("a b", "1"), job("a b", "2"), job("c", "3")} {
			client.ask(uint32(i), periodic.SubmitJob, j, byte(periodic.Success))
			worker.send(request(uint32(10+i), periodic.GrabJob))
			assigned(t, worker.next())
		}
		h := r.hub()
		if err := h.Create(t.Context(), tasksOf("task")...); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Steal(t.Context(), "w", 1); err != nil {
			t.Fatal(err)
		}
		r.stop()
		if got := log.lines("level=WARN"); len(got) != 1 || !strings.Contains(got[0], `jobs=3 functions="\"a b\" 2, \"c\" 1"`) {
			t.Errorf("the log says %q", got)
		}
		if waits := log.lines("waiting for those"); len(waits) > 0 != (drain > time.Nanosecond) {
			t.Errorf("with --drain %v the log says %q", drain, waits)
		}
	}
}

// TestStopKeepsTasks: a stop does not wait for tasks, which keep their workers.
func TestStopKeepsTasks(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{Drain: time.Hour, Dwork: DworkOptions{Listen: []string{"tcp://127.0.0.1:0"}}})
	h := r.hub()
	if err := h.Create(t.Context(), tasksOf("task")...); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Steal(t.Context(), "w", 1); err != nil {
		t.Fatal(err)
	}
	r.stop()
}

// TestStopDeliversDump: a stopping server sends a large DUMP to the end, also one that waits to be
// encoded.
func TestStopDeliversDump(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{Drain: time.Hour, MaxFrame: 256 << 10, Gloom: GloomOptions{MaxFrame: 256 << 10}, MaxOutbound: 1 << 20})
	first, second := r.greet(periodic.Client), r.greet(periodic.Client)
	first.send(loadFrame(1, "f", 100_000))
	first.want(1, byte(periodic.Success))
	first.send(request(2, periodic.Dump))
	r.until("the first dump to be begun", func() bool { return len(r.encoders[protocol.Dump]) == 1 && r.longReplies.Load() == 0 })
	second.send(request(2, periodic.Dump))
	second.ping()
	r.end()
	r.refused()
	for _, w := range []*testConn{first, second} {
		if n, _ := fingerprint(t, w.read(func() {})); n != 100_000 {
			t.Errorf("a dump of %d jobs, want 100000", n)
		}
	}
	r.wait()
}

// TestStopWithStuckPeers: peers that do not read delay the end of the server by no more than its drain
// time, whatever kind of output they leave unread.
func TestStopWithStuckPeers(t *testing.T) {
	t.Parallel()
	f := func(what string, stick func(r *testServer)) {
		t.Helper()
		r := startServer(t, Options{Drain: 50 * time.Millisecond})
		stick(r)
		r.stop()
		if t.Failed() {
			t.Fatal(what)
		}
	}
	load := func(r *testServer) {
		w := r.greet(periodic.Client)
		w.send(loadFrame(1, "f", 100_000))
		w.want(1, byte(periodic.Success))
	}
	f("a job that nobody ends", func(r *testServer) {
		client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
		client.send(request(1, periodic.RunJob, job("f", "n")))
		worker.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob))
		assigned(t, worker.next())
	})
	f("replies that nobody reads", func(r *testServer) {
		client := r.greet(periodic.Client)
		client.send(request(1, periodic.SubmitJob, job(strings.Repeat("f", 255), "n")))
		client.next()
		client.send(bytes.Repeat(request(1, periodic.Status), 10_000))
		r.until("replies to pile up", func() (piled bool) {
			r.eachReactor(func(re *reactor) {
				for s := range re.sessions.all() {
					piled = piled || s.unsent() > 0
				}
			})
			return piled
		})
	})
	f("dumps that nobody reads, and those that wait behind them", func(r *testServer) {
		load(r)
		for range 4 {
			w := r.greet(periodic.Client)
			// A DUMP may be ready before the answer to a request behind it.
			w.send(slices.Concat(request(3, periodic.Ping), request(1, periodic.Dump), request(2, periodic.Dump)))
			w.want(3, byte(periodic.Pong))
		}
	})
}

// TestStopWhileDumping: a stop while DUMPs are asked for, encoded and begun to be sent.
func TestStopWhileDumping(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		r := startServer(t, Options{Drain: time.Duration(1 + i%3*5000), Loops: 1 + i%2})
		w := r.greet(periodic.Client)
		w.send(loadFrame(1, "f", 20_000))
		w.want(1, byte(periodic.Success))
		for range 3 {
			w.send(request(1, periodic.Dump), request(2, periodic.Dump))
		}
		for range i % 4 {
			r.turns()
		}
		r.stop()
	}
}

// TestShutdownRequest: SHUTDOWN stops the server as a signal does, and gets no reply.
func TestShutdownRequest(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{Loops: 2})
	client, other := r.greet(periodic.Client), r.greet(periodic.Worker)
	client.send(request(1, periodic.Shutdown))
	r.wait()
	if got := append(client.wantClosed(), other.wantClosed()...); len(got) > 0 {
		t.Errorf("SHUTDOWN was answered with %x", got)
	}
}

// TestRunTwice: two servers in one process serve on addresses of their own. A new server can use the
// addresses of one that has ended at once.
func TestRunTwice(t *testing.T) {
	t.Parallel()
	a, b := startServer(t, Options{HTTP: "127.0.0.1:0"}), startServer(t, Options{HTTP: "127.0.0.1:0"})
	a.greet(periodic.Client).ask(1, periodic.SubmitJob, job("only in a", "n"), byte(periodic.Success))
	b.greet(periodic.Client).ask(1, periodic.Status, nil)
	if n := b.metric("treadle_jobs"); n != 0 {
		t.Errorf("the other server has %d jobs", n)
	}
	left := a.greet(periodic.Client) // the server closes first, so its port rests in TIME_WAIT
	a.stop()
	left.wantClosed()
	b.greet(periodic.Client).ping()
	again := startServer(t, Options{Periodic: PeriodicOptions{Listen: []string{"tcp://" + a.tcp, "unix://" + a.unix}}, HTTP: a.http})
	w := again.dial("tcp")
	w.send(hello)
	w.next()
	w.ask(1, periodic.Status, nil)
	again.greet(periodic.Client).ping()
}

// TestRun: Run ends with its context.
func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan []Listening, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Periodic: PeriodicOptions{Listen: []string{"tcp://127.0.0.1:0"}}, Gloom: GloomOptions{Masters: []string{"off"}, Slaves: []string{"off"}}, Dwork: DworkOptions{Listen: []string{"off"}}, Kts46: kts46Off, HTTP: "off", Data: NoData,
			Started: func(l []Listening) { started <- l },
		})
	}()
	all := <-started
	if len(all) != 1 || all[0].Setting != "periodic" || !strings.HasPrefix(all[0].Address, "tcp://127.0.0.1:") || strings.HasSuffix(all[0].Address, ":0") {
		t.Errorf("listening on %+v", all)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Run does not return")
	}
}

// TestNodeClosesLast: a Disbatch node, which waits for its tasks, does not keep another protocol open.
func TestNodeClosesLast(t *testing.T) {
	t.Parallel()
	var names []string
	for service := range protocolsWith[protocol.Service](newMemServer(t, Options{}).Server) {
		names = append(names, service.Name())
	}
	if last := len(names) - 1; last < 1 || names[last] != "disbatch" {
		t.Errorf("the services close in the order %v", names)
	}
}

// TestNoAnswerToStaleRead: a server that may have a successor in its cluster by now closes connections instead of
// answering, also before it hears of that.
func TestNoAnswerToStaleRead(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	r := startServer(t, Options{HTTP: "127.0.0.1:0"}, func(s *Server) { s.holdsLease = func() bool { return !lost.Load() } })
	client := r.greet(periodic.Client)
	client.ping()
	answer := func() error {
		answer, err := http.Get("http://" + r.http + "/healthz")
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	if err := answer(); err != nil {
		t.Fatal(err)
	}
	lost.Store(true)
	client.send(request(1, periodic.Ping))
	if got := client.wantClosed(); len(got) > 0 {
		t.Errorf("the client got %x", got)
	}
	if err := answer(); err == nil {
		t.Error("HTTP answers")
	}
}
