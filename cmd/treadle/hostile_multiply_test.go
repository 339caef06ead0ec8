package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"treadle/codec/dwork"
	gloomcodec "treadle/codec/gloom"
	"treadle/codec/kts46"
	"treadle/codec/periodic"
	"treadle/loop/client"
)

// The attacks of this file are small requests that would make the server hold, or do, much.

// nearlyFrame is the largest frame less the room for the rest of its request.
const nearlyFrame = 4<<20 - 256

// awaits has one client await one job with a large result very often.
func (s *attack) awaits() {
	ctx := patient(s.t)
	w := worked(client.DialWorker(ctx, s.socket, client.Options{}))(s.t)
	defer w.Close()
	must(s.t, w.CanDo(ctx, "much"))
	b := hello(periodic.Client)
	for i := range 256 {
		b = ask(b, uint32(i), periodic.RunJob, periodic.AppendJob(nil, &periodic.Job{Func: []byte("much"), Name: []byte("awaited")}))
	}
	c := s.dial("periodic")
	s.answered(c, b)
	must(s.t, w.Done(ctx, worked(w.Grab(ctx))(s.t), make([]byte, nearlyFrame)))
	s.wantHungUp(c, "a peer that awaits 256 results of 4 MiB")
}

// broadcast sends a large job to very many workers that do not read it.
func (s *attack) broadcast() {
	b := ask(hello(periodic.Worker), 1, periodic.Broadcast, periodic.AppendStr8String(nil, "to all"))
	b = ask(b, 2, periodic.GrabJob, nil)
	for range s.files(150 * s.scale) {
		c := s.dialFrom(net.Dialer{Control: littleRoom}, "periodic")
		defer c.Close()
		s.answered(c, b)
	}
	s.told(ask(hello(periodic.Client), 1, periodic.SubmitJob, periodic.AppendJob(nil, &periodic.Job{Func: []byte("to all"), Workload: make([]byte, nearlyFrame)})))
}

// lookups has very many peers look up a large task without reading the reply.
func (s *attack) lookups() {
	ctx := patient(s.t)
	hub := worked(client.DialHub(ctx, s.ports["dwork"]))(s.t)
	defer hub.Close()
	must(s.t, hub.Create(ctx, client.DworkTask{Name: "large", Origin: strings.Repeat("x", nearlyFrame)}))
	look := string(dwork.AppendName(dwork.AppendType(nil, dwork.Lookup), []byte("large")))
	look = fmt.Sprintf("\x01\x00\x00%c%s", len(look), look)
	// Each has the hub copy eight megabytes while others wait for their turn: two thousand are ten seconds of that.
	for range s.files(100 * min(s.scale, 5)) {
		c := s.dialFrom(net.Dialer{Control: littleRoom}, "dwork")
		defer c.Close()
		_, err := io.WriteString(c, string(zmtp())+look+look)
		must(s.t, err)
	}
	// Among very many who ask at the same time it may be turned away, too: then it asks again.
	for end := time.Now().Add(patience); ; {
		reader := worked(client.DialHub(ctx, s.ports["dwork"]))(s.t)
		got, err := reader.Lookup(ctx, "large")
		reader.Close()
		if err == nil && len(got.Origin) == nearlyFrame {
			return
		}
		if err == nil || time.Now().After(end) {
			s.t.Fatalf("who reads gets %d bytes, %v", len(got.Origin), err)
		}
	}
}

// recoded sends a call that says of itself, again and again, that it is in another encoding.
func (s *attack) recoded() {
	c := s.dial("kts46")
	defer c.Close()
	_, err := io.WriteString(c, whole("/RPC2", strings.Repeat(`<?xml version="1.0" encoding="iso-8859-1"?>`, 13)+strings.Repeat("\xe9", 200<<10)))
	must(s.t, err)
	answer := make([]byte, len("HTTP/1.1 200 OK"))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "HTTP/1.1 200 OK" {
		s.t.Errorf("%q, %v", answer, err)
	}
}

