package dwork

import (
	"context"
	"log/slog"
	"math"
	"time"

	codec "treadle/codec/dwork"
	"treadle/loop/dwork/zmq"
	"treadle/loop/protocol"
)

// replier takes the reply to a request. A zmq.Request and a replyFunc are repliers.
type replier interface{ Reply(payload []byte) }

// parkedReply is a reply that waits until the group is committed.
type parkedReply struct {
	request replier
	reply   []byte
	group   uint64
}

// Listen implements protocol.Service. Connections are accepted from Serve on.
func (h *Protocol) Listen() (all []protocol.Listening, err error) {
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

// Serve implements protocol.Service. It ignores the context: a stopping hub answers until Close.
func (h *Protocol) Serve(context.Context) {
	limits := h.host.Limits()
	for _, l := range h.sockets {
		h.listeners = append(h.listeners, zmq.Listen(l, zmq.Options{
			MaxConnections: math.MaxInt, // h.host.Listen counts them
			MaxFrame:       h.o.MaxFrame, MaxOutbound: max(limits.MaxOutbound, 2*maxReply), MaxUnsent: max(limits.MostUnsent, 4*maxReply),
			MaxBuffered:      min(zmq.DefaultMaxBuffered, max(limits.PeerMemory, 2*h.o.MaxFrame)),
			HandshakeTimeout: limits.HandshakeTimeout, FrameTimeout: limits.FrameTimeout, Trouble: h.logPeerError,
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

// logPeerError logs a fault of a peer.
func (h *Protocol) logPeerError(err error) {
	h.host.LogLimited(slog.LevelInfo, "trouble with a dwork connection", "trouble", err.Error())
}

// Drain implements protocol.Service.
func (h *Protocol) Drain() { h.stopping.Store(true) }

// Owes implements protocol.Service.
func (h *Protocol) Owes() bool { return h.owed.Load() > 0 }

// Close implements protocol.Service. The hub answers until the connections have ended.
func (h *Protocol) Close() {
	for _, l := range h.sockets {
		_ = l.Close() // closing twice is harmless
	}
	for _, l := range h.listeners {
		_ = l.Close() // there is nothing to do about an error
	}
	close(h.closed)
	h.goroutines.Wait()
}

// Committed implements protocol.Acknowledger.
func (h *Protocol) Committed() {
	if h.Owes() {
		h.Wake()
	}
}

// Wake schedules a turn. It never blocks.
func (h *Protocol) Wake() {
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// run takes turns until Close.
func (h *Protocol) run() {
	var leaseCheck <-chan time.Time
	if lease := h.o.Lease; lease > 0 {
		ticker := time.NewTicker(max(lease/leaseChecks, time.Millisecond))
		defer ticker.Stop()
		leaseCheck = ticker.C
	}
	for {
		select {
		case <-h.closed:
			return
		case <-leaseCheck:
			h.Expire()
		case <-h.ready:
			h.turn()
		}
	}
}

// Turn takes a turn that Wake has scheduled, and returns false without one.
func (h *Protocol) Turn() bool {
	select {
	case <-h.ready:
		h.turn()
		return true
	default:
		return false
	}
}

// Ask answers one request in a turn of its own. It calls reply, or a later Turn does once the
// request's changes are on disk. reply must copy what it keeps.
func (h *Protocol) Ask(request []byte, reply func([]byte)) {
	h.now = h.host.Now()
	respond(h, replyFunc(reply), h.decode(request))
	h.endTurn()
}

// replyFunc is the replier of Ask.
type replyFunc func([]byte)

// Reply implements replier.
func (f replyFunc) Reply(b []byte) { f(b) }

// leaseChecks is how many times per lease the hub looks for silent workers.
const leaseChecks = 4

const (
	// hubSlice is the time after which a connection's next request waits until the others had
	// their turn. A connection may send thousands of expensive requests at once.
	hubSlice = 10 * time.Millisecond
	// shortRequest is the size in bytes, and shortSteal the number of tasks, up to which a request
	// takes less than a millisecond. Workers stay below them.
	shortRequest = 4 << 10
	shortSteal   = 64
)

// turn answers the requests that have come since the last turn. Long requests come last: one of
// them, and more until a slice is over.
func (h *Protocol) turn() {
	h.now = h.host.Now()
	h.batch = h.batch[:0]
	for _, l := range h.listeners {
		h.batch = l.Take(h.batch)
	}
	long := h.batch[:0] // shares the array, and never overtakes the loop below
	var last zmq.Request
	var until time.Time // the end of the connection's slice, later that of the long requests
	behind := false     // a request of the connection is long, so the following ones wait with it
	for _, request := range h.batch {
		now := time.Now()
		if !request.Follows(last) {
			until, behind = now.Add(hubSlice), false
		}
		last = request
		var invalid error
		behind = behind || request.Overflowed() || now.After(until) || len(request.Payload) > shortRequest
		if !behind {
			invalid = h.decode(request.Payload)
			behind = invalid == nil && h.costly()
		}
		if behind {
			long = append(long, request)
		} else {
			h.serveRequest(request, invalid)
		}
	}
	until = time.Now().Add(hubSlice)
	for i, request := range long {
		if request.Overflowed() || i > 0 && time.Now().After(until) {
			request.Postpone()
		} else {
			h.serveRequest(request, h.decode(request.Payload))
		}
	}
	clear(h.batch)
	if cap(h.out) > maxReply/16 {
		h.out = nil
	}
	h.endTurn()
}

// serveRequest answers the query. It hands out nothing to a peer that may not read the reply.
func (h *Protocol) serveRequest(request zmq.Request, invalid error) {
	if invalid == nil && h.query.Type == codec.Steal && request.MaybeUnread() {
		h.stats.requests[codec.Steal].Add(1)
		request.Reply(codec.AppendType(nil, codec.NotFound))
		return
	}
	respond(h, request, invalid)
}

// costly reports whether the query of a short request may take long. A Lookup may show very many
// dependencies.
func (h *Protocol) costly() bool {
	q := &h.query
	return q.Type == codec.Lookup || q.Type == codec.Steal && q.N > shortSteal
}

// respond answers the query, now or once its changes are on disk.
func respond[R replier](h *Protocol, to R, invalid error) {
	var group uint64
	var wait bool
	h.out, group, wait = h.answer(h.out[:0], invalid)
	if !wait {
		to.Reply(h.out)
		return
	}
	h.parked = append(h.parked, parkedReply{to, append([]byte(nil), h.out...), group})
	h.owed.Add(1)
	h.awaited++
}

// endTurn flushes the journal, wakes the event loops, and sends the parked replies whose changes
// are on disk.
func (h *Protocol) endTurn() {
	if h.awaited > 0 || h.released {
		h.host.Flush(h.awaited)
	} else {
		h.host.FlushLater() // only steals, which a loss of power may undo
	}
	h.awaited, h.released = 0, false
	h.sink.Wake()
	if len(h.parked) == 0 {
		return
	}
	committed := h.host.Committed()
	waiting := h.parked[:0]
	for _, p := range h.parked {
		if p.group <= committed {
			p.request.Reply(p.reply)
			h.owed.Add(-1)
		} else {
			waiting = append(waiting, p)
		}
	}
	clear(h.parked[len(waiting):])
	h.parked = waiting
}
