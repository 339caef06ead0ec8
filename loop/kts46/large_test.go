package kts46

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	codec "treadle/codec/kts46"
)

// longCall is a complete call of nearly the largest size.
func longCall() string {
	call := string(codec.AppendCall(nil, "hello", strings.Repeat("x", codec.MaxRequest-1000)))
	return head(len(call)) + call
}

// incomingServer has room for four of the largest calls.
func incomingServer(t *testing.T) *socketHub { return serve(t, Options{}, 4<<20) }

// sendLargeCalls connects n peers that send a large call without its last bytes. It waits until each is counted.
func (r *socketHub) sendLargeCalls(n, without int) (peers []net.Conn) {
	r.t.Helper()
	call := longCall()
	before, _, _ := r.incoming.State()
	for i := range n {
		c := r.dial("kts46")
		peers = append(peers, c)
		if _, err := io.WriteString(c, call[:len(call)-without]); err != nil {
			r.t.Fatal(err)
		}
		r.until("a call to be counted", func() bool {
			begun, _, _ := r.incoming.State()
			return begun == before+i+1
		})
		if _, _, bytes := r.incoming.State(); bytes > r.server.unsent {
			r.t.Errorf("%d bytes are counted", bytes)
		}
	}
	return peers
}

// answered counts the peers that get an answer. The server must close the connections of the others.
func answered(t *testing.T, peers []net.Conn) (n int) {
	t.Helper()
	for _, c := range peers {
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("neither answered nor hung up on")
		}
		if err != nil {
			continue
		}
		if n++; a.StatusCode != 200 {
			t.Errorf("status %d", a.StatusCode)
		}
	}
	return n
}

// TestKts46UnfinishedCalls: large calls that never end use a bounded part of memory. The server closes those that have
// sent nothing for the longest, and answers complete calls.
func TestKts46UnfinishedCalls(t *testing.T) {
	r := incomingServer(t)
	peers := r.sendLargeCalls(8, 3)
	ends := make(chan int, len(peers))
	for _, c := range peers { // the order of the closed ones depends on the server's reads
		go func() { ends <- answered(t, []net.Conn{c}) }()
	}
	if n := <-ends + <-ends + <-ends + <-ends; n != 0 {
		t.Errorf("%d calls are answered of which the end is missing", n)
	}
	if n := answered(t, r.sendLargeCalls(1, 0)); n != 1 {
		t.Error("a whole call is not answered")
	}
	if n := <-ends; n != 0 {
		t.Error("none had to make room")
	}
	call := longCall()
	for _, c := range peers {
		_, _ = io.WriteString(c, call[len(call)-3:]) // five are closed already
	}
	if n := <-ends + <-ends + <-ends; n != 3 {
		t.Errorf("%d of the 3 calls that are left are answered", n)
	}
	if _, n, bytes := r.incoming.State(); n != 0 || bytes != 0 {
		t.Errorf("%d calls of %d bytes are counted at the end", n, bytes)
	}
}

// TestKts46OneLargeCallAtATime: one large call is carried out at a time. Small calls do not wait for it, and waiting
// large calls count.
func TestKts46OneLargeCallAtATime(t *testing.T) {
	r := incomingServer(t)
	r.largeTurns <- struct{}{} // a large call is being carried out
	peers := r.sendLargeCalls(6, 0)
	small := r.dial("kts46")
	hello := string(codec.AppendCall(nil, "hello"))
	if _, err := io.WriteString(small, head(len(hello))+hello); err != nil {
		t.Fatal(err)
	}
	if n := answered(t, []net.Conn{small}); n != 1 {
		t.Error("a small call is not answered")
	}
	ends := make(chan int, len(peers))
	for _, c := range peers {
		go func() { ends <- answered(t, []net.Conn{c}) }()
	}
	if n := <-ends + <-ends; n != 0 { // a call can be evicted before its turn
		t.Error("a large call is answered while another is carried out")
	}
	<-r.largeTurns
	if n := <-ends + <-ends + <-ends + <-ends; n != 4 {
		t.Errorf("%d of 6 large calls are answered, want the four for which there is room", n)
	}
}

// TestKts46Chunked: a small call without an announced length does not wait for large ones.
func TestKts46Chunked(t *testing.T) {
	r := incomingServer(t)
	r.largeTurns <- struct{}{} // a large call is being carried out
	hello := string(codec.AppendCall(nil, "hello"))
	c := r.dial("kts46")
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(hello), hello)
	if n := answered(t, []net.Conn{c}); n != 1 {
		t.Error("it is not answered")
	}
	<-r.largeTurns
}

// TestKts46RefusalUnread: a peer that does not read the errors of long methods does not delay the long answers of
// others.
func TestKts46RefusalUnread(t *testing.T) {
	r := serve(t, Options{}, 0)
	r.createProjects(manyEntries, "%d")
	refused := string(codec.AppendCall(nil, "getProjectStatus", "nope"))
	refused = strings.Repeat(head(len(refused))+refused, 100)
	stuck := r.dial("kts46")
	var sent atomic.Int64
	written := make(chan struct{})
	go func() {
		defer close(written)
		for _, err := io.WriteString(stuck, refused); err == nil; _, err = io.WriteString(stuck, refused) {
			sent.Add(1)
		}
	}()
	c, call := r.dial("kts46"), string(codec.AppendCall(nil, "getServerStatus"))
	for before, same := int64(0), 0; same < 50; same++ { // the server is stuck on the other connection
		if _, err := io.WriteString(c, head(len(call))+call); err != nil {
			t.Fatal(err)
		}
		if status, _ := answer(t, c); status != 200 {
			t.Fatalf("status %d", status)
		}
		if n := sent.Load(); n != before {
			before, same = n, 0
		}
	}
	stuck.Close()
	<-written
}
