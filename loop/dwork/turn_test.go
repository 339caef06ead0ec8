package dwork

import (
	"fmt"
	"net"
	"strings"
	"testing"

	codec "treadle/codec/dwork"
	"treadle/loop/dwork/zmq"
)

// hubTurns is a hub with a socket, whose turns the test takes.
type hubTurns struct {
	*testHub
	l *zmq.Listener
}

func newHubTurns(t *testing.T) *hubTurns {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hubTurns{newTestHub(t, Options{}), zmq.Listen(ln, zmq.Options{})}
	t.Cleanup(func() { _ = h.l.Close() })
	h.listeners = []*zmq.Listener{h.l}
	h.sockets = []net.Listener{ln}
	return h
}

// posts connects a peer, sends its requests, and returns when the next turn will get them.
func (h *hubTurns) posts(requests ...[]byte) *zmq.Client {
	h.t.Helper()
	c, err := zmq.Dial(h.t.Context(), h.sockets[0].Addr().String())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Close() })
	for _, r := range requests {
		c.Send(r)
	}
	if err := c.Flush(); err != nil {
		h.t.Fatal(err)
	}
	<-h.l.Ready()
	return c
}

// told checks the type of a peer's next reply.
func (h *hubTurns) told(c *zmq.Client, want codec.Type) {
	h.t.Helper()
	reply, err := c.Recv()
	if err != nil {
		h.t.Fatal(err)
	}
	var q codec.Query
	if err := codec.DecodeReply(reply, &q); err != nil || q.Type != want {
		h.t.Errorf("the reply is %v, %v, want %v", q.Type, err, want)
	}
}

func (h *hubTurns) active() int {
	n, _ := h.sched.Backlog(queue)
	return n
}

func createOf(tasks int, name, origin string) []byte {
	create := codec.AppendType(nil, codec.Create)
	for i := range tasks {
		create = codec.AppendTask(create, fmt.Append(nil, name, i), []byte(origin))
	}
	return create
}

func stealOf(n int32) []byte {
	return codec.AppendLocation(codec.AppendN(codec.AppendType(nil, codec.Steal), n), []byte("w"))
}

func lookOf(task string) []byte {
	return codec.AppendName(codec.AppendType(nil, codec.Lookup), []byte(task))
}

// TestLongAfterShort: a long request waits for all short requests of the turn. The later requests of its peer wait with
// it.
func TestLongAfterShort(t *testing.T) {
	f := func(what string, long []byte, first codec.Type) {
		t.Helper()
		h := newHubTurns(t)
		a := h.posts(long, createOf(1, "behind", ""))
		b := h.posts(createOf(1, "x", ""), stealOf(shortSteal))
		h.turn()
		h.told(a, first)
		h.told(b, codec.OK)
		h.told(b, codec.Transfer)
		h.told(a, codec.OK)
	}
	f("a large request", createOf(1, "x", strings.Repeat("o", shortRequest)), codec.OK)
	f("many tasks", stealOf(shortSteal+1), codec.NotFound) // the other peer has the only one
	f("a look", lookOf("x0"), codec.OK)
	f("a look for what is made behind it", lookOf("behind0"), codec.NotFound)
}

// TestLongTakeTurns: a turn answers one request of those that take longer than a slice, however many peers send them.
func TestLongTakeTurns(t *testing.T) {
	const peers, each = 3, maxParts / taskParts
	h := newHubTurns(t)
	var all []*zmq.Client
	for i := range peers {
		all = append(all, h.posts(createOf(each, fmt.Sprint("p", i, " "), "")))
	}
	for n := 0; ; <-h.l.Ready() { // for the requests put off
		before := n
		h.turn()
		if n = h.active(); n > before+each {
			t.Fatalf("a turn makes %d tasks, want %d", n-before, each)
		}
		if n == peers*each {
			break
		}
	}
	for _, c := range all {
		h.told(c, codec.OK)
	}
}
