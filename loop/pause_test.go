package loop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"treadle/codec/periodic"
)

// manyFunctions makes a client, and a worker of so many functions that each of its GRAB_JOBs costs half
// of maxTurnCost.
func manyFunctions(w *memServer) (worker, client *memConn) {
	const many = maxTurnCost / 2
	worker = w.join(0, periodic.Worker)
	for i := range many {
		worker.receive(request(1, periodic.CanDo, str8(fmt.Sprint("f", i))))
	}
	w.settle()
	worker.frames()
	return worker, w.join(0, periodic.Client)
}

// jobsEverywhere submits jobs "0", "1" ..., each of another function.
func jobsEverywhere(c *memConn, n int) {
	for i := range n {
		c.receive(request(1, periodic.SubmitJob, job(fmt.Sprint("f", i), fmt.Sprint(i))))
	}
	c.w.settle()
	c.frames()
}

// grabsOf returns n GRAB_JOBs.
func grabsOf(n uint32) (b []byte) {
	for i := range n {
		b = append(b, request(i, periodic.GrabJob)...)
	}
	return b
}

// pausedAt returns a worker that is paused with n GRAB_JOBs and more, for as many jobs.
func pausedAt(w *memServer, n uint32, more ...byte) *memConn {
	w.t.Helper()
	worker, client := manyFunctions(w)
	jobsEverywhere(client, int(n))
	worker.receive(append(grabsOf(n), more...))
	if !worker.s.paused {
		w.t.Fatal("it is not paused")
	}
	return worker
}

// goOn resumes a paused session.
func (c *memConn) goOn() {
	c.w.t.Helper()
	rest := len(c.s.partial)
	for range 2 { // other sessions may have had the first turn
		c.w.runTimers()
	}
	if c.s.paused && len(c.s.partial) == rest {
		c.w.t.Fatalf("it stops with %d bytes left", rest)
	}
}

// catchUp resumes a session until it is no longer paused.
func (c *memConn) catchUp() {
	c.w.t.Helper()
	for c.s.paused {
		c.goOn()
	}
}

// TestPause: the expensive requests of one read are handled over many turns, in order, and other peers
// are served between them.
func TestPause(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	worker, client := manyFunctions(w)
	const jobs = 40
	jobsEverywhere(client, jobs)
	var b []byte
	for i := range uint32(jobs) {
		b = append(b, request(i, periodic.GrabJob)...)
		b = append(b, request(1000+i, periodic.Ping)...)
	}
	worker.receive(b)
	var all []periodic.Response
	turns := 0
	for ; len(all) < 2*jobs && turns < 10*jobs; turns++ {
		client.receive(request(1, periodic.Ping))
		w.step()
		if n := len(client.frames()); n != 1 {
			t.Fatalf("turn %d: the other peer got %d answers, want 1", turns, n)
		}
		got := worker.frames()
		if len(got) > 8 {
			t.Fatalf("turn %d: %d answers at once to requests of which two are a turn's worth", turns, len(got))
		}
		all = append(all, got...)
	}
	t.Logf("%d turns", turns)
	if turns < jobs/4 || turns > jobs*3/4 || len(all) != 2*jobs {
		t.Fatalf("%d answers in %d turns", len(all), turns)
	}
	for i := range uint32(jobs) {
		if got := names(t, all[2*i:2*i+1]); got[0] != fmt.Sprint(i) || all[2*i].MsgID != i || all[2*i+1].MsgID != 1000+i {
			t.Fatalf("answer %d is job %q for message %d, and message %d", i, got, all[2*i].MsgID, all[2*i+1].MsgID)
		}
	}
	if len(worker.s.partial) > 0 || len(w.loops[0].work.paused) > 0 {
		t.Errorf("%d bytes are left, %d sessions", len(worker.s.partial), len(w.loops[0].work.paused))
	}
}

// TestPauseInTurn: paused sessions go on one after the other.
func TestPauseInTurn(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	first, client := manyFunctions(w)
	workers := []*memConn{first}
	for range 2 {
		worker, _ := manyFunctions(w)
		workers = append(workers, worker)
	}
	const each = 6
	jobsEverywhere(client, each*len(workers))
	for _, worker := range workers {
		worker.receive(grabsOf(each))
	}
	got := make([]int, len(workers))
	for turn := 0; slices.Min(got) < each; turn++ {
		if !w.step() {
			w.runTimers()
		}
		if turn > 10*each*len(workers) {
			t.Fatalf("they stop at %v jobs", got)
		}
		for i, worker := range workers {
			got[i] += len(worker.frames())
		}
		if slices.Max(got)-slices.Min(got) > 4 {
			t.Fatalf("turn %d: they have got %v jobs", turn, got)
		}
	}
}

