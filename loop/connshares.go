package loop

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"treadle/loop/protocol"
	"treadle/loop/web"
)

// Of --max-connections a part is set aside for the protocols that are served, in equal shares: a
// protocol may have all the rest, and the others still have theirs. Without it peers that connect
// by one protocol and stay, as Gloom masters may for hours, would shut all others out.
const (
	// sharedPart is that part: a quarter leaves a protocol that is nearly the only one in use
	// most of the connections.
	sharedPart = 4
	// minShare is what a share has at least, as long as all shares are no more than half of the
	// connections: one for a client and one for a worker.
	minShare = 2
)

// protocolID is the place of a protocol in the server's list.
type protocolID uint8

// shares counts the open connections.
type connShares struct {
	limit int // of all protocols

	mu    sync.Mutex
	share int              // that is set aside for a protocol
	all   []*protocolShare // by protocolID
	total int

	refusedAt atomic.Int64 // Mono when a connection was last turned away, 0: never
}

// protocolShare is what one protocol has of the connections.
type protocolShare struct {
	name            string
	connects        bool // it has ports, or listens; guarded by mu of shares, as the next two
	used            bool // it listens
	open            int
	refused, silent atomic.Uint64
}

// newConns makes the shares of the server's protocols. Those with ports on the event loops have
// theirs from the beginning, others when they listen.
func newConns(s *Server) *connShares {
	c := &connShares{limit: s.o.MaxConnections}
	for i, p := range s.protocols {
		share := &protocolShare{name: p.Name()}
		c.all = append(c.all, share)
		served, ok := p.(protocol.LoopServed)
		if !ok {
			continue
		}
		for _, port := range served.Ports() {
			share.connects = true
			if len(port.Addresses) > 0 {
				c.reserveShare(protocolID(i))
			}
		}
	}
	return c
}

// use sets a share aside for a protocol that listens.
func (s *connShares) reserveShare(p protocolID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[p].connects, s.all[p].used = true, true
	served := 0
	for _, one := range s.all {
		if one.used {
			served++
		}
	}
	s.share = max(s.limit/sharedPart/served, min(minShare, s.limit/2/served))
}

// id is the place of a protocol. It panics when there is none of that name.
func (s *connShares) id(name string) protocolID {
	at := slices.IndexFunc(s.all, func(p *protocolShare) bool { return p.name == name })
	if at < 0 {
		panic("BUG: no protocol is called " + name)
	}
	return protocolID(at)
}

// take counts a connection, unless there is no room for one of its protocol.
func (s *connShares) tryAdd(p protocolID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.limit - s.total
	for other, one := range s.all {
		if protocolID(other) != p && one.used {
			room -= max(0, s.share-one.open)
		}
	}
	if room <= 0 {
		s.all[p].refused.Add(1)
		return false
	}
	s.all[p].open++
	s.total++
	return true
}

// hold counts a descriptor that is kept of a connection that has been counted.
func (s *connShares) add(p protocolID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[p].open++
	s.total++
}

// leave takes a connection out of the count.
func (s *connShares) remove(p protocolID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[p].open--
	s.total--
}

// Load returns how many connections are open.
func (s *connShares) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// of returns how many of a protocol are.
func (s *connShares) open(p protocolID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[p].open
}

// samples are the rows of the metrics.
func (s *connShares) samples() (all []web.Sample) {
	for p, one := range s.all {
		if !one.connects {
			continue
		}
		for _, row := range []web.Sample{
			web.Gauge("treadle_protocol_connections", "Open connections of a protocol.", s.open(protocolID(p))),
			web.Counter("treadle_connections_refused_total", "Connections turned away at --max-connections, or because the rest of it is set aside for other protocols.", one.refused.Load()),
			web.Counter("treadle_connections_silent_total", "Connections closed because they had not said who they are, or anything, within --handshake-timeout.", one.silent.Load()),
		} {
			row.Label, row.LabelValue = "protocol", one.name
			all = append(all, row)
		}
	}
	return all
}

// count counts a connection, or turns it away at the limit.
func (s *Server) takePlace(c net.Conn, p protocolID) bool {
	if s.conns.tryAdd(p) {
		s.counters.accepted.Add(1)
		return true
	}
	now := s.now().Mono
	s.conns.refusedAt.Store(now)
	if s.logLimit.allow(now) {
		s.log.Warn("turning a connection away: all of --max-connections are open, but for those that are set aside for other protocols",
			"protocol", s.conns.all[p].name, "open", s.conns.open(p), "max-connections", s.o.MaxConnections)
	}
	_ = c.Close()
	return false
}

// crowdedHandshake is how long a new connection may stay silent while others are turned away:
// those that say nothing make room for them.
const crowdedHandshake = 1000 // milliseconds

// handshakeLimit is how long, in milliseconds, a new connection may stay silent.
func (s *Server) handshakeLimit(now int64) int64 {
	limit := s.o.HandshakeTimeout.Milliseconds()
	if at := s.conns.refusedAt.Load(); at > 0 && now-at < 2*sweepPeriod.Milliseconds() {
		limit = min(limit, crowdedHandshake)
	}
	return limit
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
		if l.server.takePlace(c, l.protocol) {
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
	c.once.Do(func() { c.of.server.conns.remove(c.of.protocol) })
	return c.Conn.Close()
}
