package loop

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"

	"treadle/loop/admin"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// A part of --max-connections is reserved for the protocols that are served, in equal shares. A
// protocol may use all the rest. Without shares, the connections of one protocol that stay for
// hours, as those of Gloom masters may, would shut the other protocols out.
const (
	// sharedPart is the divisor of --max-connections that gives the reserved part. A quarter leaves
	// most connections to a protocol that is nearly the only one in use.
	sharedPart = 4
	// minShare is the least share: one connection for a client and one for a worker. A share is
	// smaller only where all shares would exceed half of the connections.
	minShare = 2
)

// protocolID is the index of a protocol in the server's list.
type protocolID uint8

// connShares counts the open connections of each protocol and keeps their shares free.
type connShares struct {
	mu        sync.Mutex
	limit     int              // of all protocols' connections
	apiLimit  int              // of api
	api       int              // connections of --http that use the HTTP API; total counts them, too
	share     int              // reserved for each protocol that listens
	protocols []*protocolShare // by protocolID
	total     int

	counted     btree.Map[uint64, *countedConn] // the open ones, by number
	lastCounted uint64

	refusedAt atomic.Int64 // Mono when a connection was last refused; 0: never
}

// protocolShare counts the connections of one protocol.
type protocolShare struct {
	name       string
	loopServed bool
	connects   bool // the protocol has ports, or listens, or is the API on --http; guarded by mu of connShares, as are used and open
	used       bool // the protocol listens
	open       int

	opened, refused, silent atomic.Uint64
	frames, read, written   atomic.Uint64 // requests; bytes
	roles                   [protocol.Roles]atomic.Int64
	refusals                [protocol.Reasons]atomic.Uint64 // of requests, by protocol.Reason
}

