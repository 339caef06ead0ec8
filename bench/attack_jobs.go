package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	gloomcodec "treadle/codec/gloom"
	periodiccodec "treadle/codec/periodic"
)

const (
	idlers = 10_000
	// manyFunctions makes a STATUS of about two megabytes, manyJobs a DUMP of about ten.
	manyFunctions = 20_000
	manyJobs      = 100_000
	// collisions is how many names of one hash are sent at a time.
	collisions = 1 << 12
	// dripPause is the time between two bytes of a peer that sends as slowly as it can.
	dripPause = 10 * time.Millisecond
)

// Beginnings of frames of Periodic and of Gloom that announce 4 GiB, and 1 MiB.
var (
	greetPeriodic    = string(periodiccodec.AppendHello(nil, &periodiccodec.Hello{Framing: periodiccodec.Plain, Role: periodiccodec.Client}))
	announcePeriodic = greetPeriodic + "\x00REQ\xff\xff\xff\xff\x00\x00\x00\x01\x0d"
	slowPeriodic     = greetPeriodic + "\x00REQ\x00\x10\x00\x00\x00\x00\x00\x01\x0d"
	announceGloom    = "\xff\xff\xff\xff{"
	slowGloom        = "\x00\x10\x00\x00{"
)

var periodicAttacks = []attack{
	{name: "no attack"},
	{name: "slowloris", do: func(c net.Conn) error { return drip(c, slowPeriodic) }},
	{name: "4 GiB announced", do: func(c net.Conn) error { return send(c, []byte(announcePeriodic)) }},
	{name: "never reading", do: func(c net.Conn) error {
		ask := request(nil, periodiccodec.ConfigGet, periodiccodec.AppendStr8String(nil, "timeout"))
		return flood(c, strings.Repeat(string(ask), 2000), []byte(greetPeriodic))
	}},
	{name: "10,000 idle", do: func(c net.Conn) error { return send(c, []byte(greetPeriodic)) }, count: idlers},
	{name: "connecting and leaving", do: net.Conn.Close},
	{name: "names that collide", count: 4, do: func(c net.Conn) error {
		var text []byte
		for i := range collisions {
			text = request(text, periodiccodec.SubmitJob, job("collide", colliding(i)))
		}
		return floodReading(c, string(text), []byte(greetPeriodic))
	}},
	{name: "giant STATUS", count: 8, first: offer, do: func(c net.Conn) error {
		return floodReading(c, string(request(nil, periodiccodec.Status, nil)), []byte(greetPeriodic))
	}},
	{name: "DUMP and load", count: 4, first: stockpile, do: func(c net.Conn) error {
		text := request(nil, periodiccodec.Dump, nil)
		for i := range 1000 {
			text = request(text, periodiccodec.SubmitJob, job("dumped", fmt.Sprint(i)))
		}
		return floodReading(c, string(text), []byte(greetPeriodic))
	}},
}

// Those of Gloom come to masters and slaves.
var gloomAttacks = []attack{
	{name: "no attack"},
	{name: "slowloris", do: func(c net.Conn) error { return drip(c, slowGloom) }},
	{name: "4 GiB announced", do: func(c net.Conn) error { return send(c, []byte(announceGloom)) }},
	{name: "never reading", do: func(c net.Conn) error {
		return flood(c, strings.Repeat(string(gloomcodec.AppendRespond(nil, []byte("1"))), 2000))
	}},
	{name: "10,000 idle", do: silent, count: idlers},
	{name: "connecting and leaving", do: net.Conn.Close},
	{name: "names that collide", count: 4, do: func(c net.Conn) error { // slaves may not submit: that is refused
		var text []byte
		for i := range collisions {
			id := gloomcodec.AppendText(nil, []byte(colliding(i)))
			text = gloomcodec.AppendSubmit(text, id, []byte(`"collide"`), 0, []byte("1"))
		}
		return floodReading(c, string(text))
	}},
}

// request appends one of a client of 2018.
func request(dst []byte, cmd periodiccodec.Command, args []byte) []byte {
	start := len(dst)
	dst = periodiccodec.AppendMessage(periodiccodec.BeginRequest(dst, periodiccodec.Plain), 1, cmd)
	dst = append(dst, args...)
	periodiccodec.End(dst, start, periodiccodec.Plain)
	return dst
}

func job(function, name string) []byte {
	return periodiccodec.AppendJob(nil, &periodiccodec.Job{Func: []byte(function), Name: []byte(name)})
}

// colliding names are all the same to h*31 + c, as many hashes are.
func colliding(i int) string {
	var name strings.Builder
	for bit := range 16 {
		name.WriteString([]string{"Aa", "BB"}[i>>bit&1])
	}
	return name.String()
}

// drip sends the beginning, and then as little as it can.
func drip(c net.Conn, beginning string) error {
	_, err := io.WriteString(c, beginning)
	for pause := time.NewTicker(dripPause); err == nil; <-pause.C {
		_, err = c.Write([]byte{' '})
	}
	return err
}

// floodReading is flood by a peer that reads its answers, whatever they are.
func floodReading(c net.Conn, text string, beginning ...[]byte) error {
	go func() { _, _ = io.Copy(io.Discard, c) }()
	return flood(c, text, beginning...)
}

// offer is a worker with many functions.
func offer(c net.Conn) error {
	b := periodiccodec.AppendHello(nil, &periodiccodec.Hello{Framing: periodiccodec.Plain, Role: periodiccodec.Worker})
	for i := range manyFunctions {
		b = request(b, periodiccodec.CanDo, periodiccodec.AppendStr8String(nil, fmt.Sprintf("function %0100d", i)))
	}
	return ponged(c, b)
}

// stockpile submits many jobs.
func stockpile(c net.Conn) error {
	b := []byte(greetPeriodic)
	for i := range manyJobs {
		b = request(b, periodiccodec.SubmitJob, job("dumped", fmt.Sprintf("job %064d", i)))
	}
	return ponged(c, b)
}

// ponged sends b and a PING, and reads up to its PONG.
func ponged(c net.Conn, b []byte) error {
	b = request(b, periodiccodec.Ping, nil)
	go func() { _, _ = c.Write(b) }() // an error shows in what is read
	if err := c.SetReadDeadline(time.Now().Add(trialLimit)); err != nil {
		return err
	}
	want := string(periodiccodec.AppendReply(nil, periodiccodec.Plain, 1, periodiccodec.Pong))
	tail, buffer := "", make([]byte, 64<<10)
	for !strings.HasSuffix(tail, want) {
		n, err := c.Read(buffer)
		if err != nil {
			return err
		}
		tail += string(buffer[:n])
		tail = tail[max(0, len(tail)-len(want)):]
	}
	return c.SetReadDeadline(time.Time{})
}
