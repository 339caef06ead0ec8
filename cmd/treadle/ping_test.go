package main

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// TestPingSilent pings a port that accepts connections and never answers: ping greets once, in the CRC framing
// alone, and ends with one line.
func TestPingSilent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var greetings atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			greetings.Add(1)
		}
	}()
	address := l.Addr().String()
	out, errs, code := treadle(t, "", "-H", address, "ping")
	l.Close()
	<-done
	want := "treadle: cannot talk to tcp://" + address + ": no answer in time (is it another protocol's? By default port 5000 is Periodic's;"
	if code != exitUnreachable || out != "" || !strings.HasPrefix(errs, want) || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d, %q, %q; want %q", code, out, errs, want)
	}
	if greetings.Load() != 1 {
		t.Errorf("%d connections: ping goes on to the framing of 2018 after its time is over", greetings.Load())
	}
}
