package sched

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

const (
	stressJobs    = 100000
	stressQueues  = 24
	stressWorkers = 12
	stressClients = 4
	stressWindow  = 400
	// stressTimeout is long against the clock's steps: most jobs are done in time, and some are
	// not.
	stressTimeout = 40 * grain
)

// stress runs workers, clients and a timer on one scheduler. The clock steps with each Tick.
type stress struct {
	t      *testing.T
	s      *Scheduler
	sink   inboxes
	wall   atomic.Int64
	done   [stressJobs]atomic.Int32
	left   atomic.Int64
	finish chan struct{} // closed with the last job
	broken sync.Once
}

func (x *stress) now() Time {
	wall := x.wall.Load()
	return Time{Wall: wall, Mono: wall - wall%grain - 1_700_000_000_000}
}

func (x *stress) fail(format string, args ...any) {
	x.t.Errorf(format, args...)
	x.broken.Do(func() { close(x.finish) })
}

// worker is one goroutine's peer, and the job that it has asked for.
type worker struct {
	x       *stress
	r       *rand.Rand
	box     int
	life    SessionID // how many peers it has been
	peer    *Peer
	tags    uint64
	waiting map[uint64]bool
}

func (w *worker) connect() {
	w.life++
	w.peer = w.x.s.NewPeer(SessionID(w.box)<<inboxShift | w.life)
	w.waiting = make(map[uint64]bool)
	for q := w.box; q < stressQueues; q += stressWorkers { // every queue has its worker
		w.watch(q)
	}
	for range w.r.IntN(5) {
		w.watch(w.r.IntN(stressQueues))
	}
}

func (w *worker) watch(queue int) {
	if err := w.x.s.Watch(w.x.now(), w.peer, strconv.AppendInt(nil, int64(queue), 10), false, w.x.sink); err != nil {
		w.x.fail("watch: %v", err)
	}
}

func (w *worker) run() {
	w.connect()
	for {
		for len(w.waiting) < 3 {
			w.tags++
			w.waiting[w.tags] = true
			if err := w.x.s.Reserve(w.x.now(), w.peer, w.tags, w.x.sink); err != nil {
				w.x.fail("reserve: %v", err)
			}
		}
		letters := w.x.sink[w.box].wait(w.x.finish)
		if letters == nil {
			select {
			case <-w.x.finish:
			default:
				w.x.fail("%d jobs are left and worker %d waits", w.x.left.Load(), w.box)
			}
			break
		}
		for _, d := range letters {
			if d.to == w.peer.id { // not one of its former peers
				w.take(d)
			}
		}
		w.x.s.Flushed(w.x.now(), w.peer, 0, w.x.sink)
	}
	w.x.s.Disconnect(w.x.now(), w.peer, w.x.sink)
}

// take does what well-behaved and faulty workers do with a job.
func (w *worker) take(d delivered) {
	x, now := w.x, w.x.now()
	if d.effect != Assign || !w.waiting[d.tag] {
		x.fail("worker %d got effect %d under tag %d, which it waits for: %v", w.box, d.effect, d.tag, w.waiting[d.tag])
	}
	delete(w.waiting, d.tag)
	err := error(nil)
	switch what := w.r.IntN(100); {
	case what < 3: // lets its time run out
	case what < 10:
		err = x.s.Fail(now, w.peer, d.job.run, nil, x.sink)
	case what < 16:
		err = x.s.Delay(now, w.peer, d.job.run, int64(w.r.IntN(2)), 1, x.sink)
	case what < 20:
		queue, _ := strconv.Atoi(d.job.queue)
		x.s.Unwatch(w.peer, []byte(d.job.queue))
		w.watch(queue)
		fallthrough
	case what < 98:
		if err = x.s.Finish(now, w.peer, d.job.run, nil, x.sink); err == nil {
			x.finished(d.job.name)
		}
	default:
		x.s.Disconnect(now, w.peer, x.sink)
		w.connect()
	}
	if err != nil && err != ErrNotFound && err != errNotHolder {
		x.fail("worker %d: %v", w.box, err)
	}
}

func (x *stress) finished(name string) {
	i, err := strconv.Atoi(name)
	if err != nil || x.done[i].Add(1) != 1 {
		x.fail("job %q was done %d times", name, x.done[i].Load())
	}
	if x.left.Add(-1) == 0 {
		x.broken.Do(func() { close(x.finish) })
	}
}

// client submits its share of the jobs, some of them delayed. It awaits some of the results and
// leaves before all of them have come.
func (x *stress) client(first int) {
	r := rand.New(rand.NewPCG(uint64(first), 1))
	box := stressWorkers + first
	peer, awaited := x.s.NewPeer(SessionID(box)<<inboxShift), 0
	for i := first; i < stressJobs; i += stressClients {
		now := x.now()
		j := Submission{
			Queue: strconv.AppendInt(nil, int64(r.IntN(stressQueues)), 10), Name: strconv.AppendInt(nil, int64(i), 10),
			Workload: make([]byte, r.IntN(300)), Priority: int64(r.IntN(3)),
		}
		if r.IntN(5) == 0 {
			j.SchedAt = now.Wall/1000 + int64(r.IntN(2))
		}
		if r.IntN(4) == 0 {
			j.Await, j.Tag = peer, uint64(i)
			awaited++
		}
		if err := x.s.Submit(now, &j, x.sink); err != nil {
			x.fail("job %d: %v", i, err)
		}
	}
	results := make(map[uint64]int)
	for len(results) < awaited*(4+first)/8 {
		letters := x.sink[box].wait(nil)
		if letters == nil {
			x.fail("client %d has %d of %d results", first, len(results), awaited)
			break
		}
		for _, d := range letters {
			if results[d.tag]++; d.effect != Result || results[d.tag] != 1 {
				x.fail("client %d: effect %d for job %d, %d times", first, d.effect, d.tag, results[d.tag])
			}
		}
	}
	x.s.Disconnect(x.now(), peer, x.sink)
}

// timer ticks until the last job is done. No goroutine waits for it, and it waits for none.
func (x *stress) timer() {
	for {
		select {
		case <-x.finish:
			return
		default:
			x.wall.Add(grain)
			x.s.ticks(x.now(), x.sink)
		}
	}
}

// TestExactlyOnce checks under concurrency that every job is done exactly once, and every Reserve
// and every await answered at most once. Workers of several queues on several shards finish, fail
// and delay jobs, report late, leave and come back. Clients leave before all results have come.
// Nothing is left at the end.
func TestExactlyOnce(t *testing.T) {
	x := &stress{t: t, s: New(Options{Shards: 8, Window: stressWindow}), sink: newInboxes(stressWorkers + stressClients), finish: make(chan struct{})}
	x.wall.Store(1_700_000_000_000)
	x.left.Store(stressJobs)
	x.s.SetTimeout(stressTimeout)
	var all sync.WaitGroup
	for i := range stressClients {
		all.Go(func() { x.client(i) })
	}
	for i := range stressWorkers {
		all.Go(func() { (&worker{x: x, r: rand.New(rand.NewPCG(uint64(i), 2)), box: i}).run() })
	}
	all.Go(x.timer)
	all.Wait()
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
	st := x.s.Stats()
	if st.Jobs != 0 || st.Submitted != stressJobs || st.Done != stressJobs {
		t.Errorf("%+v", st)
	}
	if st.Assigned != st.Done+st.Released+st.Abandoned+st.TimedOut {
		t.Errorf("assigned and released do not agree: %+v", st)
	}
}
