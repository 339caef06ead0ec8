package loop

import (
	"fmt"
	"slices"
	"testing"

	"treadle/codec/periodic"
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

// TestBroadcastReachesSleepers: where workers sleep instead of waiting with a grab, a job
// of a broadcast function is for each one that sleeps: every one is woken and gets it.
func TestBroadcastReachesSleepers(t *testing.T) {
	for _, loops := range []int{1, 2} {
		w := newWorld(t, Options{Loops: loops, PeriodicGrab: GrabDocument})
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
		submit("large", maxKept)
		if n := len(a.frames()); n != 2 {
			t.Errorf("two SLEEPs are answered %d times", n)
		}
		a.wantGrabbed("[large]", "") // the second is beyond what is kept
		b.frames()
		b.send(request(6, periodic.CantDo, str8("f")))
		b.wantGrabbed("")
	}
}