// newConns makes the shares of the server's protocols. Protocols that the event loops serve have
// theirs at once, others when they listen.
func newConns(s *Server) *connShares {
	c := &connShares{limit: s.o.MaxConnections, apiLimit: s.o.MaxAPIConnections}
	for i, p := range s.protocols {
		served, ok := p.(protocol.LoopServed)
		share := &protocolShare{name: p.Name(), loopServed: ok, connects: p.Name() == admin.Name && s.o.HTTP != ""}
		c.protocols = append(c.protocols, share)
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

// reserveShare reserves a share for a protocol that listens.
func (s *connShares) reserveShare(p protocolID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.protocols[p].connects, s.protocols[p].used = true, true
	s.divide()
}

// divide computes the shares. The caller holds mu.
func (s *connShares) divide() {
	served := 0
	for _, one := range s.protocols {
		if one.used {
			served++
		}
	}
	served = max(served, 1)
	s.share = max(s.limit/sharedPart/served, min(minShare, s.limit/2/served))
}

// setLimits changes how many connections there may be, and how many of the HTTP API among them. Those that are open stay.
func (s *connShares) setLimits(limit, apiLimit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.apiLimit = limit, apiLimit
	s.divide()
}

// currentLimit returns how many connections there may be.
func (s *connShares) currentLimit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// id returns the index of a protocol. It panics when no protocol has the name.
func (s *connShares) id(name string) protocolID {
	at := slices.IndexFunc(s.protocols, func(p *protocolShare) bool { return p.name == name })
	if at < 0 {
		panic("BUG: no protocol is called " + name)
	}
	return protocolID(at)
}

// tryAdd counts a connection, or returns false when its protocol has as many as it may.
func (s *connShares) tryAdd(p protocolID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tryAddLocked(p)
}

// tryAddLocked is tryAdd. The caller holds mu.
func (s *connShares) tryAddLocked(p protocolID) bool {
	room := s.limit - s.total
	for other, one := range s.protocols {
		if protocolID(other) != p && one.used {
			room -= max(0, s.share-one.open)
		}
	}
	if room <= 0 {
		s.protocols[p].refused.Add(1)
		return false
	}
	s.protocols[p].open++
	s.total++
	return true
}

// Why a connection of --http may not use the HTTP API.
var (
	errTooManyAPI = errors.New("too many connections use the HTTP API: close idle ones, or raise --max-api-connections")
	errTooMany    = errors.New("too many connections: see --max-connections")
)

// tryAddAPI counts a connection of --http that uses the HTTP API, whose protocol is p.
func (s *connShares) tryAddAPI(p protocolID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.api >= s.apiLimit:
		s.protocols[p].refused.Add(1)
		return errTooManyAPI
	case !s.tryAddLocked(p):
		return errTooMany
	}
	s.api++
	return nil
}

// removeAPI counts a connection of tryAddAPI as closed.
func (s *connShares) removeAPI(p protocolID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.api--
	s.protocols[p].open--
	s.total--
}

// add counts the second descriptor of a half-closed connection.
func (s *connShares) add(p protocolID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.protocols[p].open++
	s.total++
}

// remove counts a connection as closed.
func (s *connShares) remove(p protocolID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.protocols[p].open--
	s.total--
}

// count returns how many connections are open.
func (s *connShares) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// open returns how many connections of a protocol are open.
func (s *connShares) open(p protocolID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.protocols[p].open
}

// samples returns the rows of the metrics.
func (s *connShares) samples() (all []web.Sample) {
	for p, one := range s.protocols {
		if !one.connects {
			continue
		}
		none := s.open(protocolID(p))
		for role := protocol.RoleClient; role < protocol.Roles; role++ {
			n := int(one.roles[role].Load())
			none -= n
			all = append(all, connections(one.name, role, n))
		}
		all = append(all, connections(one.name, protocol.RoleNone, max(none, 0)))
		for _, row := range []web.Sample{
			web.Counter("treadle_connections_opened_total", "Connections accepted.", one.opened.Load()),
			web.Counter("treadle_connections_refused_total", "Connections turned away at --max-connections, or because the rest of it is set aside for other protocols, and those refused at --max-api-connections.", one.refused.Load()),
			web.Counter("treadle_connections_silent_total", "Connections closed without a handshake, or without a byte, within --handshake-timeout.", one.silent.Load()),
			byteCount(&one.read).With("direction", "in"),
			byteCount(&one.written).With("direction", "out"),
		} {
			all = append(all, row.With("protocol", one.name))
		}
		if one.loopServed {
			all = append(all, web.Counter("treadle_frames_total", "Requests read from connections, in the protocols that the event loops serve.", one.frames.Load()).With("protocol", one.name))
		}
	}
	for _, one := range s.protocols {
		for why := protocol.ReasonDisk; why < protocol.Reasons; why++ {
			all = append(all, web.Counter("treadle_jobs_refused_total", "Jobs and other requests refused at a limit, by a setting or for want of disk.",
				one.refusals[why].Load()).With("protocol", one.name).With("reason", why.String()))
		}
	}
	return append(all, web.Gauge("treadle_connections_limit", "The setting --max-connections.", s.limit))
}

func connections(name string, role protocol.Role, n int) web.Sample {
	return web.Gauge("treadle_connections", "Open connections; the role is none before the handshake, and in protocols without roles.", n).With("protocol", name).With("role", role.String())
}

func byteCount(n *atomic.Uint64) web.Sample {
	return web.Counter("treadle_bytes_total", "Bytes read from connections and written to them.", n.Load())
}

// closedSamples returns a sample for each protocol and label. Some errors share a label.
func (s *connShares) closedSamples(closed []*closing) (all []web.Sample) {
	for p, one := range s.protocols {
		if !one.connects {
			continue
		}
		at := make(map[string]int)
		for _, c := range closed {
			n := c.n[p].Load()
			if !one.loopServed && n == 0 {
				continue
			}
			k, ok := at[c.Label]
			if !ok {
				k = len(all)
				at[c.Label] = k
				all = append(all, web.Counter("treadle_connections_closed_total", "Connections closed: by the peer, or by the server for a reason; the reason is other in protocols with sockets of their own.", 0).
					With("protocol", one.name).With("reason", c.Label))
			}
			all[k].Value += float64(n)
		}
	}
	return all
}

// takePlace counts a new connection, or closes it and returns false at the limit.
func (s *Server) takePlace(c net.Conn, p protocolID) bool {
	if s.conns.tryAdd(p) {
		s.conns.protocols[p].opened.Add(1)
		return true
	}
	now := s.now().Mono
	s.conns.refusedAt.Store(now)
	if s.logLimit.allow(now) {
		s.log.Warn("turning a connection away: all of --max-connections are open, but for those that are set aside for other protocols",
			"protocol", s.conns.protocols[p].name, "open", s.conns.open(p), "max-connections", s.conns.currentLimit())
	}
	_ = c.Close()
	return false
}

// crowdedHandshake is how long a new connection may stay silent while others are refused: silent
// ones make room.
const crowdedHandshake = 1000 // milliseconds

// handshakeLimit returns how long, in milliseconds, a new connection may stay silent.
func (s *Server) handshakeLimit(now int64) int64 {
	limit := s.o.HandshakeTimeout.Milliseconds()
	if at := s.conns.refusedAt.Load(); at > 0 && now-at < 2*sweepPeriod.Milliseconds() {
		limit = min(limit, crowdedHandshake)
	}
	return limit
}

// countedListener counts its connections among the server's and closes those beyond the limit.
type countedListener struct {
	net.Listener
	server *Server
	share  protocolID // that counts the connections
}

// Accept implements net.Listener.
func (l *countedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.server.takePlace(c, l.share) {
			return l.server.conns.list(c, l), nil
		}
	}
}

// countedConn counts its bytes, and gives its place back when it is closed.
type countedConn struct {
	net.Conn
	listener       *countedListener
	number         uint64
	once           sync.Once
	opened         sched.Time
	received, sent atomic.Uint64 // bytes
	lastReceived   atomic.Int64  // Mono
}

// list makes a connection that the table of open ones has.
func (s *connShares) list(c net.Conn, l *countedListener) *countedConn {
	counted := &countedConn{Conn: c, listener: l, opened: l.server.now()}
	counted.lastReceived.Store(counted.opened.Mono)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastCounted++
	counted.number = s.lastCounted
	s.counted.Set(counted.number, counted)
	return counted
}

// unlist takes a connection out of the table of open ones.
func (s *connShares) unlist(c *countedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted.Delete(c.number)
}

// NetConn returns the connection itself, as that of a tls.Conn does.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.listener.server.conns.protocols[c.listener.share].read.Add(uint64(n))
	c.received.Add(uint64(n))
	c.lastReceived.Store(c.listener.server.now().Mono)
	return n, err
}

// Write implements net.Conn.
func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.listener.server.conns.protocols[c.listener.share].written.Add(uint64(n))
	c.sent.Add(uint64(n))
	return n, err
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.listener.server.conns.unlist(c)
		c.listener.server.conns.remove(c.listener.share)
		c.listener.server.counters.closing(nil).n[c.listener.share].Add(1)
	})
	return c.Conn.Close()
}
