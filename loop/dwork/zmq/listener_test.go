package zmq

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// collect takes requests until there are n.
func (r *testHub) collect(n int) (batch []Request) {
	r.t.Helper()
	late := time.After(patience)
	for len(batch) < n {
		select {
		case <-r.Ready():
			batch = r.Take(batch)
		case <-late:
			r.t.Fatalf("%d requests of %d", len(batch), n)
		}
	}
	return batch
}

// TestOrder answers a pipeline in random order: replies leave in the order of the requests.
func TestOrder(t *testing.T) {
	const n = 500
	r := listen(t, Options{})
	p := r.friend("")
	want := p.pipeline(n)
	random := rand.New(rand.NewPCG(1, 2))
	for got := 0; got < n; {
		batch := r.collect(1)
		got += len(batch)
		random.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
		for _, q := range batch {
			q.Reply(q.Payload)
		}
	}
	p.expect(commandFrame("PONG", "x") + want)
}

// pipeline sends a PING and n requests, and returns the replies of an echo to those.
func (p *peer) pipeline(n int) string {
	var all strings.Builder
	p.send(commandFrame("PING", "\x00\x00x"))
	for i := range n {
		all.WriteString(frames("", fmt.Sprint("m", i)))
	}
	p.send(all.String())
	return all.String()
}

// TestLater puts off all requests of a connection but the first few, in whatever order those are answered: the replies
// to them leave at once, the others are taken again, and each is answered in its place.
func TestLater(t *testing.T) {
	const n = 200
	r := listen(t, Options{})
	p := r.friend("")
	p.pipeline(n)
	pong := commandFrame("PONG", "x")
	random := rand.New(rand.NewPCG(1, 2))
	for got := 0; got < n; {
		batch := r.collect(1)
		for i, q := range batch[1:] {
			if !q.Follows(batch[i]) {
				t.Fatal("two requests of one connection are none")
			}
		}
		now := batch[:min(1+random.IntN(3), len(batch))]
		early := random.IntN(2) == 0
		if !early {
			for _, q := range batch[len(now):] {
				q.Postpone()
			}
		}
		random.Shuffle(len(now), func(i, j int) { now[i], now[j] = now[j], now[i] })
		for _, q := range now {
			q.Reply(q.Payload)
		}
		if early {
			for _, q := range batch[len(now):] {
				q.Postpone()
			}
		}
		for range now {
			p.expect(pong + frames("", fmt.Sprint("m", got)))
			pong = ""
			got++
		}
	}
}

// TestLateReplies keeps requests of several connections while others are answered: their bytes stay as they are.
func TestLateReplies(t *testing.T) {
	r := listen(t, Options{})
	a, b := r.friend("a"), r.friend("b")
	a.send(frames("", "late") + frames("", "later"))
	late := r.collect(2)
	for i := range 10 {
		text := fmt.Sprint("b", i)
		b.send(frames("", text))
		batch := r.collect(1)
		if string(batch[0].Payload) != text || batch[0].conn.RemoteAddr().String() != b.LocalAddr().String() {
			t.Fatalf("%q of %s", batch[0].Payload, batch[0].conn.RemoteAddr().String())
		}
		batch[0].Reply(batch[0].Payload)
		b.expect(frames("", text))
	}
	a.send(frames("", "last")) // waits for the others
	late[1].Reply([]byte("second"))
	if len(r.Ready()) != 0 {
		t.Error("a connection was read before its requests were answered")
	}
	late[0].Reply(late[0].Payload)
	a.expect(frames("", "late") + frames("", "second"))
	r.collect(1)[0].Reply(nil)
	a.expect(frames("", ""))
}

// TestAnsweredTwice panics: the second reply would go to another request.
func TestAnsweredTwice(t *testing.T) {
	r := listen(t, Options{})
	p := r.friend("")
	p.send(frames("", "a") + frames("", "b"))
	q := r.collect(2)[0]
	q.Reply(nil)
	defer func() {
		if fault := recover(); fault != "BUG: a request was answered twice" {
			t.Errorf("got %v", fault)
		}
	}()
	q.Reply(nil)
}

