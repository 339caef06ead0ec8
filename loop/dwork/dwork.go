// Package dwork speaks the dwork protocol, protocols/dwork.md: workers steal and complete the
// tasks of a graph, over ZeroMQ. Package zmq below has the sockets.
package dwork

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	codec "treadle/codec/dwork"
	"treadle/loop/dwork/zmq"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

const name = "dwork"

// Options are the settings of the protocol.
type Options struct {
	Listen          []string      // addresses
	MaxFrame        int           // bytes of one ZeroMQ frame
	MaxSteal        int           // tasks handed out by one reply
	IdleNotFound    bool          // a Steal is answered NotFound when no task is left, else Exit
	StopNotFound    bool          // the same while the server stops
	HolderCompletes bool          // only the worker that holds a task may complete it, else any
	Release         bool          // tasks that workers held before a restart are ready, else they are still held
	Lease           time.Duration // how long a worker that holds tasks may be silent; 0: for ever
	Remember        time.Duration // how long complete tasks can be looked up

	MaxConnections, MaxOutbound    int // of the server, for zmq.Options
	HandshakeTimeout, FrameTimeout time.Duration
}

// Hub is the protocol in one server. All of its conversation runs on one goroutine, which is
// the owner of every worker's side of the scheduler: the one that Serve starts or, in a server
// without sockets, the caller of Turn, Ask and Expire. It implements protocol.Service.
type Hub struct {
	host     protocol.Host
	sched    *sched.Scheduler
	o        Options
	now      sched.Time
	workers  map[string]*worker // by location
	sink     protocol.Sink
	stopping atomic.Bool // nothing is handed out or created any more, see answerStopping
	stats    stats

	sockets    []net.Listener
	listeners  []*zmq.Listener
	closed     chan struct{} // by Close
	goroutines sync.WaitGroup
	ready      chan struct{} // there is something to do, see Wake
	batch      []zmq.Request
	out        []byte
	parked     []parkedReply
	owed       atomic.Int64 // how many are parked
	awaited    int          // of them, in this turn
	gaveBack   bool         // in this turn a worker's tasks were

	query codec.Query
	tasks []sched.Task // of the request at hand
	after [][]byte     // their predecessors, one behind the other
	log   []sched.Event
	parts []byte // of the task being written
}

// stats counts what happened since the start.
type stats struct {
	requests [codec.Error + 1]atomic.Uint64 // by type
	refused  atomic.Uint64
}

// New prepares the protocol; it opens nothing.
func New(host protocol.Host, o Options) *Hub {
	host.Sched().SetRemember(o.Remember.Milliseconds())
	return &Hub{
		host: host, sched: host.Sched(), o: o, workers: make(map[string]*worker), sink: host.NewSink(),
		closed: make(chan struct{}), ready: make(chan struct{}, 1),
	}
}

// Name implements protocol.Protocol.
func (h *Hub) Name() string { return name }

// Ports implements protocol.Protocol: no event loop serves it.
func (h *Hub) Ports() []protocol.Port { return nil }

// CloseReasons implements protocol.Protocol.
func (h *Hub) CloseReasons() []protocol.CloseReason { return nil }

// Pages implements protocol.Pager.
func (h *Hub) Pages() []web.Page {
	return []web.Page{{Pattern: "GET /dwork/graph", Handler: h.graph}}
}

// Samples implements protocol.Protocol.
func (h *Hub) Samples() (all []web.Sample) {
	for t := range h.stats.requests {
		if n := h.stats.requests[t].Load(); n > 0 {
			s := web.Counter("treadle_dwork_requests_total", "Requests of the dwork protocol.", n)
			s.Label, s.LabelValue = "type", codec.Type(t).String()
			all = append(all, s)
		}
	}
	var st zmq.Stats
	for _, l := range h.listeners {
		k := l.Stats()
		st.Open += k.Open
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
		web.Counter("treadle_dwork_refused_total", "Requests answered Error.", h.stats.refused.Load()),
		web.Gauge("treadle_dwork_connections", "Open ZeroMQ connections.", st.Open),
		web.Counter("treadle_dwork_bad_handshakes_total", "Connections closed before their first message.", uint64(st.BadHandshakes)),
		web.Counter("treadle_dwork_bad_frames_total", "Connections closed for a frame against ZMTP or the limits.", uint64(st.BadFrames)),
		web.Counter("treadle_dwork_stalled_total", "Connections closed for an unfinished message or unread replies.", uint64(st.Stalled)),
		web.Counter("treadle_dwork_overflows_total", "Connections closed for taking too much memory.", uint64(st.Overflows)),
		web.Counter("treadle_dwork_no_delimiter_total", "Messages dropped: no delimiter.", uint64(st.NoDelimiter)),
		web.Counter("treadle_dwork_extra_frames_total", "Messages dropped: more than one frame behind the delimiter.", uint64(st.ExtraFrames)),
		web.Counter("treadle_dwork_heartbeats_total", "PINGs answered.", uint64(st.Heartbeats)),
		web.Counter("treadle_dwork_unasked_total", "Silent REQs told NotFound: they may have waited for a reply that a killed server owed them.", uint64(st.Unasked)),
	)
}
