package dwork

import (
	"errors"
	"fmt"
	"slices"

	"treadle/sched"
)

// Limits of workers.
const (
	// maxLocations bounds the workers. Each takes about 300 bytes and its location.
	maxLocations = 1 << 20
	// maxLocation is the longest location in bytes. The journal repeats it for each task that the
	// worker holds. A host name has at most 255.
	maxLocation = 1 << 10
)

var (
	errTooManyWorkers = errors.New("too many workers: let some exit")
	errLongLocation   = fmt.Errorf("a location of more than %d bytes", maxLocation)
)

// worker is a worker, which its location identifies.
type worker struct {
	location string
	peer     *sched.Peer
	seen     int64 // Mono of its last request
}

// Holder implements protocol.Holders. The name is a location.
func (h *Protocol) Holder(location string) *sched.Peer {
	if h.o.Restart == restartReady {
		return nil
	}
	h.now = h.host.Now() // the lease begins with the restart
	w, err := h.addWorker([]byte(location))
	if err != nil {
		return nil
	}
	return w.peer
}

// addWorker returns the worker of a location and adds it when it is new.
func (h *Protocol) addWorker(location []byte) (*worker, error) {
	w, err := h.findWorker(location)
	if err == nil {
		h.workers[w.location] = w
	}
	return w, err
}

// findWorker returns the worker of a location. A new worker is not added yet.
func (h *Protocol) findWorker(location []byte) (*worker, error) {
	w := h.workers[string(location)]
	if w == nil {
		switch {
		case len(h.workers) >= maxLocations:
			return nil, errTooManyWorkers
		case len(location) > maxLocation:
			return nil, errLongLocation
		}
		w = &worker{location: string(location)}
		w.peer = h.sched.NewHolder(w.location)
	}
	w.seen = h.now.Mono
	return w, nil
}

// removeWorker releases the tasks of a worker and removes it.
func (h *Protocol) removeWorker(w *worker) {
	delete(h.workers, w.location)
	h.sched.Forget(h.now, w.peer, h.sink)
	h.released = true
}

// Expire releases the tasks of workers that were silent for longer than their lease.
func (h *Protocol) Expire() {
	h.now = h.host.Now()
	var silent []string
	for location, w := range h.workers {
		if h.now.Mono-w.seen >= h.o.Lease.Milliseconds() {
			silent = append(silent, location)
		}
	}
	slices.Sort(silent) // so that tasks become ready in a reproducible order
	for _, location := range silent {
		h.host.Log().Info("a dwork worker is silent, its tasks are ready again", "location", location, "dwork-lease", h.o.Lease)
		h.removeWorker(h.workers[location])
	}
	h.endTurn()
}
