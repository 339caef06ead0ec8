package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"treadle/loop/journal"
)

// fileHead precedes the frames of a file of a snapshot. The last head has no name.
type fileHead struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// sendSnapshot implements links: the message, then each file, then an end; the other node answers with a hello.
func (t *transport) sendSnapshot(m *pb.Message, s *journal.Snapshot) error {
	p, _ := t.node.member(t.node.id(m.GetTo())) // a node that is gone has no address
	c, err := t.dial(t.ctx, p, t.hello(kindSnapshot, p.ID))
	if err != nil {
		return err
	}
	if !t.hold(c) {
		return net.ErrClosed
	}
	defer t.release(c)
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

// sendFile sends a file in frames behind its head. The name "" is the end.
func sendFile(s *journal.Snapshot, name string, frame func([]byte) error) error {
	head, buffer := fileHead{Name: name}, make([]byte, maxFile)
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
		part := buffer[:min(left, maxFile)]
		if _, err = io.ReadFull(file, part); err == nil {
			left -= int64(len(part))
			err = frame(part)
		}
	}
	return err
}

// receiveSnapshot takes a snapshot in. What is cut or altered is refused before anything changes.
func (t *transport) receiveSnapshot(c net.Conn, from string) error {
	r := patientReader{c}
	m, err := t.readMessage(r, from)
	if err == nil && m.GetType() != pb.MsgSnap {
		err = errors.New("a snapshot that does not begin with its message")
	}
	if err != nil {
		return err
	}
	t.node.taking.Lock()
	defer t.node.taking.Unlock()
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

// patientReader reads from a connection that must send something at least every fileTimeout.
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
		if r.rest, err = readFrame(r.from, maxFile); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