// TestPeerGone answers a request whose peer has left, and one whose listener is closed.
func TestPeerGone(t *testing.T) {
	r := listen(t, Options{})
	a, b := r.friend(""), r.friend("")
	a.send(frames("", "a"))
	q := r.collect(1)
	_ = a.Close()
	q[0].Reply(nil)
	r.until("its end", func(s Stats) bool { return s.Open == 1 })
	b.send(frames("", "b"))
	q = r.collect(1)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	b.closed()
	q[0].Reply(q[0].Payload)
}

// TestCloseDelivers lets the replies leave that were given before.
func TestCloseDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listenPipes(t, Options{})
		p := r.friend("")
		large := strings.Repeat("x", 1<<20)
		p.send(frames("", "a"))
		r.collect(1)[0].Reply([]byte(large))
		var done sync.WaitGroup
		done.Go(func() { _ = r.Close() })
		got, err := io.ReadAll(p.in)
		done.Wait()
		if err != nil || len(got) != 2+9+len(large) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
		if err := r.Close(); err != nil {
			t.Error("closing twice:", err)
		}
	})
}

// TestCloseWaitsForAnswers has a request answered while its listener closes: the reply leaves.
func TestCloseWaitsForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listenPipes(t, Options{})
		p := r.friend("")
		p.send(frames("", "a"))
		q := r.collect(1)[0]
		var done sync.WaitGroup
		done.Go(func() { _ = r.Close() })
		synctest.Wait()
		q.Reply(q.Payload)
		if got, err := io.ReadAll(p.in); err != nil || string(got) != frames("", "a") {
			t.Errorf("got %q, %v", got, err)
		}
		done.Wait()
	})
}

// TestTurns floods from many connections: one turn of each is bounded, the more wait the tighter, so that another is
// served after a bounded number of messages.
func TestTurns(t *testing.T) {
	const floods = 50
	r := listen(t, Options{})
	all := strings.Repeat(frames("", ""), 8000)
	for range floods {
		p := r.friend("")
		p.send(all)
	}
	var batch []Request
	for waiting := map[*conn]bool{}; len(waiting) < floods; {
		more := r.collect(1)
		for _, q := range more {
			waiting[q.conn] = true
		}
		batch = append(batch, more...)
	}
	if most := maxTurn * 6; len(batch) > most { // 1 + 1/2 + .. + 1/50 is less than 5, and counting may lag
		t.Errorf("%d messages in front of the next, at most %d expected", len(batch), most)
	}
	c := r.friend("")
	c.send(frames("", "me"))
	mine := r.collect(1)
	if len(mine) != 1 || string(mine[0].Payload) != "me" {
		t.Fatalf("%d requests, the first %q", len(mine), mine[0].Payload)
	}
	mine[0].Reply(mine[0].Payload)
	c.expect(frames("", "me"))
}

// TestThousandConnections has a thousand connections at once, each served twice, and lets each come back.
func TestThousandConnections(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 100
	}
	r := echo(t, Options{})
	clients := make(chan *Client, n)
	var dialing sync.WaitGroup
	for i := range n {
		dialing.Go(func() {
			c := r.client()
			ask(t, c, fmt.Sprint("first ", i))
			clients <- c
		})
	}
	dialing.Wait()
	if s := r.Stats(); s.Open != int64(n) {
		t.Fatalf("%+v", s)
	}
	for range n {
		c := <-clients
		ask(t, c, "second")
		_ = c.Close()
		back := r.client()
		ask(t, back, "third")
	}
	r.until("the end of the first ones", func(s Stats) bool { return s.Open == int64(n) && s.Accepted == int64(2*n) })
}

// TestUnixSocket serves another kind of listener.
func TestUnixSocket(t *testing.T) {
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	r := listenOn(t, ln, Options{})
	nc, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write([]byte(string(greeting) + commandFrame("READY", property("Socket-Type", "REQ")) + frames("", "a"))); err != nil {
		t.Fatal(err)
	}
	if q := r.collect(1); string(q[0].Payload) != "a" {
		t.Errorf("got %q", q[0].Payload)
	}
}

// TestCloseEndsHandshakes does not wait for peers that are not there yet.
func TestCloseEndsHandshakes(t *testing.T) {
	r := listen(t, Options{})
	p := r.peer()
	p.skip(greetingSize) // the handshake has begun
	if err := r.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	p.closed()
	if nc, err := net.Dial("tcp", r.address); err == nil {
		_ = nc.Close()
		t.Error("still listening")
	}
}
