package loop

import (
	"net"
	"sync"
	"time"

	"treadle/codec/dwork"
	"treadle/loop/web"
	"treadle/loop/dwork/zmq"
)

// replier is what a request is answered through: a zmq.Request, or a test's.
type replier interface{ Reply(payload []byte) }

// parkedReply waits for the journal.
type parkedReply struct {
	request replier
	reply   []byte
	group   uint64
}

// wake has the hub look for what there is to do. It never blocks.
func (h *dworkHub) wake() {
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// listen opens the protocol's addresses; nothing is accepted before serve.
func (h *dworkHub) listen() error {
	for _, a := range h.server.o.Dwork.Listen {
		l, err := h.server.open("dwork", a)
		if err != nil {
			return err
		}
		h.sockets = append(h.sockets, l)
	}
	return nil
}

// serve accepts connections and starts the goroutine that owns the conversation.
func (h *dworkHub) serve() {
	s := h.server
	for _, l := range h.sockets {
		h.listeners = append(h.listeners, zmq.Listen(&countedListener{l, s, dworkID}, zmq.Options{
			MaxConnections: s.o.MaxConnections, MaxFrame: s.o.Dwork.MaxFrame, MaxOutbound: max(s.o.MaxOutbound, 2*maxDworkReply), MaxUnsent: max(s.mostUnsent(), 4*maxDworkReply),
			HandshakeTimeout: s.o.HandshakeTimeout, FrameTimeout: s.o.FrameTimeout, Trouble: h.trouble,
			Unasked: dwork.AppendType(nil, dwork.NotFound),
		}))
	}
	for _, l := range h.listeners {
		s.workers.Go(func() {
			for {
				select {
				case <-s.stopped:
					return
				case <-l.Ready():
					h.wake()
				}
			}
		})
	}
	s.workers.Go(h.run)
}

// trouble logs what peers did wrong, a line a second at most.
func (h *dworkHub) trouble(err error) {
	if h.server.noise.allow(h.server.now().Mono) {
		h.server.log.Info("dwork connection", "trouble", err.Error())
	}
}

// closeSockets ends the connections, or, before serve, the sockets.
func (h *dworkHub) closeSockets() {
	for _, l := range h.sockets {
		_ = l.Close() // closing twice is no fault
	}
	for _, l := range h.listeners {
		_ = l.Close() // it was only to stop
	}
}

// run answers until the server has stopped.
func (h *dworkHub) run() {
	var silence <-chan time.Time
	if lease := h.server.o.Dwork.Lease; lease > 0 {
		ticker := time.NewTicker(max(lease/leaseChecks, time.Millisecond))
		defer ticker.Stop()
		silence = ticker.C
	}
	for {
		select {
		case <-h.server.stopped:
			return
		case <-silence:
			h.now = h.server.now()
			h.expire()
			h.endTurn()
		case <-h.ready:
			h.turn()
		}
	}
}

// leaseChecks is how often a lease's length is looked for silent workers.
const leaseChecks = 4

const (
	// hubSlice is how long a connection's requests may take in one turn, all but the last: it may
	// post thousands at once, each about very much.
	hubSlice = 10 * time.Millisecond
	// shortRequest and shortSteal are what takes less than a millisecond: a request of so many
	// bytes, and one for so many tasks. Workers ask for no more.
	shortRequest = 4 << 10
	shortSteal   = 64
)

// turn answers all that came in since the last one. Those that may take long come after all others,
// and as many of these as fit into a slice, but one: very many peers may send some.
func (h *dworkHub) turn() {
	h.now = h.server.now()
	h.batch = h.batch[:0]
	for _, l := range h.listeners {
		h.batch = l.Take(h.batch)
	}
	long := h.batch[:0] // never ahead of what is read
	var last zmq.Request
	var until time.Time // of the connection's slice, then of these
	behind := false     // a request of the connection is among these, and so is the rest
	for _, request := range h.batch {
		now := time.Now()
		if !request.Follows(last) {
			until, behind = now.Add(hubSlice), false
		}
		last = request
		var wrong error
		if behind = behind || request.Lost() || now.After(until) || len(request.Payload) > shortRequest; !behind {
			wrong = h.read(request.Payload)
			behind = wrong == nil && h.costly()
		}
		if behind {
			long = append(long, request)
		} else {
			h.serveRequest(request, wrong)
		}
	}
	until = time.Now().Add(hubSlice)
	for i, request := range long {
		if request.Lost() || i > 0 && time.Now().After(until) {
			request.Later()
		} else {
			h.serveRequest(request, h.read(request.Payload))
		}
	}
	clear(h.batch)
	if cap(h.out) > maxDworkReply/16 {
		h.out = nil
	}
	h.endTurn()
}

// serveRequest answers the request that was read. A peer that may not read the reply is handed out
// nothing.
func (h *dworkHub) serveRequest(request zmq.Request, wrong error) {
	if wrong == nil && h.query.Type == dwork.Steal && request.Unheard() {
		h.stats.requests[dwork.Steal].Add(1)
		request.Reply(dwork.AppendType(nil, dwork.NotFound))
		return
	}
	respond(h, request, wrong)
}

// costly says whether the query, of a short request, may take long: a task may wait for very many.
func (h *dworkHub) costly() bool {
	q := &h.query
	return q.Type == dwork.Lookup || q.Type == dwork.Steal && q.N > shortSteal
}

// respond answers the request that was read, with what was wrong with it, now or when what it changed
// is on disk.
func respond[R replier](h *dworkHub, to R, wrong error) {
	var group uint64
	var wait bool
	h.out, group, wait = h.answer(h.out[:0], wrong)
	if !wait {
		to.Reply(h.out)
		return
	}
	h.parked = append(h.parked, parkedReply{to, append([]byte(nil), h.out...), group})
	h.owed.Add(1)
	h.awaited++
}

// endTurn hands on what was caused, and sends the replies whose changes are on disk.
func (h *dworkHub) endTurn() {
	if h.awaited > 0 || h.gaveBack {
		h.server.feed.flush(h.awaited)
	} else {
		h.server.feed.flushLater() // steals: a loss of power has their tasks ready again
	}
	h.awaited, h.gaveBack = 0, false
	h.server.wake(h.sink.mailed)
	if len(h.parked) == 0 {
		return
	}
	committed := h.server.feed.journal.Committed()
	kept := h.parked[:0]
	for _, p := range h.parked {
		if p.group <= committed {
			p.request.Reply(p.reply)
			h.owed.Add(-1)
		} else {
			kept = append(kept, p)
		}
	}
	clear(h.parked[len(kept):])
	h.parked = kept
}

// countedListener counts its connections among the server's, up to their cap.
type countedListener struct {
	net.Listener
	server   *Server
	protocol protocolID
}

// Accept implements net.Listener.
func (l *countedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.server.count(c, l.protocol) {
			return &countedConn{Conn: c, of: l}, nil
		}
	}
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	of   *countedListener
	once sync.Once
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(func() { c.of.server.conns.leave(c.of.protocol) })
	return c.Conn.Close()
}

// samples are the protocol's rows of the metrics.
func (h *dworkHub) samples() (all []web.Sample) {
	for t := range h.stats.requests {
		if n := h.stats.requests[t].Load(); n > 0 {
			s := web.Counter("treadle_dwork_requests_total", "Requests of the dwork protocol.", n)
			s.Label, s.LabelValue = "type", dwork.Type(t).String()
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
