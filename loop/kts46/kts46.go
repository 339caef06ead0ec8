// Package kts46 speaks the protocols of the kts46 scheduler, protocols/kts46.md: clients run simulations and workers do
// them, by XML-RPC in version 1 and by JSON-RPC in version 2.
package kts46

import (
	"sync"
	"sync/atomic"

	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// Space is the name space of tasks.
const Space sched.Space = 5

// Spaces are the name spaces of the protocol's jobs: their workers steal them, and keep them until somebody who
// knows their revision says otherwise.
func Spaces() []protocol.Space {
	return []protocol.Space{{ID: Space, Protocol: protocolName, Rules: sched.Rules{Durable: true, Graph: true, Untimed: true, Private: true}}}
}

const protocolName = "kts46"

// The settings with addresses.
const (
	SettingXML  = "kts46"      // of version 1
	SettingJSON = "kts46-json" // of version 2
)

// Database is a database as version 2 names it.
type Database struct {
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

// Hub is the protocols in one server: the book of projects and jobs, and the workers of both versions. The
// tasks are the scheduler's. What the book says decides which tasks there are to be, see settle.
type Hub struct {
	host      protocol.Host
	sched     *sched.Scheduler
	o         Options
	databases []Database // of Options.Databases
	site      *site      // nil without a MongoDB
	stats     stats
	active    atomic.Int64  // calls that are being answered
	composing sync.Mutex    // see compose
	defining  sync.Mutex    // see define
	unread    web.Budget    // large answers that are being written
	unheard   web.Budget    // large calls that are being read, or wait for their turn
	hearing   chan struct{} // see hear
	servers   []*web.Server
	done      chan struct{} // closed by Close
	running   sync.WaitGroup

	mu       sync.Mutex // guards what follows, and the workers' sides of the scheduler
	now      sched.Time
	sink     protocol.Sink
	changed  bool // something was journaled in this turn
	closed   bool
	projects map[string]*project
	entries  int // projects and jobs
	workers  map[string]*worker
	sweepAt  int                           // number of workers at which the idle ones are forgotten
	floor    int64                         // no revision given before the start, or to a worker that is forgotten, is of a later second
	retired  int64                         // nor one of a task that is gone
	restored map[string]*protocol.Document // numbers whose definition has not come yet, by the names with a NUL between
}

// New prepares the protocols; it opens nothing.
func New(host protocol.Host, o Options) *Hub {
	databases, _ := o.databases() // Validate has seen the error
	return &Hub{
		host: host, sched: host.Sched(), o: o, databases: databases, stats: stats{requests: requestCounters()}, sink: host.NewSink(),
		projects: make(map[string]*project), workers: make(map[string]*worker), done: make(chan struct{}),
		unread: web.Budget{Most: host.MostUnsent()}, unheard: web.Budget{Most: host.MostUnsent()}, hearing: make(chan struct{}, 1), sweepAt: minSweep, restored: make(map[string]*protocol.Document),
	}
}

// Name implements protocol.Protocol.
func (h *Hub) Name() string { return protocolName }

// Projects is how many projects are known.
func (h *Hub) Projects() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.projects)
}

// unwrittenError says that what a call has changed is not on disk, and never will be.
type unwrittenError struct{ error }

// turn runs fn as the owner of the book. It returns when what fn changed is on disk.
func (h *Hub) turn(fn func() error) error {
	group, wait, err := h.own(fn)
	acknowledgements := 0
	if wait {
		acknowledgements = 1
	}
	h.host.Flush(acknowledgements)
	if wait {
		if failed := h.host.Await(group); failed != nil {
			return &unwrittenError{failed}
		}
	}
	return err
}

func (h *Hub) own(fn func() error) (group uint64, wait bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return 0, false, errStopping
	}
	h.now, h.changed = h.host.Now(), false
	err = fn()
	h.sink.Wake()
	if h.changed {
		group, wait = h.host.DurableAll()
	}
	return group, wait, err
}
