package loop

import (
	"bytes"
	"slices"
	"testing"

	"treadle/loop/protocol"
	"treadle/sched"
)

// lineTalk is a conversation in lines: "suspend" suspends the session, "wait N" sets an alarm N milliseconds from now,
// and every other line is echoed.
type lineTalk struct {
	s         *protocol.Session
	suspended bool
	looks     int // calls of Consume
	rings     int
}

func (c *lineTalk) Consume(in []byte) (n int, err error) {
	c.looks++
	for !c.suspended {
		line, _, ok := bytes.Cut(in[n:], []byte("\n"))
		if !ok {
			break
		}
		n += len(line) + 1
		c.s.HandshakeDone = true
		var ms int64
		switch {
		case string(line) == "suspend":
			c.suspended = true
			c.s.Suspend()
		case bytes.HasPrefix(line, []byte("wait ")):
			for _, digit := range line[5:] {
				ms = ms*10 + int64(digit-'0')
			}
			c.s.Alarm(c.s.Loop.Now.Mono + ms)
		default:
			c.s.OpenOut()
			c.s.Out = append(append(c.s.Out, line...), '\n')
		}
	}
	return n, nil
}

func (c *lineTalk) Alarm() {
	c.rings++
	c.suspended = false
	c.s.OpenOut()
	c.s.Out = append(c.s.Out, "ring\n"...)
	c.s.Resume()
}

func (c *lineTalk) Rest(in []byte) int {
	if i := bytes.IndexByte(in, '\n'); i >= 0 {
		return i + 1
	}
	return len(in)
}

func (c *lineTalk) Deliver(*sched.Delivery) {}
func (c *lineTalk) IdleLimit() int64        { return 0 }
func (c *lineTalk) Closed()                 {}

// talk opens a connection whose conversation is a lineTalk.
func (w *memServer) talk() (*memConn, *lineTalk) {
	t := &lineTalk{}
	port := w.loopPort("periodic")
	port.Start = func(s *protocol.Session) protocol.Conversation {
		t.s = s
		return t
	}
	c := &memConn{w: w, r: w.loops[0], room: 1 << 40}
	w.Server.conns.add(port.protocol)
	c.s = c.r.open(c, port)
	w.conns = append(w.conns, c)
	return c, t
}

func (c *memConn) lines(t *testing.T, want string) {
	t.Helper()
	if got := string(c.read); got != want {
		t.Fatalf("the peer read %q, want %q", got, want)
	}
	c.read = nil
}

// TestDelimited: a line that comes in parts is handled once, when its end has come, and what follows is not lost.
func TestDelimited(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	c, talk := w.talk()
	c.send([]byte("on"))
	c.send([]byte("e two"))
	c.lines(t, "")
	talk.looks = 0
	c.send([]byte(" three\nfour\nfi"))
	c.lines(t, "one two three\nfour\n")
	if talk.looks > 2 {
		t.Errorf("Consume was called %d times for one read", talk.looks)
	}
	c.send([]byte("ve\n"))
	c.lines(t, "five\n")
}

// TestSuspend: a suspended session handles nothing, keeps what the peer sends and goes on in order.
func TestSuspend(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	c, talk := w.talk()
	c.send([]byte("a\nwait 500\nsuspend\nb\n"))
	c.send([]byte("c\nd"))
	c.lines(t, "a\n")
	w.manual.add(499)
	w.runTimers()
	c.lines(t, "")
	w.manual.add(1)
	for range 3 { // the alarm, its turn and the turn of the rest
		w.runTimers()
	}
	c.lines(t, "ring\nb\nc\n")
	c.send([]byte("e\n"))
	c.lines(t, "de\n")
	if talk.rings != 1 {
		t.Errorf("%d rings", talk.rings)
	}
	c.send([]byte("wait 5\nsuspend\n"))
	c.send(bytes.Repeat([]byte("x"), maxPausedBytes+1))
	if c.s.reason != errTooExpensive && !c.closed {
		t.Error("a suspended session takes any number of bytes")
	}
}

// TestAlarms: alarms ring in the order of their times, the last one that was set counts, and that of a closed session
// is dropped.
func TestAlarms(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	var rung []int
	var conns []*memConn
	for _, first := range []string{"wait 300\n", "wait 100\n", "wait 200\nwait 400\n", "wait 900\nwait 50\n", "wait 60\n"} {
		c, _ := w.talk()
		c.send([]byte(first))
		conns = append(conns, c)
	}
	if conns[4].close(); len(conns[0].r.alarms.heap) != 4 {
		t.Errorf("%d alarms after the end of one session of five", len(conns[0].r.alarms.heap))
	}
	for range 10 {
		w.manual.add(50)
		w.runTimers()
		for i, c := range conns {
			if len(c.read) > 0 {
				rung = append(rung, i)
				c.read = nil
			}
		}
	}
	if want := []int{3, 1, 0, 2}; !slices.Equal(rung, want) {
		t.Errorf("the alarms rang in the order %v, want %v", rung, want)
	}
	if r := conns[0].r; len(r.alarms.heap) != 0 {
		t.Errorf("%d alarms are left", len(r.alarms.heap))
	}
}
