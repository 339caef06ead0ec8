package client_test

import (
	"bytes"
	"errors"
	"io"

	"treadle/loop/client"
)

// lock runs two jobs that need the same lock.
func (s *session) lock() {
	s.t.Helper()
	s.ok(s.worker.CanDo(s.ctx, "f"))
	s.ok(s.client.Submit(s.ctx, &client.Job{Func: "f", Name: "a", Workload: []byte("hi")}))
	a := s.grab("a", "hi")
	s.acquires(a, true)
	s.ok(s.client.Submit(s.ctx, &client.Job{Func: "f", Name: "b", Workload: []byte("hi")}))
	s.acquires(s.grab("b", "hi"), false)
	rows, err := s.client.Status(s.ctx)
	s.ok(err)
	if len(rows) != 1 || rows[0].Locked == nil || *rows[0].Locked != 1 || rows[0].Running != 1 {
		s.t.Fatalf("status %+v, want one job locked and one running", rows)
	}
	s.ok(s.worker.Release(s.ctx, a, "one at a time"))
	b := s.grab("b", "hi")
	s.acquires(b, true)
	s.ok(s.worker.Done(s.ctx, a, nil))
	s.ok(s.worker.Done(s.ctx, b, nil))
	s.ok(s.worker.CantDo(s.ctx, "f"))
	s.counts("f workers=0 jobs=0 running=0;")
}

func (s *session) acquires(a *client.Assignment, want bool) {
	s.t.Helper()
	got, err := s.worker.Acquire(s.ctx, a, "one at a time", 1)
	s.ok(err)
	if got != want {
		s.t.Fatalf("%q: acquired %v, want %v", a.Job.Name, got, want)
	}
}

// stream publishes until the receiver has read something, and then ends the job.
func (s *session) stream() {
	s.t.Helper()
	if err := s.client.Recv(s.ctx, "f", "n", io.Discard); !errors.Is(err, client.ErrNoWorker) {
		s.t.Fatalf("receiving without a worker: %v", err)
	}
	s.ok(s.worker.CanDo(s.ctx, "f"))
	s.ok(s.client.Submit(s.ctx, &client.Job{Func: "f", Name: "n", Workload: []byte("hi")}))
	a := s.grab("n", "hi")
	ears := heard{first: make(chan string, 1), rest: make(chan string)}
	ended := make(chan error)
	go func() { ended <- s.client.Recv(s.ctx, "f", "n", &ears) }()
	for listening := false; !listening; {
		s.ok(s.worker.Publish(s.ctx, a, []byte("tick")))
		select {
		case <-ears.first:
			listening = true
		default:
		}
	}
	s.ok(s.worker.Publish(s.ctx, a, []byte("EOF")))
	big := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() {
		// The server delays the reply until the receiver has read.
		err := s.worker.Publish(s.ctx, a, big)
		ended <- errors.Join(err, s.worker.Done(s.ctx, a, nil))
	}()
	for _, want := range []string{"E", "OF", string(big)} {
		text := <-ears.rest
		for text == "tick" {
			text = <-ears.rest
		}
		if text != want {
			s.t.Fatalf("heard %.20q, want %.20q", text, want)
		}
	}
	s.ok(<-ended)
	s.ok(<-ended)
	s.ok(s.worker.CantDo(s.ctx, "f"))
}

// heard is a writer that separates the first write from the rest.
type heard struct {
	first, rest chan string
	begun       bool
}

func (h *heard) Write(b []byte) (int, error) {
	to := h.rest
	if !h.begun {
		h.begun, to = true, h.first
	}
	to <- string(b)
	return len(b), nil
}
