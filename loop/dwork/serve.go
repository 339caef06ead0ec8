package dwork

import (
	"context"
	"log/slog"
	"time"

	codec "treadle/codec/dwork"
	"treadle/loop/dwork/zmq"
	"treadle/loop/protocol"
)

// replier is what a request is answered through: a zmq.Request, or that of Ask.
type replier interface{ Reply(payload []byte) }

// parkedReply waits for the journal.
type parkedReply struct {
	request replier
	reply   []byte
	group   uint64
}

// Listen implements protocol.Service; nothing is accepted before Serve.
func (h *Hub) Listen() (all []protocol.Listening, err error) {
	for _, a := range h.o.Listen {
		l, err := h.host.Listen(name, name, a)
		if err != nil {
			return nil, err
		}
		h.sockets = append(h.sockets, l)
		all = append(all, protocol.ListeningOn(name, l))
	}
	return all, nil
}

// Serve implements protocol.Service. The context is of no account: a hub that stops goes on
// answering until Close.
func (h *Hub) Serve(context.Context) {
	for _, l := range h.sockets {
		h.listeners = append(h.listeners, zmq.Listen(l, zmq.Options{
			MaxConnections: h.o.MaxConnections, MaxFrame: h.o.MaxFrame, MaxOutbound: max(h.o.MaxOutbound, 2*maxReply), MaxUnsent: max(h.host.MostUnsent(), 4*maxReply),
			HandshakeTimeout: h.o.HandshakeTimeout, FrameTimeout: h.o.FrameTimeout, Trouble: h.trouble,
			Unasked: codec.AppendType(nil, codec.NotFound),
		}))
	}
	for _, l := range h.listeners {
		h.goroutines.Go(func() {
			for {
				select {
				case <-h.closed:
					return
				case <-l.Ready():
					h.Wake()
				}
			}
		})
	}
	h.goroutines.Go(h.run)
}

// trouble logs what peers did wrong.
func (h *Hub) trouble(err error) {
	h.host.LogLimited(slog.LevelInfo, "dwork connection", "trouble", err.Error())
}

// Drain implements protocol.Service.
func (h *Hub) Drain() { h.stopping.Store(true) }

// Owes implements protocol.Service.
func (h *Hub) Owes() bool { return h.owed.Load() > 0 }

// Close implements protocol.Service. The hub answers until the connections have ended.
func (h *Hub) Close() {
	for _, l := range h.sockets {
		_ = l.Close() // closing twice is no fault
	}
	for _, l := range h.listeners {
		_ = l.Close() // it was only to stop
	}
	close(h.closed)
	h.goroutines.Wait()
}

// Committed implements protocol.Acknowledger.
func (h *Hub) Committed() {
	if h.Owes() {
		h.Wake()
	}
}

// Wake has the hub look for what there is to do. It never blocks.
func (h *Hub) Wake() {
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// run answers until the hub is closed.
func (h *Hub) run() {
	var silence <-chan time.Time
	if lease := h.o.Lease; lease > 0 {
		ticker := time.NewTicker(max(lease/leaseChecks, time.Millisecond))
		defer ticker.Stop()
		silence = ticker.C
	}
	for {
		select {
		case <-h.closed:
			return
		case <-silence:
			h.Expire()
		case <-h.ready:
			h.turn()
		}
	}
}

// Turn does what there is to do; false: there is nothing.
func (h *Hub) Turn() bool {
	select {
	case <-h.ready:
		h.turn()
		return true
	default:
		return false
	}
}

// Ask answers one request in a turn of its own. reply is called with the answer, now or by a Turn
// when what the request changed is on disk, and must copy what it keeps.
func (h *Hub) Ask(request []byte, reply func([]byte)) {
	h.now = h.host.Now()
	respond(h, asked(reply), h.read(request))
	h.endTurn()
}

// asked is a request of Ask.
type asked func([]byte)

// Reply implements replier.
func (a asked) Reply(b []byte) { a(b) }

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
func (h *Hub) turn() {
	h.now = h.host.Now()
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
	if cap(h.out) > maxReply/16 {
		h.out = nil
	}
	h.endTurn()
}

// serveRequest answers the request that was read. A peer that may not read the reply is handed out
// nothing.
func (h *Hub) serveRequest(request zmq.Request, wrong error) {
	if wrong == nil && h.query.Type == codec.Steal && request.Unheard() {
		h.stats.requests[codec.Steal].Add(1)
		request.Reply(codec.AppendType(nil, codec.NotFound))
		return
	}
	respond(h, request, wrong)
}

// costly says whether the query, of a short request, may take long: a task may wait for very many.
func (h *Hub) costly() bool {
	q := &h.query
	return q.Type == codec.Lookup || q.Type == codec.Steal && q.N > shortSteal
}

// respond answers the request that was read, with what was wrong with it, now or when what it changed
// is on disk.
func respond[R replier](h *Hub, to R, wrong error) {
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
func (h *Hub) endTurn() {
	if h.awaited > 0 || h.gaveBack {
		h.host.Flush(h.awaited)
	} else {
		h.host.FlushLater() // steals: a loss of power has their tasks ready again
	}
	h.awaited, h.gaveBack = 0, false
	h.sink.Wake()
	if len(h.parked) == 0 {
		return
	}
	committed := h.host.Committed()
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
