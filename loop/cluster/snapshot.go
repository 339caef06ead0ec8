package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"treadle/loop/journal"
)

// sendSnapshot sends the present store in the place of the older one that the message names.
func (n *Node) sendSnapshot(m *pb.Message) {
	defer n.sendingSnapshot.Store(false)
	began, status := time.Now(), raft.SnapshotFinish
	err := n.applyCommitted()
	var s *journal.Snapshot
	if err == nil {
		s, err = n.storage.replica.Snapshot()
	}
	if err == nil {
		n.pinned.set(s.Index, n.storage.written.Load())
		defer n.pinned.release()
		err = errors.Join(n.sendStore(m, s), s.Close())
	}
	if err != nil {
		status = raft.SnapshotFailure
		n.log.Warn("cannot send a snapshot", "to", n.id(m.GetTo()), "error", err)
	} else {
		n.observed.snapshotsSent.Add(1)
		n.log.Info("a snapshot is sent", "to", n.id(m.GetTo()), "entry", s.Index, "took", time.Since(began))
	}
	n.call(func() { n.raft.ReportSnapshot(m.GetTo(), status) })
}

// sendStore sends a copy of the store with a message.
func (n *Node) sendStore(m *pb.Message, s *journal.Snapshot) error {
	nodes, err := parseMembers(s.Members)
	if err != nil {
		return err
	}
	if nodes.id(m.GetTo()) == "" {
		return errors.New("the store is from before the node was added: it follows when a group is complete")
	}
	m.Snapshot = &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: &s.Index, Term: &s.Term, ConfState: nodes.confState()}}
	return n.links.sendSnapshot(m, s)
}

// receiveSnapshot hands a complete snapshot to Raft. It waits until a server that still uses the store, and whose
// Leadership has ended, has ended. It returns an error if the snapshot is damaged, or Raft does not need it.
func (n *Node) receiveSnapshot(m *pb.Message, in *journal.Incoming) error {
	if err := in.Check(positionOf(m.Snapshot)); err != nil {
		return err
	}
	n.storeInUse.Lock()
	defer n.storeInUse.Unlock()
	err := errors.New("the node stops")
	n.call(func() {
		n.incoming = in
		n.step(m)
		n.process()
		if err = n.Err(); n.incoming != nil {
			n.incoming = nil
			err = errors.Join(err, errors.New("it is older than what this node has"))
		}
	})
	return err
}

func positionOf(s *pb.Snapshot) journal.Position {
	return journal.Position{Index: s.GetMetadata().GetIndex(), Term: s.GetMetadata().GetTerm()}
}

// install replaces store and log by the received snapshot.
func (n *Node) install(rd *raft.Ready) error {
	in := n.incoming
	n.incoming = nil
	if in == nil {
		return errors.New("BUG: Raft has a snapshot that was not received")
	}
	n.applying.Lock()
	defer n.applying.Unlock()
	if err := n.storage.install(rd.Snapshot, rd.HardState, in); err != nil {
		return err
	}
	_, stored := n.storage.replica.Members()
	m, err := parseMembers(stored)
	if err != nil {
		return err
	}
	n.updateState(func() { n.commit, n.members = rd.Snapshot.GetMetadata().GetIndex(), m })
	n.links.update(m)
	n.observed.snapshotsReceived.Add(1)
	n.log.Info("a snapshot of the leader is taken", "entry", rd.Snapshot.GetMetadata().GetIndex())
	return nil
}

// pin keeps the entries after a snapshot that is being sent: its receiver needs them next.
type pin struct {
	mu      sync.Mutex
	index   uint64    // 0: nothing is kept
	written int64     // storage.written at that time
	until   time.Time // when the entries are kept no longer; zero: the snapshot is being sent
}

const (
	// maxPinned is the most bytes of entries that are kept for the receiver of a snapshot: they are in memory.
	maxPinned = 512 << 20
	// pinAfter is how long the entries are kept after the snapshot is sent.
	pinAfter = 30 * time.Second
)

// set keeps the entries after index until release.
func (p *pin) set(index uint64, written int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.index, p.written, p.until = index, written, time.Time{}
}

