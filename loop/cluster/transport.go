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
)

// The times of the transport.
const (
	helloTimeout = 3 * time.Second // to connect and to say who both are
	writeTimeout = 5 * time.Second
	fileTimeout  = 30 * time.Second // for each frame of a snapshot
	retryLeast   = 50 * time.Millisecond
	retryMost    = time.Second
)

// maxQueued is how many messages may wait for one node. Raft sends again what is dropped.
const maxQueued = 256

// maxStrangers is how many connections may be open that have not said who they are: from the machines of nodes, and
// from others.
const maxStrangers = 64

// maxFile is the largest frame of a snapshot's files.
const maxFile = 1 << 20

// transport connects a node with the others: a connection for Raft's messages to each, and one for each snapshot,
// passed client and request for the status.
type transport struct {
	o              *Options
	node           *Node
	identity       identity
	server, client *tls.Config // nil: plain
	listener       net.Listener
	strangers      chan struct{}            // a semaphore: maxStrangers
	neighbours     chan struct{}            // another one: see place
	keep           func(known string) error // stores the note PEERS
	ctx            context.Context
	cancel         context.CancelFunc
	workers        sync.WaitGroup

	mu          sync.Mutex
	homes       map[string]bool  // addresses of other nodes' machines; of those that this one has connected to
	peers       map[uint64]*peer // by number
	conns       map[net.Conn]bool
	known       map[string]string // incarnation by id
	problems    map[string]string // why a node cannot be reached, by id
	lastRefused time.Time
	pass        OpenPort
	serves      chan struct{} // closed and replaced when pass changes
}

// peer is the connection for Raft's messages to another node.
type peer struct {
	Peer
	number uint64
	queue  chan *pb.Message
	cancel context.CancelFunc
}

// listen opens the port of a node. serve begins to use it.
func listen(o *Options, id identity, known map[string]string) (*transport, error) {
	t := &transport{
		o: o, identity: id, known: known, strangers: make(chan struct{}, maxStrangers), neighbours: make(chan struct{}, maxStrangers),
		homes: make(map[string]bool), serves: make(chan struct{}),
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
func (t *transport) serve() { t.workers.Go(t.accept) }

// update implements links: it connects to new nodes, and ends the connections to those that are gone.
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
		t.workers.Go(func() { t.connect(ctx, p) })
	}
}

func (t *transport) close() {
	t.cancel()
	_ = t.listener.Close()
	t.mu.Lock()
	for c := range t.conns {
		_ = c.Close()
	}
	t.mu.Unlock()
	t.workers.Wait()
}

// hold keeps a connection to be closed with the transport. It returns false when that is closed.
func (t *transport) hold(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() == nil {
		t.conns[c] = true
		return true
	}
	_ = c.Close()
	return false
}

func (t *transport) release(c net.Conn) {
	t.mu.Lock()
	delete(t.conns, c)
	t.mu.Unlock()
	_ = c.Close()
}

// accept welcomes connections until the port is closed.
func (t *transport) accept() {
	for {
		c, err := t.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(retryLeast)
			continue
		}
		place := t.place(c.RemoteAddr())
		select {
		case place <- struct{}{}:
			t.workers.Go(func() { t.welcome(c, place) })
		default:
			_ = c.Close()
		}
	}
}

// welcome serves a connection whose other end proves to be a node of this cluster.
func (t *transport) welcome(c net.Conn, place chan struct{}) {
	leave := sync.OnceFunc(func() { <-place })
	defer leave()
	if t.server != nil {
		c = tls.Server(c, t.server)
	}
	if !t.hold(c) {
		return
	}
	defer t.release(c)
	_ = c.SetDeadline(time.Now().Add(helloTimeout)) // a closed connection says so when it is read
	h, err := readHello(c)
	var own net.Conn // of a passed connection
	if err == nil {
		if err = t.admit(&h); err == nil {
			err = t.certified(c, h.From)
		}
		if err == nil && h.Kind == kindPass {
			leave()
			if own, err = t.openPassed(&h); err == nil {
				defer t.release(own)
			}
			_ = c.SetDeadline(time.Now().Add(helloTimeout))
		}
		answer := t.hello(h.Kind, h.From)
		switch {
		case err != nil:
			answer.Error, answer.Removed = err.Error(), errors.Is(err, errGone)
		case h.Kind == kindJoin:
			answer.Nodes = t.node.nodes()
		}
		err = errors.Join(err, writeHello(c, &answer))
	}
	if err != nil {
		if h.Kind != kindPass { // a leader that begins or ends refuses many
			t.refused(c, err)
		}
		return
	}
	leave()
	_ = c.SetDeadline(time.Time{})
	switch h.Kind {
	case kindRaft:
		err = t.receive(c, h.From)
	case kindSnapshot:
		err = t.receiveSnapshot(c, h.From)
	case kindStatus:
		err = t.answerStatus(c)
	case kindPass:
		Splice(c, own)
	case kindChange:
		err = t.answerChange(c)
	}
	if err != nil && !errors.Is(err, io.EOF) && t.ctx.Err() == nil {
		t.o.Log.Debug("a connection of a node has ended", "node", h.From, "kind", h.Kind, "error", err)
	}
}

