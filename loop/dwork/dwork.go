// Package dwork speaks the dwork protocol, see `treadle help dwork`. Workers steal and complete the tasks of a graph
// over ZeroMQ, whose sockets are in package zmq below. The dwork project calls its server a hub; here it is Protocol.
//
// One goroutine answers all requests, in turns. connectionSlice bounds the time of a connection in a turn, maxParts and
// --dwork-max-steal bound a request, and maxNames bounds the reply to a Lookup.
package dwork

import (
	"net"
	"sync"
	"sync/atomic"

	codec "treadle/codec/dwork"
	"treadle/loop/dwork/zmq"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

const name = "dwork"

// Protocol is the protocol in one server. It implements protocol.Service. One goroutine answers all requests and owns
// the workers' peers: that of Serve or, in a server without sockets, the caller of Turn, Ask and Expire.
type Protocol struct {
	host     protocol.Host
	sched    *sched.Scheduler
	o        Options
	now      sched.Time
	workers  map[string]*worker // by location
	sink     protocol.Sink
	stopping atomic.Bool // see answerStopping
	stats    stats

	sockets    []net.Listener
	listeners  []*zmq.Listener
	done       chan struct{} // closed by Close
	goroutines sync.WaitGroup
	ready      chan struct{} // requests or commits may have come, see Wake
	batch      []zmq.Request
	out        []byte
	unsent     []unsentReply
	pending    atomic.Int64 // the length of unsent
	awaited    int          // replies that this turn has kept back
	released   bool         // this turn has released a worker's tasks

	query codec.Query  // the request at hand
	tasks []sched.Task // its tasks
	preds [][]byte     // their predecessors, concatenated
	log   []sched.Event
	parts []byte // the encoded fields of a reply's task
}

var _ interface {
	protocol.Service
	protocol.HolderRestorer
	protocol.Acknowledger
	protocol.RouteProvider
} = (*Protocol)(nil)

// stats counts since the start.
type stats struct {
	requests [codec.Error + 1]atomic.Uint64 // by type
	errors   atomic.Uint64                  // requests answered Error
}

// New makes the protocol without opening its addresses.
func New(host protocol.Host, o Options) *Protocol {
	host.Sched().SetRemember(o.Remember.Milliseconds())
	return &Protocol{
		host: host, sched: host.Sched(), o: o, workers: make(map[string]*worker), sink: host.NewSink(),
		done: make(chan struct{}), ready: make(chan struct{}, 1),
	}
}

// Name implements protocol.Protocol.
func (p *Protocol) Name() string { return name }

// Routes implements protocol.RouteProvider.
func (p *Protocol) Routes() []web.Route {
	return []web.Route{{Pattern: "GET /dwork/graph", Handler: p.graph}}
}

// Samples implements protocol.Protocol.
func (p *Protocol) Samples() (all []web.Sample) {
	for t := range p.stats.requests {
		if n := p.stats.requests[t].Load(); n > 0 {
			all = append(all, web.Counter("treadle_dwork_requests_total", "Requests of the dwork protocol.", n).With("type", codec.Type(t).String()))
		}
	}
	var st zmq.Stats
	for _, l := range p.listeners {
		k := l.Stats()
		st.BadHandshakes += k.BadHandshakes
		st.BadFrames += k.BadFrames
		st.Stalled += k.Stalled
		st.Overflows += k.Overflows
		st.NoDelimiter += k.NoDelimiter
		st.ExtraFrames += k.ExtraFrames
		st.Heartbeats += k.Heartbeats
		st.Unasked += k.Unasked
		st.AcceptErrors += k.AcceptErrors
	}
	return append(all,
		web.ProtocolErrors(name, "answered_error", p.stats.errors.Load()),
		web.ProtocolErrors(name, "bad_handshake", uint64(st.BadHandshakes)),
		web.ProtocolErrors(name, "bad_frame", uint64(st.BadFrames)),
		web.ProtocolErrors(name, "stalled", uint64(st.Stalled)),
		web.ProtocolErrors(name, "overflow", uint64(st.Overflows)),
		web.ProtocolErrors(name, "no_delimiter", uint64(st.NoDelimiter)),
		web.ProtocolErrors(name, "extra_frames", uint64(st.ExtraFrames)),
		web.Counter("treadle_dwork_heartbeats_total", "Heartbeats of connections answered (PING of ZMTP).", uint64(st.Heartbeats)),
		web.Counter("treadle_dwork_unasked_total", "Workers told NotFound unasked: a server that was killed may have owed them a reply.", uint64(st.Unasked)),
	)
}
