package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// relaySize is how much a relay passes on at a time, at most.
const relaySize = 32 << 10

// pipeSize is how much a pipe holds: a command that has exited has left no more in it.
const pipeSize = 64 << 10

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
	// A process that the command has left behind may hold the pipe open: there is
	// an end of waiting for it, not of passing on.
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
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return
		}
	}
	r.rest(buffer)
}

// rest passes on what the pipe holds and waits for nothing. Behind a deadline Read does not
// look, and a machine that is busy enough may be at one before it has read what was there.
func (r *relay) rest(buffer []byte) {
	_ = r.out.SetReadDeadline(time.Time{})
	pipe, err := r.out.SyscallConn()
	for left := pipeSize; err == nil && left > 0; {
		n := 0
		if fault := pipe.Read(func(fd uintptr) bool {
			n, err = syscall.Read(int(fd), buffer)
			return true
		}); fault != nil || n <= 0 {
			return
		}
		r.pass(buffer[:n])
		left -= n
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
