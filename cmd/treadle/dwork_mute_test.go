package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"treadle/loop/dwork/zmq"
)

// mute accepts connections, reads a line of each and says no more than that.
func mute(t *testing.T, says string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				_, _ = bufio.NewReader(c).ReadString('\n') // whatever comes, the answer is the same
				_, _ = io.WriteString(c, says)
			}()
		}
	}()
	return l.Addr().String()
}

// TestDworkGraphMute: a server that says nothing, or stops in the middle, does not keep the
// command.
func TestDworkGraphMute(t *testing.T) {
	t.Parallel()
	f := func(says, want string) {
		t.Helper()
		base := "http://" + mute(t, says)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var got strings.Builder
		err := fetchGraph(ctx, base, http.DefaultClient, time.Second, func(write func(io.Writer) error) error { return write(&got) })
		if err == nil || !strings.Contains(err.Error(), want) || ctx.Err() != nil {
			t.Errorf("%q: %v, %v; want %q", says, err, ctx.Err(), want)
		}
	}
	f("", ": no answer for 1s (is ")
	f("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndigraph", "the graph is not whole: no answer for 1s")
}

// TestDworkHubGone: a hub that goes away, or has no reply, is told of in plain words.
func TestDworkHubGone(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hub := zmq.Listen(l, zmq.Options{})
	go func() {
		<-hub.Ready()
		hub.Close()
	}()
	_, errs, code := treadle(t, "", "dwork", "-s", l.Addr().String(), "status")
	if want := "treadle: the server closed the connection\n"; errs != want || code != 3 {
		t.Errorf("exit code %d, %q, want %q", code, errs, want)
	}
}
