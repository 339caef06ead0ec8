package load

import "fmt"

// workerSide is the working side of a trial: the jobs that arrived, and their time since the submit. All its workers
// live in one pump, so nothing here is locked.
type workerSide struct {
	protocol Protocol
	traits   Traits
	arrived  *checker
	backlog  *backlog   // nil: nobody waits
	last     int64      // arrival of the latest job
	latency  *Latencies // from submit to arrival at a worker
	grabbed  *Latencies // from grab to arrival at a worker with one grab outstanding
	owed     int        // acknowledgements to come, in protocols that confirm
	grabs    int        // sent so far, where jobs are to stay behind
}

// mayGrab reports whether one more grab is due. The grabs are counted when jobs stay in the server.
func (s *workerSide) mayGrab() bool {
	if s.arrived.wanted == s.arrived.total {
		return true
	}
	s.grabs++
	return s.grabs <= s.arrived.wanted
}

func newWorkerSide(p Protocol, jobs int) *workerSide {
	return &workerSide{protocol: p, traits: p.Traits(), arrived: newChecker(jobs), latency: NewLatencies(), grabbed: NewLatencies()}
}

func (s *workerSide) reached() bool { return s.arrived.received == s.arrived.wanted }
func (s *workerSide) progress() int { return s.arrived.received }

// confirmation is the goal of workers that have all jobs: the acknowledgements of the last completions.
type confirmation struct{ *workerSide }

func (c confirmation) reached() bool { return c.owed == 0 }
func (c confirmation) progress() int { return -c.owed }

// take notes the arrival of one job.
func (s *workerSide) take(now int64, workload []byte) error {
	id, sent, ok := s.traits.Parse(workload)
	if !ok {
		return fmt.Errorf("%w: a job arrived with a damaged workload: %.40q", ErrMalformed, workload)
	}
	s.last = now
	if sent > 0 {
		s.latency.Record(now - sent)
	}
	return s.arrived.take(id)
}

// worker is one connection that takes and completes jobs, with up to depth grabs outstanding.
type worker struct {
	side        *workerSide
	depth       int
	outstanding int   // grabs not answered yet; counted in protocols that poll
	owed        int   // acknowledgements to come, in protocols that confirm
	grabbed     int64 // moment of its last grab
}

// open appends the first requests of a worker: one for each job that it may hold.
func (w *worker) open(now int64, out []byte) []byte {
	w.grabbed = now
	for slot := range w.depth {
		if !w.side.mayGrab() {
			break
		}
		out = w.side.protocol.AppendGrab(out, uint32(slot))
	}
	w.outstanding = w.depth
	if w.side.traits.PushesJobs {
		w.owe(w.depth)
	}
	return out
}

func (w *worker) owe(more int) {
	w.owed += more
	w.side.owed += more
}

// accept completes a job and asks for the next one.
func (w *worker) accept(now int64, e *Event, out []byte) ([]byte, error) {
	s := w.side
	if s.traits.PushesJobs && w.owed > 0 {
		return out, fmt.Errorf("%w: a job came before the acknowledgement that unlocks it", ErrMalformed)
	}
	if err := s.take(now, e.Workload); err != nil {
		return out, err
	}
	if w.depth == 1 {
		s.grabbed.Record(now - w.grabbed)
		w.grabbed = now
	}
	out = s.protocol.AppendDone(out, e)
	if s.traits.AcksDone {
		w.owe(1)
	}
	if !s.traits.PushesJobs && s.mayGrab() {
		out = s.protocol.AppendGrab(out, e.Slot)
	}
	return out, nil
}

func (w *worker) confirm() error {
	if !w.side.traits.AcksDone {
		return nil
	}
	if w.owed == 0 {
		return fmt.Errorf("%w: an acknowledgement that no completion asked for", ErrMalformed)
	}
	w.owe(-1)
	return nil
}

// turn handles the messages in in and appends the worker's next requests to out. It returns the bytes that it has used.
func (w *worker) turn(now int64, in, out []byte) (int, []byte, error) {
	s := w.side
	before, woken := s.arrived.received, false
	used, err := decode(s.protocol, in, func(e *Event) (err error) {
		switch e.Kind {
		case Assigned:
			out, err = w.accept(now, e, out)
		case Finished:
			err = w.confirm()
		case Empty:
			if w.outstanding--; s.traits.Sleep == nil {
				out = s.protocol.AppendGrab(out, e.Slot)
			}
		case Woken:
			woken = true
		case Submitted, Answered:
			if e.Kind == Answered || !s.traits.AcksDone || s.traits.PushesJobs {
				err = fmt.Errorf("%w: a worker got what is meant for a producer", ErrMalformed)
			}
		}
		return err
	})
	if err != nil {
		return used, out, err
	}
	assigned := s.arrived.received > before
	if s.traits.Sleep != nil {
		out = w.poll(assigned || woken, out)
	}
	if assigned {
		err = s.backlog.arrived(s.arrived.received)
	}
	return used, out, err
}

// poll serves protocols whose empty queue answers a grab. While there is work, it repeats every grab that came back
// empty. When all came back empty, the worker sleeps until the server wakes it.
func (w *worker) poll(busy bool, out []byte) []byte {
	switch {
	case busy:
		for ; w.outstanding < w.depth; w.outstanding++ {
			out = w.side.protocol.AppendGrab(out, 0)
		}
	case w.outstanding == 0:
		out = append(out, w.side.traits.Sleep...)
	}
	return out
}
