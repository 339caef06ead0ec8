//go:build invariants

package site

import (
	"bytes"
	"fmt"
	"slices"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
	"treadle/loop"
)

// worker is a Periodic worker of both functions.
type worker struct {
	process  *process
	number   int
	peer     *loop.OfflinePeer
	received []byte
	greeted  bool
	task     *task // task that the worker has
	handle   []byte
}

func (w *worker) String() string { return fmt.Sprintf("%v's worker %d", w.process, w.number) }

func (w *worker) send(cmd periodic.Command, args []byte) {
	w.peer.Send(wire.PeriodicFrame(periodic.Plain, 1, cmd, args))
}

// join connects a worker.
func (s *site) join(p *process) {
	p.hired++
	w := &worker{process: p, number: p.hired, peer: p.server.Connect("periodic")}
	w.peer.Send(periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.Plain, Role: periodic.Worker}))
	for _, function := range []string{"one", "two"} {
		w.send(periodic.CanDo, periodic.AppendStr8String(nil, function))
	}
	w.send(periodic.GrabJob, nil)
	p.workers = append(p.workers, w)
}

// work lets a worker of a host do one thing.
func (s *site) work(h *host) {
	p := h.process
	if len(p.workers) < 2 || len(p.workers) < 5 && s.rng.IntN(10) == 0 {
		s.join(p)
	} else if w := p.workers[s.rng.IntN(len(p.workers))]; s.rng.IntN(20) == 0 {
		s.leave(w)
	} else if w.task != nil {
		s.reportTask(w, s.rng.IntN(8) > 0)
	}
	s.settle()
}

func (s *site) leave(w *worker) {
	s.trace.Logf("%v leaves", w)
	if w.task != nil {
		w.task.failed = true
	}
	w.process.workers = slices.DeleteFunc(w.process.workers, func(o *worker) bool { return o == w })
	w.peer.Close()
}

// reportTask lets a worker report its task as done or as failed.
func (s *site) reportTask(w *worker, done bool) {
	t := w.task
	w.task = nil
	if !done {
		s.trace.Logf("%v fails %v", w, t)
		t.failed = true
		w.send(periodic.WorkFail, w.handle)
	} else {
		s.trace.Logf("%v does %v", w, t)
		t.result = fmt.Sprintf("%v by %v", t, w)
		w.send(periodic.WorkDone, append(slices.Clone(w.handle), t.result...))
	}
	w.send(periodic.GrabJob, nil)
}

// readAll lets the workers of a process read.
func (s *site) readAll(p *process) {
	for _, w := range p.workers {
		w.received = append(w.received, w.peer.Read()...)
		for len(w.received) > 0 {
			var r periodic.Response
			n, err := periodic.NextResponse(w.received, periodic.Plain, periodic.MaxPayload, &r)
			if err != nil || n == 0 {
				s.trace.Failf("%v is sent %x, want a frame: %v", w, w.received, err)
			}
			if w.greeted {
				handle, j, err := wire.ParseAssign(periodic.Plain, bytes.Clone(r.Body))
				if err != nil {
					s.trace.Failf("%v is sent %x, want a JOB_ASSIGN: %v", w, r.Body, err)
				}
				w.handle, w.task = handle, s.taskNamed(string(j.Name))
				s.given(w)
			}
			w.greeted = true
			w.received = w.received[n:]
		}
	}
}