// dial opens a connection of a kind to a node.
func (t *transport) dial(ctx context.Context, p Peer, h hello) (net.Conn, error) {
	c, _, err := t.open(ctx, p, h)
	return c, err
}

// greet returns the answer of a node to a hello.
func (t *transport) greet(ctx context.Context, p Peer, h hello) (hello, error) {
	c, answer, err := t.open(ctx, p, h)
	if err != nil {
		return hello{}, err
	}
	return answer, c.Close()
}

// open opens a connection and exchanges hellos.
func (t *transport) open(ctx context.Context, p Peer, h hello) (c net.Conn, answer hello, err error) {
	limit := helloTimeout
	if h.Kind == kindPass {
		limit += 2 * PassTimeout // for the leader to begin, and to accept the connection
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d := net.Dialer{Timeout: helloTimeout, KeepAlive: writeTimeout}
	if h.Kind == kindRaft { // others may wait for as long as the other end does not read
		d.Control = lossTimeout
	}
	c, err = d.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, answer, err
	}
	raw := c
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })()
	t.learn(raw.RemoteAddr())
	if t.client != nil {
		config := t.client.Clone()
		config.ServerName, _, _ = net.SplitHostPort(p.Address)
		c = tls.Client(c, config)
	}
	if err = writeHello(c, &h); err == nil {
		answer, err = readHello(c)
	}
	if err == nil {
		err = t.admit(&answer)
	}
	if err == nil && answer.From != p.ID {
		err = fmt.Errorf("node %q answers at the address of node %q", answer.From, p.ID)
	}
	if err != nil {
		return nil, answer, errors.Join(err, c.Close())
	}
	return c, answer, nil
}

// lossTimeout sets how long a peer may acknowledge nothing: after a partition the system would wait for longer and
// longer.
func lossTimeout(_, _ string, c syscall.RawConn) error {
	var refused error
	err := c.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(writeTimeout.Milliseconds()))
	})
	return errors.Join(err, refused)
}

// note logs why a node cannot be worked with, once until that changes.
func (t *transport) note(ctx context.Context, id string, err error) {
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

// refused logs why a connection is refused, at most once a second.
func (t *transport) refused(c net.Conn, err error) {
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

// connect keeps a connection to a node and sends what is queued for it.
func (t *transport) connect(ctx context.Context, p *peer) {
	for wait := retryLeast; ctx.Err() == nil; wait = min(2*wait, retryMost) {
		c, err := t.dial(ctx, p.Peer, t.hello(kindRaft, p.ID))
		if errors.Is(err, errRemoved) {
			t.node.fail(err)
			return
		}
		if t.note(ctx, p.ID, err); err == nil && t.hold(c) {
			wait = retryLeast
			err = t.write(ctx, c, p.queue)
			t.release(c)
			t.note(ctx, p.ID, err)
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

// write sends queued messages until the connection fails.
func (t *transport) write(ctx context.Context, c net.Conn, queue chan *pb.Message) error {
	gone := make(chan error, 1)
	go func() { // the other end sends nothing: this tells when it is gone
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

// receive passes on Raft's messages of a connection. It checks that they come from the node that has connected.
func (t *transport) receive(c net.Conn, from string) error {
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		m, err := t.readMessage(r, from)
		if err != nil {
			return err
		}
		if !slices.Contains(between, m.GetType()) {
			return fmt.Errorf("a message %v, which no node sends", m.GetType())
		}
		select {
		case t.node.received <- m:
		case <-t.node.closing:
			return nil
		}
	}
}

// between are the messages that nodes send each other. A snapshot comes with its files.
var between = []pb.MessageType{
	pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp, pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow,
}

// readMessage reads a message of a connection from the node from, and checks who it is from and for.
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
