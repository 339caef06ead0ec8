package cluster

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A frame is a length and a CRC-32C in four bytes each, little-endian, and the payload.
const frameHead = 8

// maxHello is the size of the largest first frame of a connection: the other end is not known to be a node yet.
const maxHello = 4 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errFrame = errors.New("a frame is damaged")

// appendFrame appends a frame to dst.
func appendFrame(dst, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(payload, castagnoli))
	return append(dst, payload...)
}

// readFrame reads a frame of at most limit bytes. It allocates memory as the bytes arrive, not by the length in the
// head. The caller owns the payload.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := int64(binary.LittleEndian.Uint32(head[:]))
	if size > int64(limit) {
		return nil, fmt.Errorf("a frame of %d bytes, more than %d", size, limit)
	}
	var b bytes.Buffer
	b.Grow(int(min(size, maxAppend)))
	if n, err := io.CopyN(&b, r, size); err != nil {
		return nil, fmt.Errorf("a frame ends after %d of %d bytes: %w", n, size, io.ErrUnexpectedEOF)
	}
	if crc32.Checksum(b.Bytes(), castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errFrame
	}
	return b.Bytes(), nil
}

// protocolVersion changes when nodes of different versions would misunderstand each other.
const protocolVersion = 3

// The kinds of connections.
const (
	kindRaft     = "raft"     // frames are messages of Raft
	kindSnapshot = "snapshot" // a message, then the files of a store
	kindForward  = "pass"     // a client's bytes
	kindStatus   = "status"   // one frame of Status
	kindChange   = "change"   // a frame of Change and one of its answer
	kindJoin     = "join"     // the answer's hello has the members
)

// hello is the first frame of both ends of a connection.
type hello struct {
	Version     int      `json:"version"`
	Kind        string   `json:"kind,omitempty"`
	Cluster     string   `json:"cluster"`
	Origin      string   `json:"origin"` // ids of the nodes with which the cluster began; empty: the node joins
	From        string   `json:"from"`
	Incarnation string   `json:"incarnation"` // of the data directory of From
	To          string   `json:"to"`
	Setting     string   `json:"setting,omitempty"` // of a forwarded connection: the setting of the port,
	Ordinal     int      `json:"ordinal,omitempty"` // the index of the address in that setting,
	Client      Client   `json:"client,omitzero"`   // and the client of From
	Error       string   `json:"error,omitempty"`   // of the answer: why the connection is refused
	Removed     bool     `json:"removed,omitempty"` // of the answer: the node that asked was removed from the cluster
	Nodes       []member `json:"nodes,omitempty"`   // of the answer to a node that joins
}

func writeHello(w io.Writer, h *hello) error {
	b, err := json.Marshal(h)
	if err == nil {
		_, err = w.Write(appendFrame(nil, b))
	}
	return err
}

func readHello(r io.Reader) (h hello, err error) {
	b, err := readFrame(r, maxHello)
	if err != nil {
		return h, fmt.Errorf("it does not speak as a node of a cluster: %w", err)
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return h, fmt.Errorf("it does not speak as a node of a cluster: %w", err)
	}
	return h, nil
}
