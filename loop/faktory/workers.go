package faktory

import (
	"sync"
	"sync/atomic"

	codec "treadle/codec/faktory"
)

// state is the state of a worker process. It advances and never goes back.
type state int32

const (
	running   state = iota
	quiet           // it fetches no more jobs
	terminate       // it ends soon
)

var stateNames = [...]string{quiet: "quiet", terminate: "terminate"}

// stateOf returns the state of a name; any other name is running, as with Faktory.
func stateOf(text string) state {
	for s := quiet; s <= terminate; s++ {
		if text == stateNames[s] {
			return s
		}
	}
	return running
}

// worker is a worker process, which may have many connections.
type worker struct {
	id       string
	state    atomic.Int32
	lastBeat atomic.Int64 // Mono
	conns    int          // under the lock of workers
}

// advance moves a worker on to a state, never back.
func (w *worker) advance(to state) {
	for {
		now := w.state.Load()
		if int32(to) <= now || w.state.CompareAndSwap(now, int32(to)) {
			return
		}
	}
}

// workers are the processes with connections, by their ids.
type workers struct {
	mu   sync.Mutex
	byID map[string]*worker
}

// join adds a connection of a process.
func (all *workers) join(id string, now int64) *worker {
	all.mu.Lock()
	defer all.mu.Unlock()
	w := all.byID[id]
	if w == nil {
		if all.byID == nil {
			all.byID = make(map[string]*worker)
		}
		w = &worker{id: id}
		w.lastBeat.Store(now)
		all.byID[id] = w
	}
	w.conns++
	return w
}

// leave ends a connection of a process.
func (all *workers) leave(w *worker) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if w.conns--; w.conns == 0 {
		delete(all.byID, w.id)
	}
}

func (all *workers) get(id string) *worker {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id]
}

func (all *workers) count() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.byID)
}

// beatLimit is for how long a worker process may be silent, in milliseconds. Then its connections are closed; its
// jobs stay reserved. Workers send a BEAT every 15 seconds.
const beatLimit = 60_000

// beat handles a BEAT.
func (c *conversation) beat(text []byte) {
	b, err := codec.Parse[codec.Beat](text)
	if err != nil {
		c.answerError("BEAT needs a JSON object with a wid")
		return
	}
	w := c.p.workers.get(b.Worker)
	if w == nil {
		c.answerError("no worker has said HELLO with the wid " + shortText(b.Worker))
		return
	}
	w.lastBeat.Store(c.s.Loop.Now.Mono)
	w.advance(stateOf(b.State))
	switch now := state(w.state.Load()); now {
	case running:
		c.s.Reply(replyOK)
	default:
		c.replyBulk([]byte(`{"state":"` + stateNames[now] + `"}`))
	}
}

// maxShown bounds the bytes of a client's text that an error repeats.
const maxShown = 64

func shortText[T string | []byte](text T) string {
	return string(text[:min(len(text), maxShown)])
}
