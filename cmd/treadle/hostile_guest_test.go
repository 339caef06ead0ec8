package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"treadle/codec/kts46"
	"treadle/loop/client"
)

// guest is a client that behaves.
type guest struct {
	protocol string
	ask      func(n int) error // one request and its answer, of another n each time
	leave    func()
}

// guestPause is how long the guests of most protocols rest between two requests, so that the
// machine is left to the server and its attackers.
const guestPause = 5 * time.Millisecond

// invite connects a guest over every protocol that the server speaks, before anything happens.
func (s *siege) invite(ctx context.Context) []guest {
	s.t.Helper()
	if s.socket == "" { // it is the command interface of a Disbatch site
		return []guest{s.httpGuest("disbatch", "GET", "/queues", "")}
	}
	all := []guest{s.periodicGuest(ctx)}
	if len(s.ports) > 0 {
		all = append(all, s.gloomGuest(ctx), s.hubGuest(ctx), s.httpGuest("http", "GET", "/healthz", ""),
			s.httpGuest("kts46", "POST", "/RPC2", string(kts46.AppendCall(nil, "hello"))),
			s.httpGuest("kts46-json", "POST", "/jsonrpc", `{"method":"hello","id":1}`))
	}
	return all
}

// periodicGuest runs jobs that a worker of its own echoes.
func (s *siege) periodicGuest(ctx context.Context) guest {
	s.t.Helper()
	address := "unix://" + s.socket
	w := worked(client.DialWorker(ctx, address, client.Options{}))(s.t)
	must(s.t, w.CanDo(ctx, "guest"))
	c := worked(client.Dial(ctx, address, client.Options{}))(s.t)
	go func() {
		for {
			a, err := w.Grab(ctx)
			if err != nil || w.Done(ctx, a, []byte(a.Job.Name)) != nil {
				return
			}
		}
	}()
	return guest{"periodic", func(n int) error {
		name := fmt.Sprint("run ", n)
		got, err := c.Run(ctx, &client.Job{Func: "guest", Name: name})
		return same(string(got), name, err)
	}, func() { c.Close(); w.Close() }}
}

// same is an error unless an answer is as it should be.
func same(got, want string, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("the answer is %q, want %q", got, want)
	}
	return err
}

// gloomGuest submits jobs that a slave of its own echoes.
func (s *siege) gloomGuest(ctx context.Context) guest {
	s.t.Helper()
	slave := worked(client.DialSlave(ctx, s.ports["gloom-slaves"]))(s.t)
	must(s.t, slave.Join(ctx, client.GloomText("guest of Gloom")))
	master := worked(client.DialMaster(ctx, s.ports["gloom-masters"]))(s.t)
	go func() {
		for {
			j, err := slave.Next(ctx)
			if err != nil || slave.Respond(ctx, j.Body) != nil {
				return
			}
		}
	}()
	return guest{"gloom", func(n int) error {
		body := fmt.Sprint(n)
		got, err := master.Run(ctx, &client.GloomJob{ID: client.GloomText("guest " + body), Type: client.GloomText("guest of Gloom"), Body: []byte(body)})
		return same(string(got), body, err)
	}, func() { master.Close(); slave.Close() }}
}

// hubGuest asks how many tasks there are.
func (s *siege) hubGuest(ctx context.Context) guest {
	s.t.Helper()
	hub := worked(client.DialHub(ctx, s.ports["dwork"]))(s.t)
	return guest{"dwork", func(n int) error {
		_, _, err := hub.Status(ctx)
		return err
	}, hub.Close}
}

// httpGuest asks for a sign of life over one connection.
func (s *siege) httpGuest(protocol, method, path, call string) guest {
	s.t.Helper()
	c := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: hostilePatience}
	g := guest{protocol, func(int) error {
		request, err := http.NewRequest(method, "http://"+s.ports[protocol]+path, strings.NewReader(call))
		if err != nil {
			return err
		}
		answer, err := c.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body) // so that the connection is kept
		return same(answer.Status, "200 OK", err)
	}, c.CloseIdleConnections}
	must(s.t, g.ask(0)) // so that it has one
	return g
}

// withGuest runs the attack beside clients that behave, and checks that they are served all the
// time, and what memory the server has taken in the end.
func (s *siege) withGuest(attack func()) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	over := make(chan struct{})
	var stays sync.WaitGroup
	for _, g := range s.invite(ctx) {
		defer g.leave()
		stays.Go(func() { s.stay(g, over) })
	}
	attack()
	close(over)
	stays.Wait()
	memory := s.peak()
	s.t.Logf("%d MiB", memory>>20)
	if memory > hostileRSS+s.more {
		s.t.Errorf("the server took %d bytes, of %d", memory, hostileRSS)
	}
}

// stay has a guest ask again and again until it is over, and once more behind it all.
func (s *siege) stay(g guest, over <-chan struct{}) {
	var pause <-chan time.Time
	if g.protocol != "periodic" {
		ticker := time.NewTicker(guestPause)
		defer ticker.Stop()
		pause = ticker.C
	}
	var worst time.Duration
	n := 0
	for more := true; more; n++ {
		select {
		case <-over:
			more = false
		default:
			if pause != nil {
				<-pause
			}
		}
		began := time.Now()
		if err := g.ask(n); err != nil {
			s.t.Errorf("the guest of %s: request %d: %v", g.protocol, n, err)
			return
		}
		worst = max(worst, time.Since(began))
	}
	s.t.Logf("the guest of %s was served %d times, the longest wait was %v", g.protocol, n, worst.Round(100*time.Microsecond))
	s.mu.Lock()
	s.worst[g.protocol] = worst
	s.mu.Unlock()
	if worst > hostileWait && !s.rest {
		s.t.Errorf("the guest of %s waited for %v", g.protocol, worst)
	}
}

// worked returns what a call does, and ends the test when that failed.
func worked[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
