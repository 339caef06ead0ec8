package cluster

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"treadle/loop/splice"
)

// The times of the transport.
const (
	helloTimeout  = 3 * time.Second // to connect and exchange hellos
	writeTimeout  = 5 * time.Second
	fileTimeout   = 30 * time.Second // for each frame of a snapshot
	minRetryPause = 50 * time.Millisecond
	maxRetryPause = time.Second
)

// maxQueued is the most messages that wait for one node. Raft sends dropped messages again.
const maxQueued = 256

// maxUnidentified bounds the connections that have not sent their hello: from hosts of nodes, and from other hosts.
const maxUnidentified = 64

// maxFileFrame is the largest frame of a snapshot's files.
const maxFileFrame = 1 << 20

// transport connects a node with the others: a connection for Raft's messages to each, and one for each snapshot,
// forwarded client, change and request for the status.
type transport struct {
	o                 *Options
	node              *Node
	identity          identity
	server, client    *tls.Config // nil: plain
	listener          net.Listener
	unknownSlots      chan struct{}           // a semaphore: maxUnidentified
	knownSlots        chan struct{}           // another semaphore: see slotsFor
	storeIncarnations func(text string) error // writes the note PEERS
	ctx               context.Context
	cancel            context.CancelFunc
	goroutines        sync.WaitGroup

	mu            sync.Mutex
	knownHosts    map[string]bool  // hosts of other nodes to which this node has connected
	peers         map[uint64]*peer // by number
	conns         map[net.Conn]bool
	incarnations  map[string]string // by id
	problems      map[string]string // why a node cannot be reached, by id; "": it is reached
	lastRefused   time.Time
	dialLocal     LocalDialer
	dialerChanged chan struct{} // closed and replaced when dialLocal changes
}

// peer is the connection for Raft's messages to another node.
type peer struct {
	Peer
	number uint64
	queue  chan *pb.Message
	cancel context.CancelFunc
}

// listen opens the port of a node. serve serves it.
func listen(o *Options, id identity, incarnations map[string]string) (*transport, error) {
	t := &transport{
		o: o, identity: id, incarnations: incarnations, unknownSlots: make(chan struct{}, maxUnidentified), knownSlots: make(chan struct{}, maxUnidentified),
		knownHosts: make(map[string]bool), dialerChanged: make(chan struct{}),
		conns: make(map[net.Conn]bool), problems: make(map[string]string), peers: make(map[uint64]*peer),
	}
	var err error
	if t.server, t.client, err = o.tls(); err != nil {
		return nil, err
	}
	own := cmp.Or(o.Listen, o.Peers[o.number(o.ID)-1].Address)
	if t.listener, err = net.Listen("tcp", own); err != nil {
		return nil, fmt.Errorf("cannot listen on %s for the other nodes: %w", own, err)
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// serve accepts connections. update connects to the other nodes.
func (t *transport) serve() { t.goroutines.Go(t.accept) }

// update implements links. It connects to new nodes and ends the connections to removed ones.
func (t *transport) update(m *members) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for number, p := range t.peers {
		if m.id(number) == "" {
			p.cancel()
			delete(t.peers, number)
			delete(t.problems, p.ID)
		}
	}
	for _, n := range m.Nodes {
		if n.ID == t.o.ID || t.peers[n.Number] != nil || t.ctx.Err() != nil {
			continue
		}
		ctx, cancel := context.WithCancel(t.ctx)
		p := &peer{Peer{n.ID, n.Address}, n.Number, make(chan *pb.Message, maxQueued), cancel}
		t.peers[n.Number] = p
		t.goroutines.Go(func() { t.connect(ctx, p) })
	}
}

// close closes the port and all connections, and waits for the goroutines.
func (t *transport) close() {
	t.cancel()
	_ = t.listener.Close()
	t.mu.Lock()
	for c := range t.conns {
		_ = c.Close()
	}
	t.mu.Unlock()
	t.goroutines.Wait()
}

// trackConn lets close end the connection. It closes the connection and returns false if the transport is closed.
func (t *transport) trackConn(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() == nil {
		t.conns[c] = true
		return true
	}
	_ = c.Close()
	return false
}

// closeTracked closes a connection of trackConn.
func (t *transport) closeTracked(c net.Conn) {
	t.mu.Lock()
	delete(t.conns, c)
	t.mu.Unlock()
	_ = c.Close()
}

// accept accepts connections until the port is closed.
func (t *transport) accept() {
	for {
		c, err := t.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(minRetryPause)
			continue
		}
		slots := t.slotsFor(c.RemoteAddr())
		select {
		case slots <- struct{}{}:
			t.goroutines.Go(func() { t.serveConn(c, slots) })
		default:
			_ = c.Close()
		}
	}
}

