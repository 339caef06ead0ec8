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
	// maxLocation is the longest location in bytes. The journal repeats it for each task that the worker holds. A host
	// name has at most 255.
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

// Holder implements protocol.HolderRestorer. The name is a location.
func (p *Protocol) Holder(location string) *sched.Peer {
	if p.o.Restart == restartReady {
		return nil
	}
	p.now = p.host.Now() // the lease begins with the restart
	w, err := p.addWorker([]byte(location))
	if err != nil {
		return nil
	}
	return w.peer
}

// addWorker returns the worker of a location and adds it when it is new.
func (p *Protocol) addWorker(location []byte) (*worker, error) {
	w, err := p.findWorker(location)
	if err == nil {
		p.workers[w.location] = w
	}
	return w, err
}

// findWorker returns the worker of a location. A new worker is not added yet.
func (p *Protocol) findWorker(location []byte) (*worker, error) {
	w := p.workers[string(location)]
	if w == nil {
		switch {
		case len(p.workers) >= maxLocations:
			return nil, errTooManyWorkers
		case len(location) > maxLocation:
			return nil, errLongLocation
		}
		w = &worker{location: string(location)}
		w.peer = p.sched.NewHolderPeer(w.location)
	}
	w.seen = p.now.Mono
	return w, nil
}

// removeWorker releases the tasks of a worker and removes it.
func (p *Protocol) removeWorker(w *worker) {
	delete(p.workers, w.location)
	p.sched.Disconnect(p.now, w.peer, p.sink)
	p.released = true
}

// Expire releases the tasks of workers that were silent for longer than their lease.
func (p *Protocol) Expire() {
	p.now = p.host.Now()
	var silent []string
	for location, w := range p.workers {
		if p.now.Mono-w.seen >= p.o.Lease.Milliseconds() {
			silent = append(silent, location)
		}
	}
	slices.Sort(silent) // so that tasks become ready in a reproducible order
	for _, location := range silent {
		p.host.Log().Info("a dwork worker is silent, its tasks are ready again", "location", location, "dwork-lease", p.o.Lease)
		p.removeWorker(p.workers[location])
	}
	p.endTurn()
}
