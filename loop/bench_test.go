package loop

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"treadle/codec/periodic"
)

// benchConn is a connection whose peer answers out of turn: it keeps the last write.
type benchConn struct {
	s       *session
	written []byte
}

func (c *benchConn) Write(p []byte) (int, error) {
	c.written = append(c.written, p...)
	return len(p), nil
}
func (c *benchConn) OutboundBuffered() int { return 0 }
func (c *benchConn) RemoteAddr() net.Addr  { return nil }

// turns is a server without sockets under a benchmark: producers and workers of one function, each with
// so many requests in flight, as in the pipelined rows of bench.
type turns struct {
	r         *reactor
	depth     int
	producers []*benchConn
	workers   []*benchConn
	submits   []byte // one producer's, for one turn
	answers   []byte // one worker's
	next      uint64
}

func newTurns(tb testing.TB, framing periodic.Framing, connections, depth int) *turns {
	s, err := newServer(Options{Data: NoData, Loops: 1})
	if err != nil {
		tb.Fatal(err)
	}
	x := &turns{r: newReactor(s, 0), depth: depth}
	x.r.exec = func(func()) {} // turn ends the turns itself
	s.reactors[0].Store(x.r)
	for range connections {
		x.producers = append(x.producers, x.connect(framing, periodic.Client))
		w := x.connect(framing, periodic.Worker)
		x.workers = append(x.workers, w)
		x.r.traffic(w.s, benchRequest(nil, framing, 0, periodic.CanDo, periodic.AppendStr8(nil, []byte("function"))))
	}
	x.r.finishTurn()
	job := periodic.AppendJob(nil, &periodic.Job{Func: []byte("function"), Name: make([]byte, 12), Workload: make([]byte, 100)})
	for i := range depth {
		x.submits = benchRequest(x.submits, framing, uint32(i), periodic.SubmitJob, job)
	}
	return x
}

// benchRequest appends one request.
func benchRequest(dst []byte, framing periodic.Framing, msgID uint32, cmd periodic.Command, args []byte) []byte {
	start := len(dst)
	dst = append(periodic.AppendMessage(periodic.BeginRequest(dst, framing), msgID, cmd), args...)
	periodic.End(dst, start, framing)
	return dst
}

func (x *turns) connect(framing periodic.Framing, role periodic.Role) *benchConn {
	c := &benchConn{}
	c.s = x.r.open(c, x.r.server.loopPort("periodic"))
	x.r.traffic(c.s, periodic.AppendHello(nil, &periodic.Hello{Framing: framing, Role: role}))
	return c
}

// submit fills every producer's window, in one turn.
func (x *turns) submit() {
	size := len(x.submits) / x.depth
	const nameAt = 8 + 5 + 1 + len("function") + 1
	for _, c := range x.producers {
		for i := range x.depth {
			x.next++
			binary.BigEndian.PutUint64(x.submits[i*size+nameAt:], x.next)
		}
		x.r.traffic(c.s, x.submits)
	}
	x.r.finishTurn()
	for _, c := range x.producers {
		c.written = c.written[:0]
	}
}

// work finishes every worker's jobs and grabs as many again, in one turn.
func (x *turns) work() (jobs int) {
	for _, c := range x.workers {
		out := x.answers[:0]
		for in := c.written; len(in) > 0; jobs++ {
			size := 8 + int(binary.BigEndian.Uint32(in[4:]))
			msgID := binary.BigEndian.Uint32(in[8:])
			out = benchRequest(out, periodic.Plain, msgID, periodic.WorkDone, in[13:13+1+int(in[13])])
			out = benchRequest(out, periodic.Plain, msgID, periodic.GrabJob, nil)
			in = in[size:]
		}
		c.written = c.written[:0]
		x.answers = out
		x.r.traffic(c.s, out)
	}
	x.r.finishTurn()
	return jobs
}

func (x *turns) grab() {
	for _, c := range x.workers {
		out := x.answers[:0]
		for i := range x.depth {
			out = benchRequest(out, periodic.Plain, uint32(i), periodic.GrabJob, nil)
		}
		c.written = c.written[:0]
		x.answers = out
		x.r.traffic(c.s, out)
	}
	x.r.finishTurn()
}

// BenchmarkTurn measures a job's cost between reading and writing: decode, schedule, encode. Either the
// workers wait for jobs or the jobs for workers. It includes the making of the requests.
func BenchmarkTurn(b *testing.B) {
	for _, backlog := range []int{0, 4, 1000} {
		b.Run(fmt.Sprint("backlog=", backlog), func(b *testing.B) {
			x := newTurns(b, periodic.Plain, 8, 64)
			for range backlog {
				x.submit()
			}
			x.grab()
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; {
				x.submit()
				done += x.work()
			}
		})
	}
}