// types has a slave join one type of almost a megabyte, the longest, after the other.
func (s *attack) types() {
	c := s.dial("gloom-slaves")
	defer c.Close()
	ok, long := gloomcodec.AppendOK(nil), strings.Repeat("x", 1<<20-100)
	for i := range 150 * s.scale {
		must(s.t, c.SetDeadline(time.Now().Add(hostilePatience)))
		_, err := c.Write(gloomcodec.AppendJoin(nil, fmt.Appendf(nil, `"%d%s"`, i, long)))
		must(s.t, err)
		_, err = io.ReadFull(c, ok)
		must(s.t, err)
	}
}

// asksMuch has a worker of as many functions as there may be ask and ask, when there are no
// jobs and while there is one of each.
func (s *attack) asksMuch() {
	const functions = 64 << 10
	asks := func(n int) {
		w := s.crowd(func(i int) string { return fmt.Sprint("many ", i) }, functions, 0)
		defer w.Close()
		var b []byte
		for i := range n {
			b = ask(b, uint32(i), periodic.GrabJob, nil)
		}
		s.answered(w, b)
	}
	asks(16_000)
	b := hello(periodic.Client)
	for i := range functions {
		b = ask(b, 1, periodic.SubmitJob, periodic.AppendJob(nil, &periodic.Job{Func: fmt.Append(nil, "many ", i)}))
	}
	s.told(b)
	asks(300)
}

// unfit has very many Periodic workers ask again and again for a Gloom job with an id that is too long for Periodic.
func (s *attack) unfit() {
	ctx := patient(s.t)
	m := worked(client.DialMaster(ctx, s.ports["gloom-masters"]))(s.t)
	defer m.Close()
	must(s.t, m.Submit(ctx, &client.GloomJob{ID: client.GloomText(longName), Type: client.GloomText("unfit"), Body: []byte("1")}))
	var all []net.Conn
	for range s.files(2500) {
		all = append(all, s.crowd(func(int) string { return "unfit" }, 1, 1))
	}
	var asks sync.WaitGroup
	for _, c := range all {
		asks.Go(func() {
			defer c.Close()
			s.answered(c, bytes.Repeat(ask(nil, 1, periodic.GrabJob, nil), 300))
		})
	}
	asks.Wait()
}

// fronts has very many peers send a large request without its last bytes.
func (s *attack) fronts() {
	large := make([]byte, nearlyFrame)
	request := ask(hello(periodic.Client), 1, periodic.SubmitJob, periodic.AppendJob(nil, &periodic.Job{Func: []byte("front"), Workload: large}))
	call := whole("/RPC2", string(kts46.AppendCall(nil, "hello", strings.Repeat("x", kts46.MaxRequest-256))))
	fronts := []struct{ protocol, front string }{
		{"periodic", string(request)},
		{"gloom-masters", string(gloomcodec.AppendRespond(nil, large))},
		{"kts46", call},
	}
	for i := range s.files(200 * s.scale) {
		protocol, front := fronts[i%len(fronts)].protocol, fronts[i%len(fronts)].front
		c := s.dial(protocol)
		defer c.Close()
		must(s.t, c.SetDeadline(time.Now().Add(hostilePatience)))
		_, _ = io.WriteString(c, front[:len(front)-5]) // it may be one too many
	}
	s.told(request)
}

// statuses has peers ask for a long STATUS without reading it, beside a peer that reads.
func (s *attack) statuses() {
	defer s.crowd(func(i int) string { return fmt.Sprintf("listed %0200d", i) }, 20_000, 0).Close()
	status := ask(hello(periodic.Client), lastID, periodic.Status, nil)
	for range 20 {
		c := s.dialFrom(net.Dialer{Control: littleRoom}, "periodic")
		defer c.Close()
		_, err := c.Write(status)
		must(s.t, err)
	}
	c := s.dial("periodic")
	defer c.Close()
	if size := s.awaited(c, status); size < 20_000*200 {
		s.t.Errorf("a STATUS of %d bytes", size)
	}
}
