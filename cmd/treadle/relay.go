package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// relaySize is the most that a relay passes on at a time.
const relaySize = 32 << 10

// pipeSize is the capacity of a pipe: an exited command has left at most this in it.
const pipeSize = 64 << 10

// relay passes on a command's output while it runs. A slow pass blocks the command. os/exec would stop reading
// outputDelay after the command's end and lose the output that pass has not taken by then.
type relay struct {
	writeEnd *os.File // the command's standard output
	readEnd  *os.File
	pass     func([]byte)
	linger   time.Duration // how long to wait for processes that the command has left running
	exited   atomic.Bool   // the command has exited
	done     chan struct{}
}

func newRelay(linger time.Duration, pass func([]byte)) (*relay, error) {
	readEnd, writeEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	r := &relay{writeEnd: writeEnd, readEnd: readEnd, pass: pass, linger: linger, done: make(chan struct{})}
	go r.copy()
	return r, nil
}

// copy passes output of the command on until it ends. When the command has exited, another process may hold the pipe
// open: copy then waits for linger at most.
func (r *relay) copy() {
	defer close(r.done)
	buffer := make([]byte, relaySize)
	// Waiting is bounded, passing on is not.
	for left := r.linger; left > 0; {
		exited, start := r.exited.Load(), time.Now()
		if exited {
			_ = r.readEnd.SetReadDeadline(start.Add(left)) // pipes have deadlines
		}
		n, err := r.readEnd.Read(buffer)
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

// rest passes on the bytes in the pipe without waiting. After a deadline Read fails without reading, and on a busy
// machine the deadline can pass before the relay has read everything.
func (r *relay) rest(buffer []byte) {
	_ = r.readEnd.SetReadDeadline(time.Time{})
	pipe, err := r.readEnd.SyscallConn()
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

// finish returns when all output of the command was passed on.
func (r *relay) finish() {
	_ = r.writeEnd.Close() // the command had a copy
	r.exited.Store(true)
	_ = r.readEnd.SetReadDeadline(time.Now().Add(r.linger))
	<-r.done
}

func (r *relay) close() { _ = r.readEnd.Close() }
