package loop

import (
	"slices"
	"testing"

	"treadle/codec/periodic"
)

// The requests of peers in memory, for tests that look at the server's inside.

// join connects a peer in the framing of 2018 and takes the greeting.
func (w *memServer) join(loop int, role periodic.Role) *memConn {
	w.t.Helper()
	c := w.open(loop)
	c.send(periodic.AppendHello(nil, &periodic.Hello{Role: role}))
	if got := c.frames(); len(got) != 1 {
		w.t.Fatalf("the greeting was answered with %d frames", len(got))
	}
	c.writes = 0
	return c
}

// worker connects a worker of functions.
func (w *memServer) worker(loop int, functions ...string) *memConn {
	w.t.Helper()
	c := w.join(loop, periodic.Worker)
	for i, f := range functions {
		c.send(request(uint32(i), periodic.CanDo, str8(f)))
	}
	return c
}

// frames takes the frames that the peer has read.
func (c *memConn) frames() (all []periodic.Response) {
	c.w.t.Helper()
	for len(c.read) > 0 {
		var r periodic.Response
		n, err := periodic.NextResponse(c.read, periodic.Plain, periodic.MaxPayload, &r)
		if err != nil {
			c.w.t.Fatalf("the server sent no frame: %v", err)
		}
		if n == 0 {
			break
		}
		all = append(all, r)
		c.read = c.read[n:]
	}
	return all
}

// grabs sends a number of GRAB_JOBs with ids from first on.
func (c *memConn) grabs(first uint32, n int) {
	var b []byte
	for i := range n {
		b = append(b, request(first+uint32(i), periodic.GrabJob)...)
	}
	c.send(b)
}

// names are those of the jobs in frames.
func names(t *testing.T, frames []periodic.Response) (all []string) {
	t.Helper()
	for _, r := range frames {
		_, j := assigned(t, r)
		all = append(all, string(j.Name))
	}
	return all
}

// pings is a number of PINGs in one piece.
func pings(n int) []byte { return slices.Repeat(request(1, periodic.Ping), n) }
