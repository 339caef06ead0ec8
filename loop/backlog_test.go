package loop

import (
	"fmt"
	"slices"
	"testing"

	"treadle/codec/periodic"
	"treadle/sched"
)

// grabbed sends a GRAB_JOB and returns the name of the job that it brings, "" for NO_JOB.
func (c *memConn) grabbed() string {
	c.w.t.Helper()
	c.grabs(9, 1)
	got := c.frames()
	if len(got) == 1 && slices.Equal(got[0].Body, []byte{byte(periodic.NoJob)}) {
		return ""
	}
	return fmt.Sprint(names(c.w.t, got))
}

// woken takes the NOOP that answers a SLEEP.
func (c *memConn) woken(what string) {
	c.w.t.Helper()
	if got := c.frames(); len(got) != 1 || !slices.Equal(got[0].Body, []byte{byte(periodic.Noop)}) {
		c.w.t.Errorf("%s: got %v, want one NOOP", what, got)
	}
}

func (c *memConn) wantGrabbed(want ...string) {
	c.w.t.Helper()
	for _, name := range want {
		if got := c.grabbed(); got != name {
			c.w.t.Errorf("grabbed %q, want %q", got, name)
		}
	}
}

// TestBroadcastReachesSleepers: a broadcast job goes to each sleeping worker, which wakes and grabs it.
func TestBroadcastReachesSleepers(t *testing.T) {
	t.Parallel()
	for _, loops := range []int{1, 2} {
		w := newMemServer(t, Options{Loops: loops, Periodic: PeriodicOptions{Grab: "document"}})
		client, awake := w.join(0, periodic.Client), w.worker(0, "f")
		submit := func(name string, size int) {
			client.send(request(1, periodic.SubmitJob, job("f", name, make([]byte, size)...)))
		}
		a, b, ordinary := w.join(0, periodic.Worker), w.join(loops-1, periodic.Worker), w.worker(0, "f")
		a.send(request(1, periodic.Broadcast, str8("f")))
		b.send(request(1, periodic.Broadcast, str8("f")))
		sleepers := []*memConn{a, b, ordinary}
		for _, c := range sleepers {
			c.send(request(2, periodic.Sleep))
		}
		submit("all", 0)
		for _, c := range sleepers {
			c.woken("a broadcast")
			c.send(request(3, periodic.Sleep))
			c.woken("SLEEP with a job to grab")
			c.wantGrabbed("[all]", "")
		}
		awake.wantGrabbed("")
		if n := w.sched.Stats().Jobs; n != 0 {
			t.Errorf("%d jobs are left", n)
		}

		submit("nobody sleeps", 0)
		b.wantGrabbed("[nobody sleeps]", "")

		a.send(request(4, periodic.Sleep), request(5, periodic.Sleep))
		b.send(request(4, periodic.Sleep), request(5, periodic.Sleep))
		submit("large", sched.DefaultWindow)
		if n := len(a.frames()); n != 2 {
			t.Errorf("two SLEEPs are answered %d times", n)
		}
		a.wantGrabbed("[large]", "") // the second is beyond the bound of kept bytes
		b.frames()
		b.send(request(6, periodic.CantDo, str8("f")))
		b.wantGrabbed("")
	}
}

// TestKeptTogether: a large broadcast job is kept for as many sleeping workers as there is room for. A
// worker that leaves or grabs makes room.
func TestKeptTogether(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{Periodic: PeriodicOptions{Grab: "document"}, MaxFrame: 256 << 10, Gloom: GloomOptions{MaxFrame: 64 << 10}})
	r, client := w.loops[0], w.join(0, periodic.Client)
	const size = 200 << 10
	room := w.maxUnsent()/size + 1
	var sleepers []*memConn
	for range 2 * room {
		c := w.join(0, periodic.Worker)
		c.send(request(1, periodic.Broadcast, str8("f")), request(2, periodic.Sleep))
		c.frames()
		sleepers = append(sleepers, c)
	}
	broadcast := func(name string) {
		client.send(request(1, periodic.SubmitJob, job("f", name, make([]byte, size)...)))
		client.frames()
		w.ticks()
		w.settle()
	}
	broadcast("all")
	if most := w.maxUnsent() + size + 100; r.Backlog > most || r.Backlog < most/2 {
		t.Errorf("%d bytes are kept, of %d", r.Backlog, most)
	}
	got := 0
	for i, c := range sleepers {
		if c.frames(); i%2 == 0 {
			c.close()
			continue
		}
		c.grabs(3, 1)
		for _, f := range c.frames() {
			got += min(len(f.Body)/size, 1)
		}
	}
	if got < room/4 || r.Backlog != 0 {
		t.Errorf("%d got the job; %d bytes are kept of jobs that were grabbed or whose workers have left", got, r.Backlog)
	}
	last := w.join(0, periodic.Worker)
	last.send(request(1, periodic.Broadcast, str8("f")), request(2, periodic.Sleep))
	broadcast("again")
	last.woken("there is room again")
	last.wantGrabbed("[again]")
	last.send(request(2, periodic.Sleep))
	broadcast("dropped")
	last.send(request(4, periodic.CantDo, str8("f")))
	if r.Backlog != 0 {
		t.Errorf("%d bytes are kept of a function that nobody serves", r.Backlog)
	}
}