// TestPauseCut: requests are handled once each, whatever pieces they come in before and during a pause.
func TestPauseCut(t *testing.T) {
	t.Parallel()
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		w := newMemServer(t, Options{})
		worker, client := manyFunctions(w)
		const jobs = 12
		jobsEverywhere(client, jobs)
		var b []byte
		for i := range uint32(jobs) {
			b = append(b, request(i, periodic.GrabJob)...)
			b = append(b, request(100+i, periodic.CanDo, str8(fmt.Sprint("more", i)))...)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		for len(b) > 0 {
			n := min(1+rng.IntN(60), len(b))
			worker.receive(b[:n])
			if b = b[n:]; rng.IntN(3) == 0 {
				w.step()
			}
		}
		w.settle()
		worker.catchUp()
		seen := map[uint32]bool{}
		for _, f := range worker.frames() {
			if seen[f.MsgID] {
				t.Errorf("seed %d: message %d is answered twice", seed, f.MsgID)
			}
			seen[f.MsgID] = true
		}
		for _, q := range statusOf(w.Server) {
			if len(q.Name) > 4 && q.Name[:4] == "more" && q.Workers != 1 {
				t.Errorf("seed %d: %+v", seed, q)
			}
		}
		if n := len(statusOf(w.Server)); len(seen) != jobs || n != maxTurnCost/2+jobs {
			t.Errorf("seed %d: %d answers, %d functions", seed, len(seen), n)
		}
		if worker.s.partialSince != 0 || worker.s.paused {
			t.Errorf("seed %d: at the end it is taken to be in the middle of a request", seed)
		}
	}
}

// TestPausedFrameTimeout: requests of a paused session do not count as unfinished, but an unfinished
// request behind them does.
func TestPausedFrameTimeout(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	worker := pausedAt(w, 8, request(9, periodic.Ping)[:5]...)
	for worker.s.paused {
		worker.goOn()
		w.manual.time.Mono += w.o.FrameTimeout.Milliseconds() - 1 // from turn to turn
		w.loops[0].sweep()
	}
	if got := names(t, worker.frames()); worker.closed || len(got) != 8 {
		t.Fatalf("closed: %v, handed out is %q", worker.closed, got)
	}
	w.advance(w.o.FrameTimeout.Milliseconds() + 1)
	if !worker.closed || w.closedFor(errUnfinished) != 1 {
		t.Errorf("closed: %v", worker.closed)
	}
}

// TestTooExpensive: a peer that sends more and more requests while it is paused is closed, and its jobs
// go to others.
func TestTooExpensive(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	worker := pausedAt(w, 10)
	for range maxPausedBytes / 13 {
		worker.receive(request(9, periodic.Ping))
	}
	worker.receive(pings(10))
	w.settle()
	if !worker.closed || w.closedFor(errTooExpensive) != 1 {
		t.Fatalf("closed: %v", worker.closed)
	}
	w.ticks()
	for _, q := range statusOf(w.Server) {
		if q.Workers != 0 || q.Running != 0 {
			t.Errorf("%+v", q)
		}
	}
}

// TestPausedHalfClose: a peer may close its side behind its last request.
func TestPausedHalfClose(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	worker := pausedAt(w, 5, request(7, periodic.Ping)...)
	worker.r.halfClose(worker.s)
	if all := worker.frames(); len(all) != 6 || all[5].MsgID != 7 {
		t.Errorf("%d answers", len(all))
	}
}

// TestNotTooExpensive: requests that have been handled do not count against a peer.
func TestNotTooExpensive(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	worker, client := manyFunctions(w)
	const rounds = 40
	jobsEverywhere(client, 4*rounds)
	for i := range rounds {
		worker.receive(grabsOf(4))
		worker.receive(pings(maxPausedBytes / 13 / 2))
		for worker.s.paused {
			worker.goOn()
		}
		if worker.closed || len(worker.frames()) != 4+maxPausedBytes/13/2 {
			t.Fatalf("round %d: closed: %v", i, worker.closed)
		}
	}
}

// TestLargeNotTooExpensive: a large result whose end comes with more requests behind it is allowed.
func TestLargeNotTooExpensive(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	worker, client := manyFunctions(w)
	for i := range 4 {
		client.receive(request(1, periodic.SubmitJob, job(fmt.Sprint("f", i), fmt.Sprint(i), make([]byte, 300_000)...)))
	}
	w.settle()
	client.frames()
	worker.room = 0
	for i := range uint32(3) {
		worker.send(request(i, periodic.GrabJob)) // more is unsent than its window
	}
	done := request(9, periodic.WorkDone, make([]byte, maxPausedBytes))
	end := len(done) - 2000
	worker.pieces(done[:end])
	w.settle()
	worker.take(1 << 40) // it is to get more, and its functions are looked at
	w.runTimers()
	other, _ := manyFunctions(w)
	other.receive(append(request(1, periodic.GrabJob), request(2, periodic.Ping)...)) // its cost takes the rest of the turn
	worker.receive(append(done[end:], request(10, periodic.GrabJob)...))
	if !worker.s.paused {
		t.Fatal("it is not paused")
	}
	if w.settle(); worker.closed {
		t.Error("it is hung up on")
	}
}
