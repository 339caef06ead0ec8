package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"treadle/codec/dwork"
	"treadle/loop/client"
)

// guest is a client that behaves.
type guest struct {
	ask   func() error // one request and its answer
	leave func()
}

// doors are the addresses of a protocol.
func (s *server) doors(protocol string) []string {
	switch protocol {
	case "dwork":
		return []string{s.hub}
	case "gloom":
		return []string{s.masters, s.slaves}
	case "kts46":
		return []string{s.xml}
	case "kts46-json":
		return []string{s.json}
	}
	return []string{s.address}
}

// invite connects a guest that speaks a protocol, and whoever does its jobs.
func invite(ctx context.Context, protocol string, running *server) (guest, error) {
	switch protocol {
	case "dwork":
		return hubGuest(ctx, running)
	case "gloom":
		return gloomGuest(ctx, running)
	case "kts46":
		k := client.NewKts46("tcp://" + running.xml)
		return guest{leave: k.Close, ask: func() error {
			_, err := k.Tasks(ctx)
			return err
		}}, nil
	case "kts46-json":
		return ktsGuest(ctx, running), nil
	}
	return periodicGuest(ctx, running)
}

// hubGuest asks for the status.
func hubGuest(ctx context.Context, running *server) (guest, error) {
	h := &hubTrial{address: running.hub}
	c, release, err := h.dial(ctx)
	if err != nil {
		return guest{}, err
	}
	question, answer := dwork.AppendType(nil, dwork.OK), new(dwork.Query)
	return guest{leave: release, ask: func() error {
		reply, err := exchange(c, question)
		if err == nil {
			err = dwork.DecodeReply(reply, answer)
		}
		if err == nil && answer.Type != dwork.OK {
			err = fmt.Errorf("is answered %v", answer.Type)
		}
		return err
	}}, nil
}

// guestJob is the guests' function, type and workload.
const guestJob = "guest"

// periodicGuest runs a job that a worker of its own echoes.
func periodicGuest(ctx context.Context, running *server) (guest, error) {
	address := "tcp://" + running.address
	w, err := client.DialWorker(ctx, address, client.Options{})
	if err != nil {
		return guest{}, err
	}
	c, err := client.Dial(ctx, address, client.Options{})
	if err == nil {
		err = w.CanDo(ctx, guestJob)
	}
	if err != nil {
		w.Close()
		return guest{}, err
	}
	go func() { // until it leaves
		for {
			a, err := w.Grab(ctx)
			if err != nil || w.Done(ctx, a, []byte(a.Job.Name)) != nil {
				return
			}
		}
	}()
	n := 0
	return guest{leave: func() { c.Close(); w.Close() }, ask: func() error {
		n++
		name := fmt.Sprint(n)
		result, err := c.Run(ctx, &client.Job{Func: guestJob, Name: name})
		if err == nil && string(result) != name {
			err = fmt.Errorf("the result of %s is %q", name, result)
		}
		return err
	}}, nil
}

// gloomGuest submits a job that a slave of its own echoes.
func gloomGuest(ctx context.Context, running *server) (guest, error) {
	slave, err := client.DialSlave(ctx, "tcp://"+running.slaves)
	if err != nil {
		return guest{}, err
	}
	master, err := client.DialMaster(ctx, "tcp://"+running.masters)
	if err == nil {
		err = slave.Join(ctx, client.GloomText(guestJob))
	}
	if err != nil {
		slave.Close()
		return guest{}, err
	}
	go func() { // until it leaves
		for {
			j, err := slave.Next(ctx)
			if err != nil || slave.Respond(ctx, j.Body) != nil {
				return
			}
		}
	}()
	n := 0
	return guest{leave: func() { master.Close(); slave.Close() }, ask: func() error {
		n++
		name := client.GloomText(fmt.Sprint(guestJob, " ", time.Now().UnixNano(), n))
		body, err := master.Run(ctx, &client.GloomJob{ID: name, Type: client.GloomText(guestJob), Body: name})
		if err == nil && string(body) != string(name) {
			err = errors.New("the response is another's")
		}
		return err
	}}, nil
}

// ktsGuest lists what workers hold.
func ktsGuest(ctx context.Context, running *server) guest {
	connection := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	return guest{leave: connection.CloseIdleConnections, ask: func() error {
		question, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+running.json+"/jsonrpc", strings.NewReader(`{"method":"getCurrentTasks","id":1}`))
		if err != nil {
			return err
		}
		answer, err := connection.Do(question)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && !strings.Contains(string(text), `"error":null`) {
			err = fmt.Errorf("is answered %s: %.100s", answer.Status, text)
		}
		return err
	}}
}
