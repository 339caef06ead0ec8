// Package kts46 speaks the two protocols of the kts46 scheduler, see `treadle help kts46`. Clients define simulations
// and workers run them, over XML-RPC in version 1 and over JSON-RPC in version 2.
//
// A method has a row in xmlMethods or jsonMethods, with one function or two. The first works on the registry, in the
// data directory. The second replaces it when the projects are in a site's MongoDB. The two share the parameters and
// the forms of the answers, but no steps: on the registry a method is one turn; with a MongoDB it asks the database
// outside of turns, and changes the registry in a turn before or after that.
//
// Each connection has a goroutine. Long answers are built one at a time, see compose; large calls are handled one at a
// time, see readCall.
package kts46

import (
	"sync"
	"sync/atomic"

	"treadle/loop/budget"
	"treadle/loop/protocol"
	"treadle/loop/web"
)

const name = "kts46"

// Protocol is both protocols of a server: the calls of both versions, which take turns with the registry.
type Protocol struct {
	registry
	o          Options
	databases  []Database // of Options.Databases
	site       *mongoSite // nil without a MongoDB
	stats      stats
	active     atomic.Int64  // calls that are being answered
	composing  sync.Mutex    // see compose
	defining   sync.Mutex    // see define
	unread     web.Transfers // large answers that are being written
	incoming   web.Transfers // large calls that are being read or wait for their turn
	largeTurns web.Semaphore // see readCall
	servers    []*web.Server
	done       chan struct{} // closed by Close
	goroutines sync.WaitGroup
}

var _ interface {
	protocol.Service
	protocol.SettingsRestorer
	protocol.DocumentRestorer
	protocol.Omitted
	protocol.HolderRestorer
} = (*Protocol)(nil)

// stats are counters since the start.
type stats struct {
	requests      map[string]*atomic.Uint64 // by method; the map never changes
	errors        atomic.Uint64             // calls answered with a fault or an error
	tooLarge, cut atomic.Uint64
}

// requestCounters returns a counter for each method of both versions.
func requestCounters() map[string]*atomic.Uint64 {
	all := make(map[string]*atomic.Uint64)
	for method := range xmlMethods {
		all[method] = new(atomic.Uint64)
	}
	for method := range jsonMethods {
		all[method] = new(atomic.Uint64)
	}
	return all
}

// New makes the protocols without opening their addresses.
func New(host protocol.Host, o Options) *Protocol {
	databases, _ := o.databases() // Check has refused a wrong one
	maxUnsent := host.Limits().MaxUnsent
	return &Protocol{
		registry: registry{
			host: host, sched: host.Sched(), sink: host.NewSink(), restartAfter: o.RestartAfter,
			projects: make(map[string]*project), workers: make(map[string]*worker), sweepAt: minSweep, restored: make(map[string]*protocol.Document),
		},
		o: o, databases: databases, stats: stats{requests: requestCounters()}, done: make(chan struct{}),
		unread:     web.Transfers{Budget: budget.Budget{Max: maxUnsent}},
		incoming:   web.Transfers{Budget: budget.Budget{Max: maxUnsent, Free: largeCall}},
		largeTurns: make(web.Semaphore, 1),
	}
}

// Name implements protocol.Protocol.
func (p *Protocol) Name() string { return name }

// Samples implements protocol.Protocol.
func (p *Protocol) Samples() (all []web.Sample) {
	for method, n := range p.stats.requests {
		if n := n.Load(); n > 0 {
			all = append(all, web.Counter("treadle_kts46_requests_total", "Calls of the kts46 protocols.", n).With("method", method))
		}
	}
	if p.site != nil {
		all = append(all, web.Counter("treadle_kts46_mongodb_failures_total", "Calls of the MongoDB of kts46 that have failed.", p.site.failures.Load()))
	}
	p.mu.Lock()
	held, projects, jobs := len(p.heldTasks()), len(p.projects), p.entries-len(p.projects)
	p.mu.Unlock()
	return append(all,
		web.Gauge("treadle_kts46_projects", "Projects known.", projects),
		web.Gauge("treadle_kts46_jobs", "Jobs of projects, done ones included.", jobs),
		web.Gauge("treadle_kts46_held_tasks", "Tasks that a worker holds.", held),
		web.Counter("treadle_kts46_definitions_parsed_total", "Definitions of jobs parsed: by addJob, and at the start those of an older version.", p.parsed.Load()),
		web.ProtocolErrors(name, "answered_error", p.stats.errors.Load()),
		web.ProtocolErrors(name, "too_large", p.stats.tooLarge.Load()),
		web.ProtocolErrors(name, "truncated", p.stats.cut.Load()),
	)
}