// release ends the pin pinAfter from now.
func (p *pin) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(pinAfter)
}

// keep returns the entry before which the log may be compacted: before, or an earlier one that is pinned.
func (p *pin) keep(before uint64, written int64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.index == 0 || written-p.written > maxPinned || !p.until.IsZero() && time.Now().After(p.until) {
		p.index = 0
		return before
	}
	return min(before, p.index)
}

// fileHead precedes the frames of a file of a snapshot. The head after the last file has no name.
type fileHead struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// sendSnapshot implements links. It sends the message, the files and an end. The other node answers with a hello.
func (t *transport) sendSnapshot(m *pb.Message, s *journal.Snapshot) error {
	p, _ := t.node.member(t.node.id(m.GetTo())) // a node that is gone has no address
	c, err := t.dial(t.ctx, p, t.hello(kindSnapshot, p.ID))
	if err != nil {
		return err
	}
	if !t.trackConn(c) {
		return net.ErrClosed
	}
	defer t.closeTracked(c)
	frame := func(payload []byte) error {
		_ = c.SetDeadline(time.Now().Add(fileTimeout))
		_, err := c.Write(appendFrame(nil, payload))
		return err
	}
	b, err := proto.Marshal(m)
	if err == nil {
		err = frame(b)
	}
	for _, name := range append(slices.Clone(s.Files), "") {
		if err == nil {
			err = sendFile(s, name, frame)
		}
	}
	if err != nil {
		return err
	}
	answer, err := readHello(c)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return err
}

// sendFile sends the head of a file and its content in frames. The name "" is the end of the files.
func sendFile(s *journal.Snapshot, name string, frame func([]byte) error) error {
	head, buffer := fileHead{Name: name}, make([]byte, maxFileFrame)
	var file io.ReadCloser
	if name != "" {
		var err error
		if file, head.Size, err = s.Open(name); err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // it was only read
	}
	b, err := json.Marshal(&head)
	if err == nil {
		err = frame(b)
	}
	for left := head.Size; left > 0 && err == nil; {
		part := buffer[:min(left, maxFileFrame)]
		if _, err = io.ReadFull(file, part); err == nil {
			left -= int64(len(part))
			err = frame(part)
		}
	}
	return err
}

// receiveSnapshot receives a snapshot. It refuses a truncated or changed one before the node changes.
func (t *transport) receiveSnapshot(c net.Conn, from string) error {
	r := patientReader{c}
	m, err := t.readMessage(r, from)
	if err == nil && m.GetType() != pb.MsgSnap {
		err = errors.New("a snapshot that does not begin with its message")
	}
	if err != nil {
		return err
	}
	t.node.receivingSnapshot.Lock()
	defer t.node.receivingSnapshot.Unlock()
	in, err := t.node.storage.replica.Receive()
	if err != nil {
		return err
	}
	for err == nil {
		var b []byte
		var head fileHead
		if b, err = readFrame(r, maxHello); err == nil {
			err = json.Unmarshal(b, &head)
		}
		if err != nil || head.Name == "" {
			break
		}
		f := fileReader{from: r}
		if err = in.Write(head.Name, head.Size, &f); err == nil && len(f.rest) > 0 {
			err = fmt.Errorf("%s is longer than its head says", head.Name)
		}
	}
	if err == nil {
		err = t.node.receiveSnapshot(m, in)
	}
	answer := t.hello(kindSnapshot, from)
	if err != nil {
		err = errors.Join(err, in.Close())
		answer.Error = err.Error()
		t.o.Log.Warn("a snapshot is refused", "from", from, "error", err)
	}
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	return errors.Join(err, writeHello(c, &answer))
}

// patientReader reads from a connection that must send something within each fileTimeout.
type patientReader struct{ c net.Conn }

func (r patientReader) Read(b []byte) (int, error) {
	_ = r.c.SetReadDeadline(time.Now().Add(fileTimeout))
	return r.c.Read(b)
}

// fileReader reads the payloads of the frames of a file.
type fileReader struct {
	from io.Reader
	rest []byte // of the last frame
}

func (r *fileReader) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		var err error
		if r.rest, err = readFrame(r.from, maxFileFrame); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
