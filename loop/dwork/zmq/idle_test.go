package zmq

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// only is the one connection that there is.
func (r *testHub) only() *conn {
	r.t.Helper()
	r.Listener.mu.Lock()
	defer r.Listener.mu.Unlock()
	if len(r.conns) != 1 {
		r.t.Fatalf("%d connections, want 1", len(r.conns))
	}
	for c := range r.conns {
		return c
	}
	return nil
}

// TestRestHasItsTime: a message may come as slowly as any, also when its beginning came together with the end of one
// that was under way, and that one was answered late.
func TestRestHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Second
		r := listenPipes(t, Options{FrameTimeout: limit})
		p := r.friend("")
		a, b := frames("", strings.Repeat("a", 100)), frames("", strings.Repeat("b", 100))
		p.send(a[:50])
		<-time.After(limit / 2)
		p.send(a[50:] + b[:50])
		for i, rest := range []string{b[50:], ""} {
			batch := r.collect(1)
			<-time.After(limit * time.Duration(2-i) * 2 / 5) // the hub is busy with others
			batch[0].Reply(batch[0].Payload)
			p.expect([]string{a, b}[i])
			<-time.After(limit * 2 / 5)
			if n := r.Stats().Stalled; n != 0 {
				t.Fatalf("after message %d the peer is taken to have stalled", i)
			}
			p.send(rest)
		}
	})
}

// TestIdleKeepsLittle: a connection that had much to say, in one message or in many, keeps nothing of it that is of use
// to nobody, and soon no more than it began with; then it is served as before.
func TestIdleKeepsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listenPipes(t, Options{})
		r.hub(echoes)
		c := r.client()
		for _, payload := range []string{strings.Repeat("x", 1<<20), strings.Repeat("y", 20<<10), "z"} {
			ask(t, c, payload)
			synctest.Wait()
			for _, q := range r.only().requests[:1] {
				if q.Payload != nil {
					t.Errorf("a request of %d bytes is kept when it is answered", len(q.Payload))
				}
			}
			ask(t, c, "short")
			<-time.After(2 * idleTime)
			synctest.Wait()
			got := r.only()
			if size := cap(got.in.buf) + cap(got.out) + cap(got.sorted); size > 2*smallBuffer {
				t.Errorf("an idle connection keeps %d bytes", size)
			}
			if got.l.buffered.used.Load() != 0 {
				t.Error("bytes are still counted")
			}
		}
	})
}