// serveConn serves an accepted connection. It closes the connection unless the other end proves to be a node. slots is
// the semaphore in which the connection has a slot until then.
func (t *transport) serveConn(c net.Conn, slots chan struct{}) {
	freeSlot := sync.OnceFunc(func() { <-slots })
	defer freeSlot()
	if t.server != nil {
		c = tls.Server(c, t.server)
	}
	if !t.trackConn(c) {
		return
	}
	defer t.closeTracked(c)
	_ = c.SetDeadline(time.Now().Add(helloTimeout)) // a closed connection says so when it is read
	h, err := readHello(c)
	var own net.Conn // of a forwarded connection: the end at the port
	if err == nil {
		if err = t.checkHello(&h); err == nil {
			err = t.checkCertificate(c, h.From)
		}
		if err == nil && h.Kind == kindForward {
			freeSlot()
			if own, err = t.dialForwarded(&h); err == nil {
				defer t.closeTracked(own)
			}
			_ = c.SetDeadline(time.Now().Add(helloTimeout))
		}
		answer := t.hello(h.Kind, h.From)
		switch {
		case err != nil:
			answer.Error, answer.Removed = err.Error(), errors.Is(err, errPeerRemoved)
		case h.Kind == kindJoin:
			answer.Nodes = t.node.nodes()
		}
		err = errors.Join(err, writeHello(c, &answer))
	}
	if err != nil {
		if h.Kind != kindForward { // a leader that begins or ends refuses many
			t.logRefusal(c, err)
		}
		return
	}
	freeSlot()
	_ = c.SetDeadline(time.Time{})
	switch h.Kind {
	case kindRaft:
		err = t.receive(c, h.From)
	case kindSnapshot:
		err = t.receiveSnapshot(c, h.From)
	case kindStatus:
		err = t.answerStatus(c)
	case kindForward:
		splice.Both(c, own)
	case kindChange:
		err = t.answerChange(c)
	}
	if err != nil && !errors.Is(err, io.EOF) && t.ctx.Err() == nil {
		t.o.Log.Debug("a connection of a node has ended", "node", h.From, "kind", h.Kind, "error", err)
	}
}

// dial opens a connection to a node, of the kind of the hello.
func (t *transport) dial(ctx context.Context, p Peer, h hello) (net.Conn, error) {
	c, _, err := t.openConn(ctx, p, h)
	return c, err
}

// askNode sends a hello on a new connection and returns the node's answer.
func (t *transport) askNode(ctx context.Context, p Peer, h hello) (hello, error) {
	c, answer, err := t.openConn(ctx, p, h)
	if err != nil {
		return hello{}, err
	}
	return answer, c.Close()
}

// openConn opens a connection and exchanges hellos.
func (t *transport) openConn(ctx context.Context, p Peer, h hello) (c net.Conn, answer hello, err error) {
	limit := helloTimeout
	if h.Kind == kindForward {
		limit += 2 * ForwardTimeout // for the leader to begin, and to accept the connection
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d := net.Dialer{Timeout: helloTimeout, KeepAlive: writeTimeout}
	if h.Kind == kindRaft { // other connections may wait for an end that does not read
		d.Control = setAckTimeout
	}
	c, err = d.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, answer, err
	}
	raw := c
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })()
	t.noteHost(raw.RemoteAddr())
	if t.client != nil {
		config := t.client.Clone()
		config.ServerName, _, _ = net.SplitHostPort(p.Address)
		c = tls.Client(c, config)
	}
	if err = writeHello(c, &h); err == nil {
		answer, err = readHello(c)
	}
	if err == nil {
		err = t.checkHello(&answer)
	}
	if err == nil && answer.From != p.ID {
		err = fmt.Errorf("node %q answers at the address of node %q", answer.From, p.ID)
	}
	if err != nil {
		return nil, answer, errors.Join(err, c.Close())
	}
	return c, answer, nil
}

