//go:build invariants

package loop

import (
	"errors"
	"math"
	"net"

	"treadle/loop/dwork"
)

// OfflinePeer is a connection to an Offline server, on gnet's terms. Its other end takes all
// that it is sent, unless Window says otherwise.
type OfflinePeer struct {
	// Window is how many bytes the kernels between the two hold for a peer that does not
	// Read; the others wait in the server.
	Window int
	// Broken makes the server's next Write fail.
	Broken bool
	// Written, when set, sees what the server writes, when it does.
	Written func([]byte)

	server  *Offline
	session *session
	unread  []byte
	closed  bool
}

// Connect connects a peer to a port, named as the setting with its addresses: periodic,
// gloom-masters or gloom-slaves. It panics for any other. Its loop is the one with the
// fewest connections.
func (o *Offline) Connect(port string) *OfflinePeer {
	p := &OfflinePeer{server: o, Window: math.MaxInt}
	o.connected++
	least := o.loops[0]
	for _, r := range o.loops {
		if len(r.sessions)-len(r.free) < len(least.sessions)-len(least.free) {
			least = r
		}
	}
	p.session = least.open(p, o.server.loopPort(port))
	o.server.conns.add(p.session.protocol)
	return p
}

// Send hands the server what the peer sends, and ends the turn. b is not kept, and not
// readable as it was when Send returns.
func (p *OfflinePeer) Send(b []byte) {
	p.Feed(b)
	p.server.Settle()
}

// Feed is Send within a turn that goes on. The server reads as the engine does: a little at
// first, and more, perhaps to where a large message is put together, when there is more.
func (p *OfflinePeer) Feed(b []byte) {
	for most := readBuffer; !p.closed && len(b) > 0; most = readMore {
		n := min(len(b), most)
		if to := p.session.window(); to != nil && most == readMore {
			n = copy(to, b)
			p.session.r.filled(p.session, n)
		} else {
			p.session.r.traffic(p.session, b[:n])
		}
		erase(b[:n])
		b = b[n:]
	}
}

// Read returns all that the peer has been sent since the last Read.
func (p *OfflinePeer) Read() []byte { return p.ReadUpTo(math.MaxInt) }

// ReadUpTo is Read of n bytes at most.
func (p *OfflinePeer) ReadUpTo(n int) []byte {
	n = min(n, len(p.unread))
	read := p.unread[:n:n]
	p.unread = p.unread[n:]
	return read
}

// Closed says whether the connection has ended.
func (p *OfflinePeer) Closed() bool { return p.closed }

// Close is the peer's leaving.
func (p *OfflinePeer) Close() {
	p.end()
	p.server.Settle()
}

// Reset is Close within a turn that goes on.
func (p *OfflinePeer) Reset() { p.end() }

// Finish is the end of what the peer has to say; it still reads what it is sent meanwhile,
// and the acknowledgements that wait for a Commit.
func (p *OfflinePeer) Finish() {
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

// parted is what a peer that has finished is still written to.
type parted struct{ peer *OfflinePeer }

// Write implements io.Writer.
func (p parted) Write(b []byte) (int, error) {
	p.peer.take(b)
	return len(b), nil
}

// Close implements io.Closer.
func (p parted) Close() error { return nil }

// OutboundBuffered implements connection.
func (p *OfflinePeer) OutboundBuffered() int { return max(len(p.unread)-p.Window, 0) }

// RemoteAddr implements connection.
func (p *OfflinePeer) RemoteAddr() net.Addr { return nil }

// Dwork asks the dwork hub, as one message of a connection of its own. reply is called with
// the answer, now or after a Commit, and must copy what it keeps.
func (o *Offline) Dwork(request []byte, reply func([]byte)) {
	o.hub().Ask(request, reply)
	o.Settle()
}

// hub is that of dwork.
func (o *Offline) hub() *dwork.Hub {
	for h := range protocolsWith[*dwork.Hub](o.server) {
		return h
	}
	return nil
}
