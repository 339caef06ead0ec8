package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"treadle/codec/dwork"
)

// attackers is how many connections attack at a time.
const attackers = 100

// attack is something that a peer does to a hub while a well-behaved one goes on asking.
type attack struct {
	name string
	do   func(conn net.Conn) error // until the connection is closed; an error is the server's defence
}

// The greeting of ZMTP 3.1 with the NULL mechanism, and the READY of a DEALER.
var (
	zmtpGreeting = append(append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'}, make([]byte, 16)...), make([]byte, 32)...)
	zmtpReady    = []byte("\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")
)

var attacks = []attack{
	{"no attack", nil},
	{"silence", func(net.Conn) error { return nil }},
	{"half a handshake", func(c net.Conn) error { return send(c, zmtpGreeting[:20]) }},
	{"lying READY", func(c net.Conn) error {
		return send(c, zmtpGreeting, []byte("\x04\x1c\x05READY\x0bSocket-Type\x7f\xff\xff\xffDEALER"))
	}},
	{"frame of 2^62 bytes", func(c net.Conn) error { return attackFrame(c, 1<<62) }},
	{"frame of 8 GiB", func(c net.Conn) error { return attackFrame(c, 8<<30) }},
	{"endless MORE", func(c net.Conn) error {
		if err := send(c, zmtpGreeting, zmtpReady); err != nil {
			return err
		}
		return flood(c, strings.Repeat("\x01\x00", 32<<10))
	}},
	{"pipelining, never reading", func(c net.Conn) error {
		if err := send(c, zmtpGreeting, zmtpReady); err != nil {
			return err
		}
		return flood(c, strings.Repeat("\x01\x00\x00\x02\x08\x06", 10<<10))
	}},
	{"no delimiter", func(c net.Conn) error {
		if err := send(c, zmtpGreeting, zmtpReady); err != nil {
			return err
		}
		return flood(c, strings.Repeat("\x00\x02\x08\x06", 10<<10))
	}},
	{"connecting and leaving", func(c net.Conn) error { return c.Close() }},
}

func send(c net.Conn, parts ...[]byte) error {
	for _, p := range parts {
		if _, err := c.Write(p); err != nil {
			return err
		}
	}
	return nil
}

func attackFrame(c net.Conn, size uint64) error {
	return send(c, zmtpGreeting, zmtpReady, binary.BigEndian.AppendUint64([]byte{2}, size))
}

func flood(c net.Conn, text string) error {
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
	}
}

// underAttack measures how long one client waits for its answers meanwhile.
func (s *sample) underAttack(ctx context.Context, name, address string, requests int) error {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	h := &hubTrial{address: address}
	c, release, err := h.dial(ctx)
	if err != nil {
		return err
	}
	defer release()
	attacking, end := context.WithCancel(ctx)
	defer end()
	for _, a := range attacks {
		if "dwork, "+a.name == name && a.do != nil {
			for range attackers {
				go keepAttacking(attacking, address, a)
			}
		}
	}
	ask := dwork.AppendType(nil, dwork.OK)
	waited := newLatencies()
	start := now()
	for range requests {
		began := now()
		if _, err := exchange(c, ask); err != nil {
			return fmt.Errorf("the well-behaved client: %w", err)
		}
		waited.record(now() - began)
	}
	s.Jobs, s.JobsPerSecond, s.Submit = requests, float64(requests)*1e9/float64(now()-start), waited.quantiles()
	return nil
}

// keepAttacking attacks over one connection after the other until ctx ends.
func keepAttacking(ctx context.Context, address string, a attack) {
	for ctx.Err() == nil {
		conn, err := net.DialTimeout("tcp", address, dialLimit)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		if err = a.do(conn); err == nil {
			_, err = io.Copy(io.Discard, conn) // until the server has enough of it
		}
		stop()
		_ = conn.Close()
		if !errors.Is(err, net.ErrClosed) {
			select { // a hostile client may be quick, but not so quick that it leaves no processor to the others
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
		}
	}
}
