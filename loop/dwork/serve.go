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

// Listen implements protocol.Service. Connections are accepted from Serve on.
func (p *Protocol) Listen() (all []protocol.Listening, err error) {
	for _, a := range p.o.Listen {
		l, err := p.host.Listen(name, name, a)
		if err != nil {
			return nil, err
		}
		p.sockets = append(p.sockets, l)
		all = append(all, protocol.ListeningOn(name, l))
	}
	return all, nil
}

// Serve implements protocol.Service. It ignores the context: a stopping server answers until Close.
func (p *Protocol) Serve(context.Context) {
	limits := p.host.Limits()
	for _, l := range p.sockets {
		p.listeners = append(p.listeners, zmq.Listen(l, zmq.Options{
			MaxConnections: math.MaxInt, // p.host.Listen counts them
			MaxFrame:       p.o.MaxFrame, MaxOutbound: max(limits.MaxOutbound, 2*maxReply), MaxUnsent: max(limits.MaxUnsent, 4*maxReply),
			MaxBuffered:      min(zmq.DefaultMaxBuffered, max(limits.PeerMemory, 2*p.o.MaxFrame)),
			HandshakeTimeout: limits.HandshakeTimeout, FrameTimeout: limits.FrameTimeout, OnFault: p.logPeerError,
			Unasked: codec.AppendType(nil, codec.NotFound),
		}))
	}
	for _, l := range p.listeners {
		p.goroutines.Go(func() {
			for {
				select {
				case <-p.done:
					return
				case <-l.Ready():
					p.Wake()
				}
			}
		})
	}
	p.goroutines.Go(p.run)
}

// logPeerError logs a fault of a peer.
func (p *Protocol) logPeerError(err error) {
	p.host.LogLimited(slog.LevelInfo, "trouble with a dwork connection", "trouble", err.Error())
}

// Drain implements protocol.Service.
func (p *Protocol) Drain() { p.stopping.Store(true) }

// HasPending implements protocol.Service.
func (p *Protocol) HasPending() bool { return p.pending.Load() > 0 }

// Close implements protocol.Service. Requests are answered until the connections have ended.
func (p *Protocol) Close() {
	for _, l := range p.sockets {
		_ = l.Close() // closing twice is harmless
	}
	for _, l := range p.listeners {
		_ = l.Close() // there is nothing to do about an error
	}
	close(p.done)
	p.goroutines.Wait()
}

// Committed implements protocol.Acknowledger.
func (p *Protocol) Committed() {
	if p.HasPending() {
		p.Wake()
	}
}

// Wake schedules a turn. It never blocks.
func (p *Protocol) Wake() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// run takes turns until Close.
func (p *Protocol) run() {
	var leaseCheck <-chan time.Time
	if lease := p.o.Lease; lease > 0 {
		ticker := time.NewTicker(max(lease/silenceChecks, time.Millisecond))
		defer ticker.Stop()
		leaseCheck = ticker.C
	}
	for {
		select {
		case <-p.done:
			return
		case <-leaseCheck:
			p.Expire()
		case <-p.ready:
			p.turn()
		}
	}
}

// Turn takes a turn that Wake has scheduled, and returns false without one.
func (p *Protocol) Turn() bool {
	select {
	case <-p.ready:
		p.turn()
		return true
	default:
		return false
	}
}

// Ask answers one request in a turn of its own. It calls reply, or a later Turn does once the request's changes are on
// disk. reply must copy what it keeps.
func (p *Protocol) Ask(request []byte, reply func([]byte)) {
	p.now = p.host.Now()
	respond(p, replyFunc(reply), p.decode(request))
	p.endTurn()
}

// replyFunc is the replier of Ask.
type replyFunc func([]byte)

// Reply implements replier.
func (f replyFunc) Reply(b []byte) { f(b) }

// silenceChecks is how often silent workers are looked for within Options.Lease.
const silenceChecks = 4

