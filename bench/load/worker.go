package load

import "fmt"

// harvest is the working side of a trial: which jobs arrived, and how long after their submit. All its workers live
// in one pump, so nothing here is locked.
type harvest struct {
	protocol Protocol
	traits   Traits
	arrived  *checker
	backlog  *backlog   // nil: nobody waits
	last     int64      // when the latest job arrived
	latency  *Latencies // from submit to arrival at a worker
	owed     int        // acknowledgements to come, in protocols that confirm
	grabs    int        // sent so far, where jobs are to stay behind
}

// mayGrab says whether one more grab is due: always, unless jobs are to stay in the server.
func (h *harvest) mayGrab() bool {
	if h.arrived.wanted == h.arrived.total {
		return true
	}
	h.grabs++
	return h.grabs <= h.arrived.wanted
}

func newHarvest(p Protocol, jobs int) *harvest {
	return &harvest{protocol: p, traits: p.Traits(), arrived: newChecker(jobs), latency: NewLatencies()}
}

func (h *harvest) reached() bool { return h.arrived.received == h.arrived.wanted }
func (h *harvest) progress() int { return h.arrived.received }

// confirmation is the goal of a harvest that has all its jobs: the acknowledgements of the last completions.
type confirmation struct{ *harvest }

func (c confirmation) reached() bool { return c.owed == 0 }
func (c confirmation) progress() int { return -c.owed }

// take notes the arrival of one job.
func (h *harvest) take(now int64, workload []byte) error {
	id, sent, ok := h.traits.Parse(workload)
	if !ok {
		return fmt.Errorf("%w: a job arrived with a damaged workload: %.40q", ErrMalformed, workload)
	}
	h.last = now
	if sent > 0 {
		h.latency.Record(now - sent)
	}
	return h.arrived.take(id)
}

// worker is one connection that takes and completes jobs, with up to depth grabs outstanding.
type worker struct {
	harvest     *harvest
	depth       int
	outstanding int // grabs not answered yet; counted in protocols that poll
	owed        int // acknowledgements to come, in protocols that confirm
}

func (w *worker) open(_ int64, out []byte) []byte {
	for slot := range w.depth {
		if !w.harvest.mayGrab() {
			break
		}
		out = w.harvest.protocol.AppendGrab(out, uint32(slot))
	}
	w.outstanding = w.depth
	if w.harvest.traits.Pushes {
		w.owe(w.depth)
	}
	return out
}

func (w *worker) owe(more int) {
	w.owed += more
	w.harvest.owed += more
}

// accept completes a job and asks for the next one.
func (w *worker) accept(now int64, e *Event, out []byte) ([]byte, error) {
	h := w.harvest
	if h.traits.Pushes && w.owed > 0 {
		return out, fmt.Errorf("%w: a job came before the acknowledgement that unlocks it", ErrMalformed)
	}
	if err := h.take(now, e.Workload); err != nil {
		return out, err
	}
	out = h.protocol.AppendDone(out, e)
	if h.traits.Confirms {
		w.owe(1)
	}
	if !h.traits.Pushes && h.mayGrab() {
		out = h.protocol.AppendGrab(out, e.Slot)
	}
	return out, nil
}

// confirm notes the acknowledgement of a completion.
func (w *worker) confirm() error {
	if !w.harvest.traits.Confirms {
		return nil
	}
	if w.owed == 0 {
		return fmt.Errorf("%w: an acknowledgement that no completion asked for", ErrMalformed)
	}
	w.owe(-1)
	return nil
}

func (w *worker) turn(now int64, in, out []byte) (int, []byte, error) {
	h := w.harvest
	before, woken := h.arrived.received, false
	used, err := decode(h.protocol, in, func(e *Event) (err error) {
		switch e.Kind {
		case Assigned:
			out, err = w.accept(now, e, out)
		case Finished:
			err = w.confirm()
		case Empty:
			w.outstanding--
		case Woken:
			woken = true
		case Submitted, Answered:
			if e.Kind == Answered || !h.traits.AcksGrabs {
				err = fmt.Errorf("%w: a worker got what is meant for a producer", ErrMalformed)
			}
		}
		return err
	})
	if err != nil {
		return used, out, err
	}
	assigned := h.arrived.received > before
	if h.traits.Sleep != nil {
		out = w.poll(assigned || woken, out)
	}
	if assigned {
		err = h.backlog.arrived(h.arrived.received)
	}
	return used, out, err
}

// poll is for protocols in which an empty queue answers a grab. While there is work, every grab that came back empty
// is sent again; when all came back empty, the worker sleeps until it is woken.
func (w *worker) poll(busy bool, out []byte) []byte {
	switch {
	case busy:
		for ; w.outstanding < w.depth; w.outstanding++ {
			out = w.harvest.protocol.AppendGrab(out, 0)
		}
	case w.outstanding == 0:
		out = append(out, w.harvest.traits.Sleep...)
	}
	return out
}
