package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// The times of the transport.
const (
	dialTimeout  = 2 * time.Second
	helloTimeout = 3 * time.Second
	writeTimeout = 5 * time.Second
	fileTimeout  = 30 * time.Second // for each frame of a snapshot
	retryLeast   = 50 * time.Millisecond
	retryMost    = time.Second
)

// maxQueued is how many messages may wait for one node. Raft sends again what is dropped.
const maxQueued = 256

// maxStrangers is how many connections may be open that have not said who they are.
const maxStrangers = 64

// maxFile is the largest frame of a snapshot's files.
const maxFile = 1 << 20

// transport connects a node with the others: a connection for Raft's messages to each, and one for each snapshot,
// passed client and request for the status.
type transport struct {
	o              *Options
	node           *Node
	identity       string
	server, client *tls.Config // nil: plain
	listener       net.Listener
	queues         []chan *pb.Message // by number less 1
	strangers      chan struct{}
	ctx            context.Context
	cancel         context.CancelFunc
	workers        sync.WaitGroup

	mu          sync.Mutex
	conns       map[net.Conn]bool
	known       map[string]string // incarnation by id
	problems    map[string]string // why a node cannot be reached, by id
	lastRefused time.Time
	pass        func(setting string, ordinal int) (net.Conn, error)
}

