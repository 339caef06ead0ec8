package zmq

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// req is a REQ behind its handshake.
func (r *testHub) req(socket string) *peer {
	p := r.peer()
	p.send(string(greeting) + commandFrame("READY", property("Socket-Type", socket)))
	p.skip(greetingSize)
	p.skip(int(p.skip(2)[1]))
	return p
}

// TestUnasked: a REQ that is silent since it connected is told something once, after its time; one that asks in time
// and a DEALER are not, nor is one that says much later that it still waits.
func TestUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = 3 * time.Second
		r := listenPipes(t, Options{Unasked: []byte("none"), UnaskedAfter: after})
		r.hub(func(batch []Request) {
			for _, q := range batch {
				q.Reply(fmt.Appendf(nil, "%s %v", q.Payload, q.MaybeUnread()))
			}
		})
		silent, busy, dealer := r.req("REQ"), r.req("REQ"), r.req("DEALER")
		<-time.After(after - time.Millisecond)
		busy.send(frames("", "early"))
		busy.expect(frames("", "early false"))
		silent.send("\x04\x08\x04PING\x00\x00x") // it is alive, and has asked nothing
		silent.expect("\x04\x06\x04PONGx")
		began := time.Now()
		silent.expect(frames("", "none"))
		if d := time.Since(began); d != time.Millisecond {
			t.Errorf("told after %v", after+d)
		}
		<-time.After(mayCross)
		for _, p := range []*peer{silent, busy, dealer} {
			began := time.Now()
			p.send(frames("", "later"))
			p.expect(frames("", "later false"))
			if d := time.Since(began); d != 0 {
				t.Errorf("answered after %v", d)
			}
		}
		if n := r.Stats().Unasked; n != 1 {
			t.Errorf("%d were told", n)
		}
	})
}

// TestUnaskedCrosses: what a REQ asks when the unasked message may just have been sent is answered when nothing
// follows, after a pause; and not at all when something does, at once or after a while: that shows that the REQ has
// taken the message for its reply.
func TestUnaskedCrosses(t *testing.T) {
	f := func(follows bool, pause time.Duration, want string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			t.Helper()
			r := listenPipes(t, Options{Unasked: []byte("none"), UnaskedAfter: time.Second})
			r.hub(func(batch []Request) {
				for _, q := range batch {
					q.Reply(fmt.Appendf(nil, "%s %v", q.Payload, q.MaybeUnread()))
				}
			})
			p := r.req("REQ")
			p.expect(frames("", "none"))
			if pause > 0 || !follows {
				p.send(frames("", "a"))
				<-time.After(pause)
				if follows {
					p.send(frames("", "b"))
				}
			} else {
				p.send(frames("", "a") + frames("", "b"))
			}
			p.expect(want)
			p.send(frames("", "c"))
			p.expect(frames("", "c false"))
			<-time.After(idleTime)
			p.send(frames("", "d"))
			p.expect(frames("", "d false"))
		})
	}
	f(false, 0, frames("", "a true"))
	f(true, 0, frames("", "b false"))
	f(true, crossPause/2, frames("", "b false"))
	f(true, 2*crossPause, frames("", "a true")+frames("", "b false"))
}

// TestUnaskedWhileClosing: a listener that closes keeps no such connection.
func TestUnaskedWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listenPipes(t, Options{Unasked: []byte("none"), UnaskedAfter: time.Second})
		r.hub(echoes)
		p, q := r.req("REQ"), r.req("REQ")
		p.expect(frames("", "none"))
		p.send(frames("", "a"))
		synctest.Wait()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		p.closed()
		q.closed()
	})
}
