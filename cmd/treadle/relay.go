package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// relaySize is how much a relay passes on at a time, at most.
const relaySize = 32 << 10

// relay passes on what a command prints, while it runs and as fast as it is taken:
// whoever is slow to take it holds the command up. os/exec would stop outputDelay
// after the command's end, and lose what is still to be taken then.
type relay struct {
	in     *os.File // the command's standard output
	out    *os.File
	pass   func([]byte)
	linger time.Duration // how long to wait for what the command has left behind
	exited atomic.Bool   // the command has
	done   chan struct{}
}

func newRelay(linger time.Duration, pass func([]byte)) (*relay, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	r := &relay{in: in, out: out, pass: pass, linger: linger, done: make(chan struct{})}
	go r.copy()
	return r, nil
}

func (r *relay) copy() {
	defer close(r.done)
	buffer := make([]byte, relaySize)
	// What the command has left behind may hold the pipe open: of waiting for
	// that, not of passing on, there is an end.
	for left := r.linger; left > 0; {
		exited, start := r.exited.Load(), time.Now()
		if exited {
			_ = r.out.SetReadDeadline(start.Add(left)) // pipes have deadlines
		}
		n, err := r.out.Read(buffer)
		if exited {
			left -= time.Since(start)
		}
		if n > 0 {
			r.pass(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// finish returns when all that the command has printed was passed on.
func (r *relay) finish() {
	_ = r.in.Close() // the command had a copy
	r.exited.Store(true)
	_ = r.out.SetReadDeadline(time.Now().Add(r.linger))
	<-r.done
}

func (r *relay) close() { _ = r.out.Close() }
