package main

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"time"
)

// attackers is how many connections attack at a time, unless the attack says otherwise.
const attackers = 100

// attack is something that peers do to a server while a well-behaved one goes on asking.
type attack struct {
	name   string
	do     func(conn net.Conn) error // until the connection is closed; an error is the server's defence; nil: nobody attacks
	scarce bool                      // the server is left with hardly any descriptors
	count  int                       // connections at a time; 0: attackers
	first  func(conn net.Conn) error // what one connection, which stays, sets up before
}

// The greeting of ZMTP 3.1 with the NULL mechanism, and the READY of a DEALER.
var (
	zmtpGreeting = append(append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'}, make([]byte, 16)...), make([]byte, 32)...)
	zmtpReady    = []byte("\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")
	zmtpSame     = []byte("\x04\x2d\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x04same")
)

// dworkAttacks are those that ZeroMQ libraries and the original hub fell to.
var dworkAttacks = []attack{
	{name: "no attack"},
	{name: "no attack, busy machine", do: compute},
	{name: "silence", do: silent},
	{name: "half a handshake", do: func(c net.Conn) error { return send(c, zmtpGreeting[:20]) }},
	{name: "lying READY", do: func(c net.Conn) error {
		return send(c, zmtpGreeting, []byte("\x04\x1c\x05READY\x0bSocket-Type\x7f\xff\xff\xffDEALER"))
	}},
	{name: "frame of 2^62 bytes", do: func(c net.Conn) error { return attackFrame(c, 1<<62) }},
	{name: "frame of 8 GiB", do: func(c net.Conn) error { return attackFrame(c, 8<<30) }},
	{name: "endless MORE", do: func(c net.Conn) error { return flood(c, strings.Repeat("\x01\x00", 32<<10), zmtpGreeting, zmtpReady) }},
	{name: "pipelining, never reading", do: func(c net.Conn) error {
		return flood(c, strings.Repeat("\x01\x00\x00\x02\x08\x06", 10<<10), zmtpGreeting, zmtpReady)
	}},
	{name: "no delimiter", do: func(c net.Conn) error {
		return flood(c, strings.Repeat("\x00\x02\x08\x06", 10<<10), zmtpGreeting, zmtpReady)
	}},
	{name: "extra frames", do: func(c net.Conn) error {
		return flood(c, strings.Repeat("\x01\x00\x01\x02\x08\x06\x00\x02\x08\x06", 6<<10), zmtpGreeting, zmtpReady)
	}},
	{name: "heartbeats", do: func(c net.Conn) error { // whose answers are read
		go func() { _, _ = io.Copy(io.Discard, c) }()
		return flood(c, strings.Repeat("\x04\x07\x04PING\x00\x00", 6<<10), zmtpGreeting, zmtpReady)
	}},
	{name: "equal identities", do: func(c net.Conn) error { // each looks for a task that is not there
		err := send(c, zmtpGreeting, zmtpSame)
		for answer := make([]byte, 256); err == nil; {
			if err = send(c, []byte("\x01\x00\x00\x05\x08\x04\x1a\x01x")); err == nil {
				_, err = c.Read(answer)
			}
		}
		return err
	}},
	{name: "no descriptors", do: silent, scarce: true},
	{name: "connecting and leaving", do: net.Conn.Close},
}

func silent(net.Conn) error { return nil }

// compute keeps a processor busy and leaves the server alone: what a client waits for meanwhile is the machine.
func compute(c net.Conn) (err error) {
	for err == nil {
		err = c.SetDeadline(time.Time{})
	}
	return err
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

// flood sends the beginning once, and the text until the server has enough of it.
func flood(c net.Conn, text string, beginning ...[]byte) error {
	err := send(c, beginning...)
	for err == nil {
		_, err = io.WriteString(c, text)
	}
	return err
}