// setAckTimeout bounds the time in which the other end acknowledges nothing: after a partition the system would send
// again at growing intervals.
func setAckTimeout(_, _ string, c syscall.RawConn) error {
	var refused error
	err := c.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(writeTimeout.Milliseconds()))
	})
	return errors.Join(err, refused)
}

// logReachability logs why a node cannot be reached, or that it is connected, once until that changes. With err nil it
// is connected.
func (t *transport) logReachability(ctx context.Context, id string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	t.mu.Lock()
	before := t.problems[id]
	t.problems[id] = text
	t.mu.Unlock()
	switch {
	case text == before || ctx.Err() != nil:
	case err != nil:
		t.o.Log.Warn("a node of the cluster cannot be reached", "node", id, "error", text)
	default:
		t.o.Log.Info("a node of the cluster is connected", "node", id)
	}
}

// logRefusal logs the error with which a connection is refused, at most once a second.
func (t *transport) logRefusal(c net.Conn, err error) {
	t.mu.Lock()
	log := time.Since(t.lastRefused) > time.Second
	if log {
		t.lastRefused = time.Now()
	}
	t.mu.Unlock()
	if log && t.ctx.Err() == nil {
		t.o.Log.Warn("a connection to the port of the cluster is refused", "remote", c.RemoteAddr(), "error", err)
	}
}

// connect keeps a connection to a node and sends the queued messages until ctx ends.
func (t *transport) connect(ctx context.Context, p *peer) {
	for wait := minRetryPause; ctx.Err() == nil; wait = min(2*wait, maxRetryPause) {
		c, err := t.dial(ctx, p.Peer, t.hello(kindRaft, p.ID))
		if errors.Is(err, errRemoved) {
			t.node.fail(err)
			return
		}
		if t.logReachability(ctx, p.ID, err); err == nil && t.trackConn(c) {
			wait = minRetryPause
			err = t.sendQueued(ctx, c, p.queue)
			t.closeTracked(c)
			t.logReachability(ctx, p.ID, err)
		}
		for len(p.queue) > 0 { // it is old
			<-p.queue
		}
		t.node.call(func() { t.node.raft.ReportUnreachable(p.number) })
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// sendQueued sends queued messages until the connection fails.
func (t *transport) sendQueued(ctx context.Context, c net.Conn, queue chan *pb.Message) error {
	gone := make(chan error, 1)
	go func() { // the other end sends nothing: a read returns when it has left
		_, err := c.Read(make([]byte, 1))
		gone <- fmt.Errorf("the connection has ended: %w", err)
	}()
	w := bufio.NewWriterSize(c, 64<<10)
	for {
		select {
		case m := <-queue:
			b, err := proto.Marshal(m)
			if err != nil {
				return err
			}
			_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := w.Write(appendFrame(nil, b)); err != nil {
				return err
			}
			if len(queue) > 0 {
				continue
			}
			if err := w.Flush(); err != nil {
				return err
			}
		case err := <-gone:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// send implements links.
func (t *transport) send(m *pb.Message) {
	t.mu.Lock()
	p := t.peers[m.GetTo()]
	t.mu.Unlock()
	if p == nil {
		return // it was removed
	}
	select {
	case p.queue <- m:
	default:
	}
}

// receive hands Raft's messages of a connection to the node. It returns an error for a message that is not of the node
// from.
func (t *transport) receive(c net.Conn, from string) error {
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		m, err := t.readMessage(r, from)
		if err != nil {
			return err
		}
		if !slices.Contains(nodeMessages, m.GetType()) {
			return fmt.Errorf("a message %v, which no node sends", m.GetType())
		}
		select {
		case t.node.received <- m:
		case <-t.node.closing:
			return nil
		}
	}
}

// nodeMessages are the types of messages that nodes send each other. A snapshot comes with its files instead.
var nodeMessages = []pb.MessageType{
	pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp, pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow,
}

// readMessage reads a message and checks that it is of the node from and for this node.
func (t *transport) readMessage(r io.Reader, from string) (*pb.Message, error) {
	b, err := readFrame(r, t.o.MaxMessage)
	if err != nil {
		return nil, err
	}
	m := &pb.Message{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("a message of %s cannot be read: %w", from, err)
	}
	if t.node.id(m.GetFrom()) != from || m.GetTo() != t.node.number {
		return nil, fmt.Errorf("a message from node %d to node %d, on a connection of %s", m.GetFrom(), m.GetTo(), from)
	}
	return m, nil
}
