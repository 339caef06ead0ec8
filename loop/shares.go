package loop

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"treadle/loop/web"
)

// protocolID is one of the protocols whose connections share --max-connections.
type protocolID uint8

const (
	periodicID protocolID = iota
	gloomID
	dworkID
	kts46ID
	protocols
)

var protocolNames = [protocols]string{"periodic", "gloom", "dwork", "kts46"}

// idOf is the number of the protocol of a name.
func idOf(name string) protocolID { return protocolID(slices.Index(protocolNames[:], name)) }

func (p protocolID) String() string { return protocolNames[p] }

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

// shares counts the open connections.
type shares struct {
	most  int // of all protocols
	share int // that is set aside for a protocol
	used  [protocols]bool

	mu    sync.Mutex
	open  [protocols]int
	total int

	refused, silent [protocols]atomic.Uint64
	refusedAt       atomic.Int64 // Mono when a connection was last turned away, 0: never
}

func newShares(o *Options) *shares {
	s := &shares{most: o.MaxConnections, used: [protocols]bool{
		periodicID: len(o.Periodic) > 0, gloomID: len(o.GloomMasters)+len(o.GloomSlaves) > 0,
		dworkID: len(o.Dwork.Listen) > 0, kts46ID: len(o.Kts46.Listen)+len(o.Kts46.JSON) > 0,
	}}
	served := 0
	for _, used := range s.used {
		if used {
			served++
		}
	}
	if served > 0 {
		s.share = max(s.most/sharedPart/served, min(minShare, s.most/2/served))
	}
	return s
}

// take counts a connection, unless there is no room for one of its protocol.
func (s *shares) take(p protocolID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.most - s.total
	for other, used := range s.used {
		if protocolID(other) != p && used {
			room -= max(0, s.share-s.open[other])
		}
	}
	if room <= 0 {
		s.refused[p].Add(1)
		return false
	}
	s.open[p]++
	s.total++
	return true
}

// hold counts a descriptor that is kept of a connection that has been counted.
func (s *shares) hold(p protocolID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[p]++
	s.total++
}

// leave takes a connection out of the count.
func (s *shares) leave(p protocolID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[p]--
	s.total--
}

// Load returns how many connections are open.
func (s *shares) Load() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// of returns how many of a protocol are.
func (s *shares) of(p protocolID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[p]
}

// samples are the rows of the metrics.
func (s *shares) samples() (all []web.Sample) {
	add := func(p int, row web.Sample) {
		row.Label, row.LabelValue = "protocol", protocolNames[p]
		all = append(all, row)
	}
	for p := range protocolNames {
		add(p, web.Gauge("treadle_protocol_connections", "Open connections of a protocol.", s.of(protocolID(p))))
		add(p, web.Counter("treadle_connections_refused_total", "Connections turned away at --max-connections, or because the rest of it is set aside for other protocols.", s.refused[p].Load()))
		add(p, web.Counter("treadle_connections_silent_total", "Connections closed because they had not said who they are, or anything, within --handshake-timeout.", s.silent[p].Load()))
	}
	return all
}

// count counts a connection, or turns it away at the limit.
func (s *Server) count(c net.Conn, p protocolID) bool {
	if s.conns.take(p) {
		s.counters.accepted.Add(1)
		return true
	}
	now := s.now().Mono
	s.conns.refusedAt.Store(now)
	if s.noise.allow(now) {
		s.log.Warn("turning a connection away: all of --max-connections are open, but for those that are set aside for other protocols",
			"protocol", p, "open", s.conns.of(p), "max-connections", s.o.MaxConnections)
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
