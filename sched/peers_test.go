package sched

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long a test waits for a delivery before it reports it as lost.
const patience = 30 * time.Second

// spin waits without leaving its processor, for 200 microseconds: longer than it takes
// to wake a goroutine, so that two that have slept run side by side again.
func spin(done func() bool) bool {
	for began := time.Now(); time.Since(began) < 200*time.Microsecond; {
		for range 1000 {
			if done() {
				return true
			}
		}
	}
	return false
}

// inbox is where the deliveries of one goroutine arrive.
type inbox struct {
	mu    sync.Mutex
	all   []delivered
	any   atomic.Bool
	bell  chan struct{}
	timer *time.Timer
}

func newInbox() *inbox {
	return &inbox{bell: make(chan struct{}, 1), timer: time.NewTimer(patience)}
}

func (b *inbox) put(d delivered) {
	b.mu.Lock()
	b.all = append(b.all, d)
	b.any.Store(true)
	b.mu.Unlock()
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

// wait returns the deliveries that have arrived, at least one. It returns none when stop is closed
// or patience has passed.
func (b *inbox) wait(stop <-chan struct{}) []delivered {
	spin(b.any.Load)
	b.timer.Reset(patience)
	for {
		b.mu.Lock()
		all := b.all
		b.all = nil
		b.any.Store(false)
		b.mu.Unlock()
		if len(all) > 0 {
			return all
		}
		select {
		case <-b.bell:
		case <-stop:
			return nil
		case <-b.timer.C:
			return nil
		}
	}
}

// inboxes is the Sink of all goroutines of a test. The low bits of a session's id count the
// sessions that an inbox has had.
type inboxes []*inbox

const inboxShift = 32

func newInboxes(n int) inboxes {
	all := make(inboxes, n)
	for i := range all {
		all[i] = newInbox()
	}
	return all
}

func (all inboxes) Deliver(d *Delivery) {
	var one recorder
	one.Deliver(d)
	all[d.To>>inboxShift].put(one.all[0])
}

// gate lets two goroutines through together, round by round, as close to each other as possible.
type gate struct {
	arrived atomic.Int64
	asleep  atomic.Bool
	wake    chan struct{}
}

func newGate() *gate { return &gate{wake: make(chan struct{}, 1)} }

// pass spins, so that both sides stay on their processors, and then sleeps: without two idle
// processors the other side needs this one.
func (g *gate) pass(round int) {
	both := int64(2*round + 2)
	if g.arrived.Add(1) == both {
		if g.asleep.Swap(false) {
			g.wake <- struct{}{}
		}
		return
	}
	if spin(func() bool { return g.arrived.Load() == both }) {
		return
	}
	g.asleep.Store(true)
	if g.arrived.Load() == both && g.asleep.Swap(false) {
		return
	}
	<-g.wake
}

// stagger delays a side by up to about a microsecond, so that over the rounds each moment of one
// side meets each of the other.
func (g *gate) stagger(r *rand.Rand) {
	for range r.IntN(1 << r.IntN(14)) {
		g.arrived.Load()
	}
}

// duelRounds is enough for each window that was opened on purpose to be hit, given
// two processors. Where the rounds take long, because others want the processors, or
// under the race detector, duelTime is enough; -short has a fifth of it.
const (
	duelRounds = 60_000
	duelTime   = time.Second
)

// duel runs the two sides of a race for many rounds and stops at the first that fails. Each round
// begins with before alone. Then both sides run at once. right reports whether the round went well.
func duel(t *testing.T, before, left func(round int), right func(round int) bool) {
	t.Helper()
	start, end := newGate(), newGate()
	var over atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		r := rand.New(rand.NewPCG(1, 0))
		for i := 0; ; i++ {
			start.pass(i)
			if over.Load() {
				return
			}
			start.stagger(r)
			left(i)
			end.pass(i)
		}
	})
	r := rand.New(rand.NewPCG(2, 0))
	limit := duelTime
	if testing.Short() {
		limit /= 5
	}
	began := time.Now()
	i, ok := 0, true
	for ; ok && i < duelRounds && time.Since(began) < limit; i++ {
		before(i)
		start.pass(i)
		start.stagger(r)
		if ok = right(i); !ok {
			t.Errorf("round %d: nothing came", i)
		}
		end.pass(i)
	}
	over.Store(true)
	start.pass(i)
	all.Wait()
}

// TestDisconnectKeepsOrder checks that the jobs of a departed peer keep the order in which they were
// handed out. They go behind ready jobs, but with Rules.MaxFailures ahead of all jobs of their priority,
// also of jobs that were due in an earlier second.
func TestDisconnectKeepsOrder(t *testing.T) {
	f := func(space Space, want string) {
		t.Helper()
		x := newTestSched(t, Options{Rules: [MaxSpaces]Rules{1: {MaxFailures: 4}}})
		p := x.peer("f")
		var refs []Run
		for _, name := range strings.Fields("a b c d e f") {
			x.submit("f", name, func(j *Submission) { j.Space = space })
			refs = append(refs, x.reserveJob(p, name))
		}
		x.ok(x.s.Finish(x.now, p, refs[1], nil, &x.rec))
		x.submit("f", "waits", func(j *Submission) { j.Space, j.Priority = space, 1 })
		x.now.Wall += 1000
		x.s.Disconnect(x.now, p, &x.rec)
		x.want()
		next := x.peer("f")
		var got []string
		for range strings.Fields(want) {
			x.reserve(next, 1)
			for _, d := range x.rec.take() {
				got = append(got, d.job.name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("space %d: got %q, want %q", space, got, want)
		}
	}
	f(0, "waits a c d e f")
	f(1, "a c d e f waits")
}

// TestDisconnectServesInOrder checks the same order when a peer waits for the jobs.
func TestDisconnectServesInOrder(t *testing.T) {
	f := func(space Space) {
		t.Helper()
		x := newTestSched(t, Options{Rules: [MaxSpaces]Rules{1: {MaxFailures: 4}}})
		p, next := x.peer("f"), x.peer("f")
		for _, name := range strings.Fields("a b c") {
			x.submit("f", name, func(j *Submission) { j.Space = space })
			x.reserveJob(p, name)
		}
		x.reserve(next, 1)
		x.reserve(next, 2)
		x.s.Disconnect(x.now, p, &x.rec)
		x.want("2 1 assign a", "2 2 assign b")
	}
	f(0)
	f(1)
}

// TestDisconnectInOrder checks that a departed owner's jobs end in order: the places of later jobs in a
// Walk do not depend on chance.
func TestDisconnectInOrder(t *testing.T) {
	x := newTestSched(t, Options{Shards: 1, Rules: testRules})
	walk := func() (names []string) {
		for cursor, done := (Cursor{}), false; !done; {
			cursor, done = x.s.Walk(cursor, 100, func(j *Job) { names = append(names, string(j.Name)) })
		}
		return names
	}
	var first []string
	for range 10 {
		owner := x.peer()
		for i := range 8 {
			x.submit("f", strings.Repeat("a", i+1), owned(owner, uint64(i)))
		}
		x.s.Disconnect(x.now, owner, &x.rec)
		for i := range 8 {
			x.submit("f", strings.Repeat("b", i+1))
		}
		now := walk()
		for i := range 8 {
			x.s.Remove(x.now, 0, []byte("f"), []byte(strings.Repeat("b", i+1)), &x.rec)
		}
		if first = append(first, now...)[:8]; !slices.Equal(now, first) {
			t.Fatalf("once %q, once %q", first, now)
		}
	}
}
