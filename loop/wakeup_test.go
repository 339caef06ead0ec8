package loop

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"treadle/codec/periodic"
)

// TestNoLostWakeup: with one job in the air between reactors that take their turns in any order, the waiting worker
// gets it. There is no other traffic, which would repair a lost wake-up.
func TestNoLostWakeup(t *testing.T) {
	t.Parallel()
	for _, grab := range []string{"hold", "document"} {
		for seed := range uint64(300) {
			oneJobInTheAir(t, grab, seed)
		}
	}
}

func oneJobInTheAir(t *testing.T, grab string, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	loops := 2 + rng.IntN(3)
	w := newMemServer(t, Options{Loops: loops, Shards: 1 + rng.IntN(4), Periodic: PeriodicOptions{Grab: grab}})
	w.rng = rng
	client := w.join(rng.IntN(loops), periodic.Client)
	var workers []*memConn
	for range 1 + rng.IntN(3) {
		workers = append(workers, w.worker(rng.IntN(loops), "f", "g"))
	}
	wait := periodic.GrabJob
	if grab == "document" {
		wait = periodic.Sleep
	}
	for round := range 20 {
		worker := workers[rng.IntN(len(workers))]
		acts := []func(){
			func() { worker.receive(request(uint32(round), wait)) },
			func() {
				client.receive(request(uint32(round), periodic.SubmitJob, job(string("fg"[round%2]), fmt.Sprint(round))))
			},
		}
		rng.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
		for _, act := range acts {
			act()
			for range rng.IntN(4) {
				w.step()
			}
		}
		w.settle()
		got := worker.frames()
		if grab == "document" && len(got) == 1 && got[0].Body[0] == byte(periodic.Noop) {
			worker.send(request(uint32(round), periodic.GrabJob))
			got = worker.frames()
		}
		if len(got) != 1 || len(got[0].Body) == 1 {
			t.Fatalf("%s, seed %d, round %d: the worker got %d frames, want its job", grab, seed, round, len(got))
		}
		handle, j := assigned(t, got[0])
		if string(j.Name) != fmt.Sprint(round) {
			t.Fatalf("%s, seed %d: the worker got %q in round %d", grab, seed, j.Name, round)
		}
		worker.send(request(99, periodic.WorkDone, handle))
	}
}

// TestNoLostWakeupEngine is the same on real loops: submit and grab are on their way
// at the same time, round after round.
func TestNoLostWakeupEngine(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{Loops: 2})
	client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
	worker.send(request(1, periodic.CanDo, str8("f")))
	worker.ping()
	const rounds = 2000
	submits := make(chan int, 1)
	ended := make(chan struct{})
	defer func() {
		close(submits)
		<-ended
	}()
	go func() {
		defer close(ended)
		for i := range submits {
			if err := client.trySend(request(uint32(i), periodic.SubmitJob, job("f", fmt.Sprint(i)))); err != nil {
				t.Error(err)
			}
		}
	}()
	for i := range rounds {
		submits <- i
		worker.send(request(uint32(i), periodic.GrabJob))
		got := worker.next()
		handle, j := assigned(t, got)
		if string(j.Name) != fmt.Sprint(i) || got.MsgID != uint32(i) {
			t.Fatalf("got %q under %d in round %d", j.Name, got.MsgID, i)
		}
		worker.send(request(0, periodic.WorkDone, handle))
		client.want(uint32(i), byte(periodic.Success))
	}
}

// TestResultsFindTheirWay: workers on one loop end jobs that clients on others await, in any order of turns. Each
// result arrives once, at its client.
func TestResultsFindTheirWay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := newMemServer(t, Options{Loops: 3, Shards: 4})
		w.rng = rng
		var clients, workers []*memConn
		for i := range 4 {
			clients = append(clients, w.join(i%3, periodic.Client))
			workers = append(workers, w.worker((i+1)%3, fmt.Sprint("f", i)))
			workers[i].grabs(0, 50)
		}
		for i := range uint32(50) {
			for k, c := range clients {
				c.receive(request(i, periodic.RunJob, job(fmt.Sprint("f", rng.IntN(4)), fmt.Sprint(k, "-", i), byte(k))))
				w.step()
			}
		}
		w.settle()
		for _, worker := range workers {
			for _, r := range worker.frames() {
				handle, j := assigned(t, r)
				worker.receive(request(0, periodic.WorkDone, handle, j.Workload, j.Name))
				w.step()
			}
			worker.grabs(100, 50) // for workers that had more than 50
		}
		w.settle()
		for _, worker := range workers {
			for _, r := range worker.frames() {
				handle, j := assigned(t, r)
				worker.send(request(0, periodic.WorkDone, handle, j.Workload, j.Name))
			}
		}
		for k, c := range clients {
			got := map[uint32]bool{}
			for _, r := range c.frames() {
				want := append([]byte{byte(k)}, fmt.Sprint(k, "-", r.MsgID)...)
				if string(r.Body) != string(want) || got[r.MsgID] {
					t.Fatalf("seed %d: client %d got %q for message %d", seed, k, r.Body, r.MsgID)
				}
				got[r.MsgID] = true
			}
			if len(got) != 50 {
				t.Errorf("seed %d: client %d got %d of 50 results", seed, k, len(got))
			}
		}
	}
}

// TestTimerWakesInTime: the timer wakes when something becomes due earlier than it knows, by either clock, without
// other events.
func TestTimerWakesInTime(t *testing.T) {
	t.Parallel()
	clock := &manualClock{time: newMemServer(t, Options{}).manual.now()}
	r := startServer(t, Options{Loops: 2}, func(s *Server) { s.clock = clock.now })
	client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
	worker.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob))
	worker.ping()
	later := periodic.AppendJob(nil, &periodic.Job{Func: []byte("f"), Name: []byte("n"), SchedAt: clock.now().Wall/1000 + 1})
	client.ask(1, periodic.SubmitJob, later, byte(periodic.Success))
	clock.add(1000)
	r.wakeTimer() // the clock has jumped
	handle, _ := assigned(t, worker.next())
	// On an idle server only the alarm tells of a job that is put off.
	args := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(handle, 0), 1)
	worker.send(request(3, periodic.GrabJob), request(4, periodic.SchedLater, args))
	assigned(t, worker.next())
	// A dropped function's waiters are told by the timer.
	client.send(request(2, periodic.RunJob, job("g", "n")), request(3, periodic.DropFunc, str8("g")))
	client.want(3, byte(periodic.Success))
	client.want(2)
}

// TestClockSet: jobs are due by the wall clock, also when it steps. A job whose time has come by a step forward is
// handed out within moments without other events. A job whose time has gone by a step back waits for it again.
func TestClockSet(t *testing.T) {
	t.Parallel()
	clock := &manualClock{time: newMemServer(t, Options{}).manual.now()}
	r := startServer(t, Options{}, func(s *Server) { s.clock = clock.now })
	client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
	worker.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob))
	worker.ping()
	hour := int64(time.Hour / time.Millisecond)
	client.ask(1, periodic.SubmitJob, later("f", "in half an hour", clock.now().Wall/1000+1800), byte(periodic.Success))
	clock.set(hour)
	assigned(t, worker.next())
	worker.send(request(3, periodic.GrabJob))
	client.ask(2, periodic.SubmitJob, later("f", "in a second", clock.now().Wall/1000+1), byte(periodic.Success))
	clock.set(-hour)
	r.tick()
	worker.ping()
	if !worker.silent() {
		t.Errorf("a job is handed out an hour early: %x", worker.next().Body)
	}
	clock.set(hour + 1000)
	assigned(t, worker.next())
}
