package zmq

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// only is the one connection that there is.
func (r *rig) only() *conn {
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

// TestIdleKeepsLittle: a connection that had much to say, in one message or in many, keeps nothing
// of it that is of use to nobody, and soon no more than it began with; then it is served as before.
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
			if got.l.budget.used.Load() != 0 {
				t.Error("bytes are still counted")
			}
		}
	})
}
