package zmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/go-zeromq/zmq4"
)

// TestLibrarySockets serves the REQ and the DEALER of zmq4.
func TestLibrarySockets(t *testing.T) {
	r := echo(t, Options{})
	f := func(s zmq4.Socket, envelope ...[]byte) {
		t.Helper()
		defer s.Close()
		if err := s.Dial("tcp://" + r.address); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			payload := []byte(fmt.Sprint("payload ", i))
			if err := s.SendMulti(zmq4.NewMsgFrom(append(envelope[:len(envelope):len(envelope)], payload)...)); err != nil {
				t.Fatal(err)
			}
			m, err := s.Recv()
			if got := m.Frames[len(m.Frames)-1]; err != nil || string(got) != string(payload) {
				t.Fatalf("got %q, %v", got, err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f(zmq4.NewReq(ctx))
	f(zmq4.NewDealer(ctx), []byte("id"), nil)
}

// TestClientPipelines sends much before it reads.
func TestClientPipelines(t *testing.T) {
	r := echo(t, Options{})
	c := r.client()
	const n = 5000
	for i := range n {
		c.Send([]byte(fmt.Sprint("m", i)))
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if reply, err := c.Recv(); err != nil || string(reply) != fmt.Sprint("m", i) {
			t.Fatalf("reply %d: %q, %v", i, reply, err)
		}
	}
	ask(t, c, strings.Repeat("large", 1<<20))
	ask(t, c, "")
}

// TestClientGivesUp ends with its context, before and after it has connected.
func TestClientGivesUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Dial(ended, silent.Addr().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("dialled: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 1)
	defer cancel()
	if _, err := Dial(ctx, silent.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent server: %v", err)
	}

	r := listen(t, Options{}) // nobody answers
	c := r.client()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-r.Ready()
		stop()
	}()
	if _, err := c.Request(ctx, []byte("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("no reply: %v", err)
	}
}

// TestClientErrors talks to what is no server of ours.
func TestClientErrors(t *testing.T) {
	f := func(answer, want string) {
		t.Helper()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			_, _ = io.WriteString(nc, answer)
			_, _ = io.Copy(io.Discard, nc) // until the client is done
		}()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := Dial(ctx, "tcp://"+ln.Addr().String())
		if err == nil {
			defer c.Close()
			_, err = c.Request(ctx, []byte("a"))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", answer, err, want)
		}
	}
	ready := string(greeting) + commandFrame("READY", property("Socket-Type", "ROUTER"))
	f("HTTP/1.1 400 Bad Request\r\n"+strings.Repeat("x", 64), "does not speak ZeroMQ")
	f(string(greeting)+commandFrame("READY", property("Socket-Type", "PUB")), "does not speak ZeroMQ")
	f(ready+frames("x"), errReply.Error())
	f(ready+frames("", "a", "b"), errReply.Error())
	f(ready+"\x08\x00", errReserved.Error())

	for _, address := range []string{"ipc:///tmp/x", "tcp://127.0.0.1/x", "127.0.0.1"} {
		if _, err := Dial(context.Background(), address); err == nil {
			t.Errorf("%s: connected", address)
		}
	}
}

// TestClientAnswersPings as a server with heartbeats expects.
func TestClientAnswersPings(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	heard := make(chan string, 1)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		_, _ = io.WriteString(nc, string(greeting)+commandFrame("READY", property("Socket-Type", "ROUTER"))+commandFrame("PING", "\x00\x01ctx"))
		want := commandFrame("PONG", "ctx")
		var all []byte
		for b := make([]byte, 1); !strings.HasSuffix(string(all), want); {
			if _, err := nc.Read(b); err != nil {
				break
			}
			all = append(all, b...)
		}
		heard <- string(all)
		_, _ = io.WriteString(nc, frames("", "done"))
		_, _ = io.Copy(io.Discard, nc)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := Dial(ctx, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if reply, err := c.Request(ctx, []byte("a")); err != nil || string(reply) != "done" {
		t.Fatalf("%q, %v", reply, err)
	}
	if all := <-heard; !strings.Contains(all, frames("", "a")) {
		t.Errorf("heard %q", all)
	}
}
