package main

import (
	"bufio"
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

// probe is a well-behaved client beside an attack.
type probe struct {
	protocol string
	ask      func(n int) error // one request and its answer; n differs each time
	leave    func()
}

// probePause is the time between two requests of most probes: it leaves the processors to the server and its attackers.
const probePause = 5 * time.Millisecond

// probes connects a probe over every protocol that the server speaks, before anything happens.
func (s *attack) probes(ctx context.Context) []probe {
	s.t.Helper()
	if s.socket == "" { // it is the command interface of a Disbatch site
		return []probe{s.httpProbe("disbatch", "GET", "/queues", "")}
	}
	all := []probe{s.periodicProbe(ctx)}
	if len(s.ports) > 0 {
		all = append(all, s.gloomProbe(ctx), s.hubProbe(ctx), s.beanstalkProbe(), s.faktoryProbe(), s.httpProbe("http", "GET", "/healthz", ""),
			s.httpProbe("kts46", "POST", "/RPC2", string(kts46.AppendCall(nil, "hello"))),
			s.httpProbe("kts46-json", "POST", "/jsonrpc", `{"method":"hello","id":1}`))
	}
	return all
}

// periodicProbe runs jobs that its own worker echoes.
func (s *attack) periodicProbe(ctx context.Context) probe {
	s.t.Helper()
	address := "unix://" + s.socket
	w := worked(client.DialWorker(ctx, address, client.Options{}))(s.t)
	must(s.t, w.CanDo(ctx, "probe"))
	c := worked(client.Dial(ctx, address, client.Options{}))(s.t)
	go func() {
		for {
			a, err := w.Grab(ctx)
			if err != nil || w.Done(ctx, a, []byte(a.Job.Name)) != nil {
				return
			}
		}
	}()
	return probe{"periodic", func(n int) error {
		name := fmt.Sprint("run ", n)
		got, err := c.Run(ctx, &client.Job{Func: "probe", Name: name})
		return same(string(got), name, err)
	}, func() { c.Close(); w.Close() }}
}

// same returns an error unless an answer is the expected one.
func same(got, want string, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("the answer is %q, want %q", got, want)
	}
	return err
}

// gloomProbe submits jobs that its own slave echoes.
func (s *attack) gloomProbe(ctx context.Context) probe {
	s.t.Helper()
	slave := worked(client.DialSlave(ctx, s.ports["gloom-slaves"]))(s.t)
	must(s.t, slave.Join(ctx, client.GloomText("probe of Gloom")))
	master := worked(client.DialMaster(ctx, s.ports["gloom-masters"]))(s.t)
	go func() {
		for {
			j, err := slave.Next(ctx)
			if err != nil || slave.Respond(ctx, j.Body) != nil {
				return
			}
		}
	}()
	return probe{"gloom", func(n int) error {
		body := fmt.Sprint(n)
		got, err := master.Run(ctx, &client.GloomJob{ID: client.GloomText("probe " + body), Type: client.GloomText("probe of Gloom"), Body: []byte(body)})
		return same(string(got), body, err)
	}, func() { master.Close(); slave.Close() }}
}

// hubProbe asks how many tasks there are.
func (s *attack) hubProbe(ctx context.Context) probe {
	s.t.Helper()
	hub := worked(client.DialHub(ctx, s.ports["dwork"]))(s.t)
	return probe{"dwork", func(n int) error {
		_, _, err := hub.Status(ctx)
		return err
	}, hub.Close}
}

// beanstalkProbe puts jobs and reserves and deletes them.
func (s *attack) beanstalkProbe() probe {
	s.t.Helper()
	c := s.dial("beanstalk")
	in := bufio.NewReader(c)
	asks := func(request, want string) (rest string, err error) {
		if _, err = io.WriteString(c, request); err == nil {
			rest, err = in.ReadString('\n')
		}
		if err == nil && !strings.HasPrefix(rest, want) {
			err = fmt.Errorf("%q is answered %q, want %q", request, rest, want)
		}
		return strings.TrimSpace(strings.TrimPrefix(rest, want)), err
	}
	worked(asks("use probe-of-beanstalk\r\nwatch probe-of-beanstalk\r\n", "USING probe-of-beanstalk\r\n"))(s.t) // Periodic has a probe of its own
	worked(asks("", "WATCHING 2\r\n"))(s.t)
	return probe{"beanstalk", func(n int) error {
		if err := c.SetDeadline(time.Now().Add(hostilePatience)); err != nil {
			return err
		}
		id, err := asks("put 0 0 600 1\r\nx\r\nreserve\r\n", "INSERTED ")
		if err == nil {
			_, err = asks("", "RESERVED "+id+" 1\r\n")
		}
		if err == nil {
			_, err = asks("delete "+id+"\r\n", "x\r\n")
		}
		if err == nil {
			_, err = asks("", "DELETED\r\n")
		}
		return err
	}, func() { c.Close() }}
}

// httpProbe makes a cheap request again and again over one connection.
func (s *attack) httpProbe(protocol, method, path, call string) probe {
	s.t.Helper()
	c := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: hostilePatience}
	g := probe{protocol, func(int) error {
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

// withProbes runs the attack beside a probe of each protocol. It checks that the probes are served all the time, and
// the most memory that the server has had.
func (s *attack) withProbes(attack func()) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	over := make(chan struct{})
	var stays sync.WaitGroup
	for _, g := range s.probes(ctx) {
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

// stay makes the requests of a probe until over is closed, and one more then.
func (s *attack) stay(g probe, over <-chan struct{}) {
	var pause <-chan time.Time
	if g.protocol != "periodic" {
		ticker := time.NewTicker(probePause)
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
			s.t.Errorf("the probe of %s: request %d: %v", g.protocol, n, err)
			return
		}
		worst = max(worst, time.Since(began))
	}
	s.t.Logf("the probe of %s was served %d times, the longest wait was %v", g.protocol, n, worst.Round(100*time.Microsecond))
	s.mu.Lock()
	s.worst[g.protocol] = worst
	s.mu.Unlock()
	if worst > hostileWait && !s.rest {
		s.t.Errorf("the probe of %s waited for %v", g.protocol, worst)
	}
}

// worked returns the result of a call, and ends the test when the call failed.
func worked[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
