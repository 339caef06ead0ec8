package loop

import (
	"treadle/loop/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Bounds of a view of connections.
const (
	// viewedSessions is how many slots a reactor looks at in one turn: they take less than a millisecond, and most are
	// free when there were many connections.
	viewedSessions = 1024
	// viewedQueues is how many of its queues a connection is shown with.
	viewedQueues = 8
	// serviceLoop takes the place of the loop's number in the id of a serviceConn, which no event loop has.
	serviceLoop = maxLoops
)

// Connections implements admin.Host.
func (h host) Connections(from uint64, n int) []admin.Connection {
	var all []admin.Connection
	loop, slot := loopOf(sched.SessionID(from)), int(slotOf(sched.SessionID(from)))
	for ; loop < len(h.reactors); loop, slot = loop+1, 0 {
		for more := true; more; slot += viewedSessions {
			more = false
			h.onReactor(loop, func(r *reactor) { // on the loop's goroutine, while this one waits
				all, more = r.view(from, slot, n, all)
			})
			if len(all) == n {
				return all
			}
		}
	}
	return h.viewServiceConns(from, n, all)
}

// view appends the sessions of the next viewedSessions slots until all has n. more reports whether there are slots
// behind them.
func (r *reactor) view(from uint64, slot, n int, all []admin.Connection) (_ []admin.Connection, more bool) {
	end := min(slot+viewedSessions, len(r.sessions.slots))
	for ; slot < end && len(all) < n; slot++ {
		if s := r.sessions.slots[slot]; s != nil && s.open() && uint64(s.ID) >= from {
			all = append(all, s.view())
		}
	}
	return all, end < len(r.sessions.slots)
}

func (s *session) view() admin.Connection {
	c := admin.Connection{
		ID: uint64(s.ID), Protocol: s.r.server.conns.protocols[s.ProtocolID].name, Role: s.Role, Remote: s.Remote(), Since: s.opened,
		Idle: s.r.Now.Mono - s.lastReceived, Received: s.received, Sent: s.sent, Unsent: s.unsent(),
	}
	if s.SchedPeer != nil {
		c.Peer = s.SchedPeer.View(viewedQueues)
	}
	return c
}

// viewServiceConns appends the connections of protocols without event loops.
func (h host) viewServiceConns(from uint64, n int, all []admin.Connection) []admin.Connection {
	now, first := h.now().Mono, uint64(0)
	if from>>loopShift == serviceLoop {
		first = from & (1<<loopShift - 1)
	}
	h.conns.mu.Lock()
	defer h.conns.mu.Unlock()
	h.conns.serviceConns.Ascend(first, func(number uint64, c *serviceConn) bool {
		if len(all) < n {
			all = append(all, admin.Connection{
				ID: serviceLoop<<loopShift | number, Protocol: h.conns.protocols[c.listener.protocol].name, Remote: addressOf(c), Since: c.opened.Wall,
				Idle: now - c.lastReceived.Load(), Received: c.received.Load(), Sent: c.sent.Load(),
			})
		}
		return len(all) < n
	})
	return all
}

// CloseConnection implements admin.Host.
func (h host) CloseConnection(id uint64) (found bool) {
	if loopOf(sched.SessionID(id)) == serviceLoop {
		h.conns.mu.Lock()
		c, ok := h.conns.serviceConns.Get(id & (1<<loopShift - 1))
		h.conns.mu.Unlock()
		if ok {
			_ = c.Close() // an error would change nothing
		}
		return ok
	}
	return h.withSession(id, func(s *session) { s.End(errByOperator) })
}

// QuietConnection implements admin.Host.
func (h host) QuietConnection(id uint64, end bool) (found, able bool) {
	found = h.withSession(id, func(s *session) {
		if q, ok := s.conv.(protocol.Quieted); ok {
			able = q.Quiet(end)
		}
	})
	return found, able
}

// withSession calls fn with the open session of an id, on its loop. It returns false when no such session is open.
func (h host) withSession(id uint64, fn func(*session)) (found bool) {
	loop := loopOf(sched.SessionID(id))
	if loop >= len(h.reactors) {
		return false
	}
	h.onReactor(loop, func(r *reactor) {
		if s := r.sessions.get(sched.SessionID(id)); s != nil && s.open() {
			fn(s)
			found = true
		}
	})
	return found
}
