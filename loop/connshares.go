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

// protocolID is the index of a protocol in the server's list, as protocol.Session.ProtocolID.
type protocolID = uint8

// connShares counts the open connections of each protocol and keeps their shares free.
type connShares struct {
	mu        sync.Mutex
	limit     int              // largest number of connections of all protocols
	apiLimit  int              // largest number of api
	api       int              // connections of --http that use the HTTP API; total counts them, too
	share     int              // connections reserved for each protocol that listens
	protocols []*protocolShare // shares by protocolID
	total     int

	serviceConns    btree.Map[uint64, *serviceConn] // open connections of protocols without event loops, by number
	lastServiceConn uint64

	refusedAt atomic.Int64 // Mono when a connection was last refused; 0: never
}

// protocolShare counts the connections of one protocol.
type protocolShare struct {
	name       string
	loopServed bool
	// The mutex of connShares guards connects, used and open.

	mayListen bool // the protocol has ports, is listening, or is the API on --http
	listens   bool // the protocol listens
	open      int

	opened, refused, silent atomic.Uint64
	frames, read, written   atomic.Uint64 // requests; bytes
	roles                   [protocol.Roles]atomic.Int64
	refusals                [protocol.Reasons]atomic.Uint64 // of requests, by protocol.Reason
}

// newConnShares makes the shares of the server's protocols. A protocol that the event loops serve has its share at
// once, any other protocol when it listens.
func newConnShares(s *Server) *connShares {
	c := &connShares{limit: s.o.MaxConnections, apiLimit: s.o.MaxAPIConnections}
	for i, p := range s.protocols {
		served, ok := p.(protocol.LoopServed)
		share := &protocolShare{name: p.Name(), loopServed: ok, mayListen: p.Name() == admin.Name && s.o.HTTP != ""}
		c.protocols = append(c.protocols, share)
		if !ok {
			continue
		}
		for _, port := range served.Ports() {
			share.mayListen = true
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
	s.protocols[p].mayListen, s.protocols[p].listens = true, true
	s.divide()
}

// divide computes the shares. The caller holds mu.
func (s *connShares) divide() {
	served := 0
	for _, share := range s.protocols {
		if share.listens {
			served++
		}
	}
	served = max(served, 1)
	s.share = max(s.limit/sharedPart/served, min(minShare, s.limit/2/served))
}

// setLimits changes how many connections there may be, and how many of them may use the HTTP API. Open connections
// stay.
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

// maxAPIConns returns how many connections may use the HTTP API.
func (s *connShares) maxAPIConns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.limit, s.apiLimit)
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
	for other, share := range s.protocols {
		if protocolID(other) != p && share.listens {
			room -= max(0, s.share-share.open)
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

// add counts a connection without a look at the limits, such as the second descriptor of a half-closed one.
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

// takeConnSlot counts a new connection, or closes it and returns false at the limit.
func (s *Server) takeConnSlot(c net.Conn, p protocolID) bool {
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

// crowdedHandshake is how long a new connection may stay silent while others are refused, so that silent connections
// make room.
const crowdedHandshake = 1000 // milliseconds

// handshakeLimit returns how long, in milliseconds, a new connection may stay silent.
func (s *Server) handshakeLimit(now int64) int64 {
	limit := s.o.HandshakeTimeout.Milliseconds()
	if at := s.conns.refusedAt.Load(); at > 0 && now-at < 2*sweepPeriod.Milliseconds() {
		limit = min(limit, crowdedHandshake)
	}
	return limit
}