const (
	// connectionSlice is the time after which a connection's next request waits until the others had their turn. A
	// connection may send thousands of expensive requests at once.
	connectionSlice = 10 * time.Millisecond
	// shortRequest is the size in bytes, and shortSteal the number of tasks, up to which a request takes less than a
	// millisecond. Workers stay below them.
	shortRequest = 4 << 10
	shortSteal   = 64
)

// turn answers the requests that have come since the last turn. Long requests come last: one of them, and more until a
// slice is over.
func (p *Protocol) turn() {
	p.now = p.host.Now()
	p.batch = p.batch[:0]
	for _, l := range p.listeners {
		p.batch = l.Take(p.batch)
	}
	long := p.batch[:0] // shares the array, and never overtakes the loop below
	var last zmq.Request
	var until time.Time // the end of the connection's slice, later that of the long requests
	behind := false     // a request of the connection is long, so the following ones wait with it
	for _, request := range p.batch {
		now := time.Now()
		if !request.Follows(last) {
			until, behind = now.Add(connectionSlice), false
		}
		last = request
		var invalid error
		behind = behind || request.Overflowed() || now.After(until) || len(request.Payload) > shortRequest
		if !behind {
			invalid = p.decode(request.Payload)
			behind = invalid == nil && p.costly()
		}
		if behind {
			long = append(long, request)
		} else {
			p.serveRequest(request, invalid)
		}
	}
	until = time.Now().Add(connectionSlice)
	for i, request := range long {
		if request.Overflowed() || i > 0 && time.Now().After(until) {
			request.Postpone()
		} else {
			p.serveRequest(request, p.decode(request.Payload))
		}
	}
	clear(p.batch)
	if cap(p.out) > maxReply/16 {
		p.out = nil
	}
	p.endTurn()
}

// serveRequest answers the query. It hands out nothing to a peer that may not read the reply.
func (p *Protocol) serveRequest(request zmq.Request, invalid error) {
	if invalid == nil && p.query.Type == codec.Steal && request.MaybeUnread() {
		p.stats.requests[codec.Steal].Add(1)
		request.Reply(codec.AppendType(nil, codec.NotFound))
		return
	}
	respond(p, request, invalid)
}

// costly reports whether the query of a short request may take long. A Lookup may show very many dependencies.
func (p *Protocol) costly() bool {
	q := &p.query
	return q.Type == codec.Lookup || q.Type == codec.Steal && q.N > shortSteal
}

// replier takes the reply to a request. A zmq.Request and a replyFunc are repliers.
type replier interface{ Reply(payload []byte) }

// unsentReply is a reply that waits until the group is committed.
type unsentReply struct {
	request replier
	reply   []byte
	group   uint64
}

// respond answers the query, now or once its changes are on disk.
func respond[R replier](p *Protocol, to R, invalid error) {
	var group uint64
	var wait bool
	p.out, group, wait = p.handle(p.out[:0], invalid)
	if !wait {
		to.Reply(p.out)
		return
	}
	p.unsent = append(p.unsent, unsentReply{to, append([]byte(nil), p.out...), group})
	p.pending.Add(1)
	p.awaited++
}

// endTurn flushes the journal, wakes the event loops, and sends the kept replies whose changes are on disk.
func (p *Protocol) endTurn() {
	if p.awaited > 0 || p.released {
		p.host.Flush(p.awaited)
	} else {
		p.host.FlushLater() // only steals, which a loss of power may undo
	}
	p.awaited, p.released = 0, false
	p.sink.Wake()
	if len(p.unsent) == 0 {
		return
	}
	committed := p.host.Committed()
	waiting := p.unsent[:0]
	for _, reply := range p.unsent {
		if reply.group <= committed {
			reply.request.Reply(reply.reply)
			p.pending.Add(-1)
		} else {
			waiting = append(waiting, reply)
		}
	}
	clear(p.unsent[len(waiting):])
	p.unsent = waiting
}
