// Package kts46 speaks the two protocols of the kts46 scheduler, see `treadle help kts46`. Clients define simulations and
// workers run them, over XML-RPC in version 1 and over JSON-RPC in version 2.
package kts46

import (
	"sync"
	"sync/atomic"

	"treadle/loop/budget"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// Space is the name space of tasks.
const Space sched.Space = 5

// Spaces returns the name spaces of the protocol's jobs. Workers reserve them with Steal, and hold them until a
// report or a restart that names the current revision.
func Spaces() []protocol.Space {
	return []protocol.Space{{ID: Space, Protocol: name, Rules: sched.Rules{Durable: true, Graph: true, Untimed: true, Private: true}}}
}

const name = "kts46"

// The settings that hold addresses.
const (
	SettingXML  = "kts46"      // of version 1
	SettingJSON = "kts46-json" // of version 2
)

// Database is a database in the form of version 2.
type Database struct {
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

// Protocol is both protocols of a server. It has the book: the projects and jobs, and the workers of both versions. The
// scheduler has the tasks. The book decides which tasks there should be, see settle.
type Protocol struct {
	host       protocol.Host
	sched      *sched.Scheduler
	o          Options
	databases  []Database // of Options.Databases
	site       *site      // nil without a MongoDB
	stats      stats
	active     atomic.Int64  // calls that are being answered
	composing  sync.Mutex    // see compose
	defining   sync.Mutex    // see define
	unread     web.Transfers // large answers that are being written
	incoming   web.Transfers // large calls that are being read or wait for their turn
	largeTurns web.Turns     // see readCall
	servers    []*web.Server
	done       chan struct{} // closed by Close
	running    sync.WaitGroup

	mu       sync.Mutex // guards the fields below and the workers' scheduler calls
	now      sched.Time
	sink     protocol.Sink
	changed  bool // this turn journaled something
	closed   bool
	projects map[string]*project
	entries  int // projects and jobs
	workers  map[string]*worker
	sweepAt  int                           // number of workers at which the idle ones are removed
	floor    int64                         // a revision; none given before the start, or to a removed worker, is in a later second
	retired  int64                         // largest revision of a removed task
	restored map[string]*protocol.Document // numbers that wait for their definition, by project and job with a NUL between
}

// New creates the protocols without opening anything.
func New(host protocol.Host, o Options) *Protocol {
	databases, _ := o.databases() // Validate has seen the error
	return &Protocol{
		host: host, sched: host.Sched(), o: o, databases: databases, stats: stats{requests: requestCounters()}, sink: host.NewSink(),
		projects: make(map[string]*project), workers: make(map[string]*worker), done: make(chan struct{}),
		unread:     web.Transfers{Budget: budget.Budget{Most: host.MostUnsent()}},
		incoming:   web.Transfers{Budget: budget.Budget{Most: host.MostUnsent(), Free: largeCall}},
		largeTurns: make(web.Turns, 1), sweepAt: minSweep, restored: make(map[string]*protocol.Document),
	}
}

// Name implements protocol.Protocol.
func (h *Protocol) Name() string { return name }

// Projects returns the number of projects.
func (h *Protocol) Projects() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.projects)
}

// unwrittenError says that a call's changes are not on disk and never will be.
type unwrittenError struct{ error }

// turn runs fn with exclusive access to the book. It returns when fn's changes are on disk.
func (h *Protocol) turn(fn func() error) error {
	group, wait, err := h.locked(fn)
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

func (h *Protocol) locked(fn func() error) (group uint64, wait bool, err error) {
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
