//go:build invariants

package loop

import (
	"cmp"
	"errors"
	"math"
	"net"
	"slices"

	"treadle/loop/dwork"
)

// OfflinePeer is a connection to an Offline server with gnet's contract. The peer reads all output at
// once, unless Window limits it.
type OfflinePeer struct {
	// Window is how many unread bytes the kernels hold for the peer. The rest waits in the server.
	Window int
	// Broken makes the server's next Write fail.
	Broken bool
	// Written, when set, is called with each of the server's writes.
	Written func([]byte)

	server  *Offline
	session *session
	unread  []byte
	closed  bool
}

// Connect connects a peer to a port on the loop with the fewest connections. port is the setting:
// periodic, gloom-masters or gloom-slaves. It panics for any other.
func (o *Offline) Connect(port string) *OfflinePeer {
	p := &OfflinePeer{server: o, Window: math.MaxInt}
	o.connected++
	least := slices.MinFunc(o.loops, func(a, b *reactor) int { return cmp.Compare(a.sessions.count(), b.sessions.count()) })
	p.session = least.open(p, o.server.loopPort(port))
	o.server.conns.add(p.session.ProtocolID)
	return p
}

// count returns how many sessions there are.
func (t *sessionTable) count() int { return len(t.slots) - len(t.free) }

// Send passes bytes of the peer to the server, and ends the turn. It overwrites b.
func (p *OfflinePeer) Send(b []byte) {
	p.Feed(b)
	p.server.Settle()
}

// Feed is Send without the end of the turn. It reads as the engine does: a little at first, then
// more, into the session's window when it has one.
func (p *OfflinePeer) Feed(b []byte) {
	for most := readBuffer; !p.closed && len(b) > 0; most = readMore {
		n := min(len(b), most)
		if to := p.session.window(); to != nil && most == readMore {
			n = copy(to, b)
			p.session.r.readIntoPartial(p.session, n)
		} else {
			p.session.r.traffic(p.session, b[:n])
		}
		erase(b[:n])
		b = b[n:]
	}
}

// Read returns all output since the last Read.
func (p *OfflinePeer) Read() []byte { return p.ReadUpTo(math.MaxInt) }

// ReadUpTo is Read of at most n bytes.
func (p *OfflinePeer) ReadUpTo(n int) []byte {
	n = min(n, len(p.unread))
	read := p.unread[:n:n]
	p.unread = p.unread[n:]
	return read
}

// Closed reports whether the connection has ended.
func (p *OfflinePeer) Closed() bool { return p.closed }

// Close closes the connection, and ends the turn.
func (p *OfflinePeer) Close() {
	p.end()
	p.server.Settle()
}

// Reset is Close without the end of the turn.
func (p *OfflinePeer) Reset() { p.end() }

// HalfClose closes the peer's side. The peer still reads the output of its last requests, and the
// acknowledgements that wait for a Commit.
func (p *OfflinePeer) HalfClose() {
	if !p.closed {
		p.session.r.halfClose(p.session)
	}
	p.Close()
}

func (p *OfflinePeer) end() {
	if !p.closed {
		p.closed = true
		p.server.connected--
		p.unread = p.unread[:min(len(p.unread), p.Window)]
		p.session.r.closeSession(p.session)
	}
}

// Write implements connection.
func (p *OfflinePeer) Write(b []byte) (int, error) {
	if p.closed {
		panic("BUG: written to after its end, when another peer may have its descriptor")
	}
	if p.Broken {
		p.end()
		return 0, errors.New("broken pipe")
	}
	p.take(b)
	return len(b), nil
}

func (p *OfflinePeer) take(b []byte) {
	p.unread = append(p.unread, b...)
	if p.Written != nil {
		p.Written(b)
	}
}

// halfClosedPeer writes to a peer after Finish.
type halfClosedPeer struct{ peer *OfflinePeer }

// Write implements io.Writer.
func (p halfClosedPeer) Write(b []byte) (int, error) {
	p.peer.take(b)
	return len(b), nil
}

// Close implements io.Closer.
func (p halfClosedPeer) Close() error { return nil }

// OutboundBuffered implements connection.
func (p *OfflinePeer) OutboundBuffered() int { return max(len(p.unread)-p.Window, 0) }

// RemoteAddr implements connection.
func (p *OfflinePeer) RemoteAddr() net.Addr { return nil }

// Dwork sends the dwork hub a message on a connection of its own. reply is called with the answer,
// now or after a Commit, and must copy what it keeps.
func (o *Offline) Dwork(request []byte, reply func([]byte)) {
	o.hub().Ask(request, reply)
	o.Settle()
}

func (o *Offline) hub() *dwork.Protocol { return protocolOf[*dwork.Protocol](o) }
