package main

import (
	"bytes"
	enc "encoding/binary"
	"encoding/json"
	"io"
	"net"
	"sync"
	"testing"
)

// wires are the connections between the nodes of a cluster, which a test can cut: each node is reached through a port
// that passes bytes on. A cut wire loses no byte, as TCP loses none: they come when the wire is mended, unless a node
// has given the connection up.
type wires struct {
	t     *testing.T
	alive sync.WaitGroup

	mu        sync.Mutex
	mended    *sync.Cond
	closed    bool
	cut       map[[2]string]bool // from one node to another
	listeners []net.Listener
	conns     map[net.Conn]bool
}

func newWires(t *testing.T) *wires {
	w := &wires{t: t, cut: make(map[[2]string]bool), conns: make(map[net.Conn]bool)}
	w.mended = sync.NewCond(&w.mu)
	t.Cleanup(func() {
		w.mu.Lock()
		w.closed = true
		for _, l := range w.listeners {
			l.Close()
		}
		for c := range w.conns {
			c.Close()
		}
		w.mended.Broadcast()
		w.mu.Unlock()
		w.alive.Wait()
	})
	return w
}

// to returns the address of a new port that passes connections on to a node at its own address.
func (w *wires) to(id, address string) string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.listeners = append(w.listeners, l)
	w.alive.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.alive.Go(func() { w.pass(c, id, address) })
		}
	})
	return l.Addr().String()
}

// set cuts or mends the wires from some nodes to others.
func (w *wires) set(cut bool, from, to []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range from {
		for _, t := range to {
			w.cut[[2]string{f, t}] = cut
		}
	}
	w.mended.Broadcast()
}

// hold keeps a connection to be closed with the others.
func (w *wires) hold(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.conns[c] = true
		return true
	}
	c.Close()
	return false
}

func (w *wires) release(c net.Conn) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
	c.Close()
}

// await waits while a wire is cut. It returns false when the test is over.
func (w *wires) await(from, to string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.cut[[2]string{from, to}] && !w.closed {
		w.mended.Wait()
	}
	return !w.closed
}

// pass passes a connection on to a node. The first frame of a connection says which node has opened it; without one no
// wire of it is cut.
func (w *wires) pass(c net.Conn, to, address string) {
	if !w.hold(c) {
		return
	}
	defer w.release(c)
	head := make([]byte, 8)
	n, err := io.ReadFull(c, head)
	var hello []byte
	var from string
	if size := enc.LittleEndian.Uint32(head); err == nil && size <= 4<<10 {
		hello = make([]byte, size)
		k, err := io.ReadFull(c, hello)
		var h struct{ From string }
		if hello = hello[:k]; err == nil && json.Unmarshal(hello, &h) == nil {
			from = h.From
		}
	}
	if !w.await(from, to) {
		return
	}
	node, err := net.Dial("tcp", address)
	if err != nil || !w.hold(node) {
		return
	}
	defer w.release(node)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.copy(c, node, to, from)
	}()
	w.copy(node, io.MultiReader(bytes.NewReader(head[:n]), bytes.NewReader(hello), c), from, to)
	c.Close()
	node.Close()
	<-ended
}

// copy copies the bytes of one direction, and ends that at the other end.
func (w *wires) copy(to net.Conn, from io.Reader, a, b string) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if !w.await(a, b) {
			return
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			to.(*net.TCPConn).CloseWrite()
			return
		}
	}
}