// listen opens the port of a node.
func listen(o *Options, n *Node, identity string, known map[string]string) (*transport, error) {
	t := &transport{
		o: o, node: n, identity: identity, known: known, strangers: make(chan struct{}, maxStrangers),
		conns: make(map[net.Conn]bool), problems: make(map[string]string),
	}
	var err error
	if t.server, t.client, err = o.tls(); err != nil {
		return nil, err
	}
	own := o.Peers[o.number(o.ID)-1].Address
	if t.listener, err = net.Listen("tcp", own); err != nil {
		return nil, fmt.Errorf("cannot listen on %s for the other nodes: %w", own, err)
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for range o.Peers {
		t.queues = append(t.queues, make(chan *pb.Message, maxQueued))
	}
	return t, nil
}

// serve accepts connections, and connects to all other nodes.
func (t *transport) serve() {
	t.workers.Go(t.accept)
	for i, p := range t.o.Peers {
		if p.ID != t.o.ID {
			t.workers.Go(func() { t.connect(p, t.queues[i]) })
		}
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
		select {
		case t.strangers <- struct{}{}:
			t.workers.Go(func() { t.welcome(c) })
		default:
			_ = c.Close()
		}
	}
}

// welcome serves a connection whose other end proves to be a node of this cluster.
func (t *transport) welcome(c net.Conn) {
	leave := sync.OnceFunc(func() { <-t.strangers })
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
	if err == nil {
		err = t.admit(&h)
		answer := t.hello(h.Kind, h.From)
		if err != nil {
			answer.Error = err.Error()
		}
		err = errors.Join(err, writeHello(c, &answer))
	}
	if err != nil {
		t.refused(c, err)
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
		err = t.takePassed(c, &h)
	}
	if err != nil && !errors.Is(err, io.EOF) && t.ctx.Err() == nil {
		t.o.Log.Debug("a connection of a node has ended", "node", h.From, "kind", h.Kind, "error", err)
	}
}

// hello returns this node's first frame.
func (t *transport) hello(kind, to string) hello {
	return hello{
		Version: protocolVersion, Kind: kind, Cluster: t.o.Cluster, Members: t.o.members(),
		From: t.o.ID, Incarnation: t.identity, To: to,
	}
}

// members returns the ids of all nodes in one text.
func (o *Options) members() string { return strings.Join(o.ids(), " ") }

// admit returns why the other end of a connection is no node that this one works with. A node whose data directory is
// new is another node, even with the same id: it has forgotten what it has voted and acknowledged.
func (t *transport) admit(h *hello) error {
	switch {
	case h.Error != "":
		return errors.New(h.Error)
	case h.Version != protocolVersion:
		return fmt.Errorf("node %q speaks version %d between nodes, node %q version %d", h.From, h.Version, t.o.ID, protocolVersion)
	case h.Cluster != t.o.Cluster:
		return fmt.Errorf("node %q is of the cluster %q, node %q of %q", h.From, h.Cluster, t.o.ID, t.o.Cluster)
	case h.Members != t.o.members():
		return fmt.Errorf("node %q has the peers %q, node %q %q: give all nodes the same", h.From, h.Members, t.o.ID, t.o.members())
	case h.To != t.o.ID:
		return fmt.Errorf("node %q looks for node %q at the address of node %q", h.From, h.To, t.o.ID)
	case h.From == t.o.ID || t.o.number(h.From) == 0:
		return fmt.Errorf("no other node is called %q", h.From)
	case !slices.Contains([]string{kindRaft, kindSnapshot, kindPass, kindStatus}, h.Kind):
		return fmt.Errorf("node %q asks for %q", h.From, h.Kind)
	case len(h.Incarnation) != identitySize:
		return fmt.Errorf("node %q does not identify its data directory", h.From)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.known[h.From] {
	case h.Incarnation:
		return nil
	case "":
		t.known[h.From] = h.Incarnation
		return t.node.storage.replica.SetNote(peersNote, formatKnown(t.known))
	}
	return fmt.Errorf("node %q has another data directory than before: a node that has lost its own cannot come back under its id", h.From)
}

// dial opens a connection of a kind to a node.
func (t *transport) dial(ctx context.Context, p Peer, h hello) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := net.Dialer{KeepAlive: writeTimeout}
	c, err := d.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, err
	}
	if t.client != nil {
		config := t.client.Clone()
		config.ServerName, _, _ = net.SplitHostPort(p.Address)
		c = tls.Client(c, config)
	}
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	err = writeHello(c, &h)
	var answer hello
	if err == nil {
		answer, err = readHello(c)
	}
	if err == nil {
		err = t.admit(&answer)
	}
	if err == nil && answer.From != p.ID {
		err = fmt.Errorf("node %q answers at the address of node %q", answer.From, p.ID)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	_ = c.SetDeadline(time.Time{})
	return c, nil
}

// note logs why a node cannot be worked with, once until that changes.
func (t *transport) note(id string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	t.mu.Lock()
	before := t.problems[id]
	t.problems[id] = text
	t.mu.Unlock()
	switch {
	case text == before || t.ctx.Err() != nil:
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
func (t *transport) connect(p Peer, queue chan *pb.Message) {
	for wait := retryLeast; t.ctx.Err() == nil; wait = min(2*wait, retryMost) {
		c, err := t.dial(t.ctx, p, t.hello(kindRaft, p.ID))
		if t.note(p.ID, err); err == nil && t.hold(c) {
			wait = retryLeast
			err = t.write(c, queue)
			t.release(c)
			t.note(p.ID, err)
		}
		for len(queue) > 0 { // it is old
			<-queue
		}
		number := t.o.number(p.ID)
		t.node.call(func() { t.node.raft.ReportUnreachable(number) })
		select {
		case <-time.After(wait):
		case <-t.ctx.Done():
		}
	}
}

// write sends queued messages until the connection fails.
func (t *transport) write(c net.Conn, queue chan *pb.Message) error {
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
		case <-t.ctx.Done():
			return nil
		}
	}
}

// send implements links.
func (t *transport) send(m *pb.Message) {
	select {
	case t.queues[m.GetTo()-1] <- m:
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
		if m.GetType() == pb.MsgSnap {
			return errors.New("a snapshot without its files")
		}
		select {
		case t.node.received <- m:
		case <-t.node.closing:
			return nil
		}
	}
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
	if m.GetFrom() != t.o.number(from) || m.GetTo() != t.node.number {
		return nil, fmt.Errorf("a message from node %d to node %d, on a connection of %s", m.GetFrom(), m.GetTo(), from)
	}
	return m, nil
}
