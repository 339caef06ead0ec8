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

// longCall is a whole call of nearly the largest length.
func longCall() string {
	call := string(codec.AppendCall(nil, "hello", strings.Repeat("x", codec.MaxRequest-1000)))
	return head(len(call)) + call
}

// unheardRig has room for four of the largest calls.
func unheardRig(t *testing.T) *socketRig { return serve(t, Options{}, 4<<20) }

// unheardCalls makes n peers that send a large call, without its last bytes, and waits until each of
// them is counted.
func (r *socketRig) unheardCalls(n, without int) (peers []net.Conn) {
	r.t.Helper()
	call := longCall()
	before, _, _ := r.unheard.State()
	for i := range n {
		c := r.dial("kts46")
		peers = append(peers, c)
		if _, err := io.WriteString(c, call[:len(call)-without]); err != nil {
			r.t.Fatal(err)
		}
		r.until("a call to be counted", func() bool {
			begun, _, _ := r.unheard.State()
			return begun == before+i+1
		})
		if _, _, bytes := r.unheard.State(); bytes > r.server.MostUnsent() {
			r.t.Errorf("%d bytes are counted", bytes)
		}
	}
	return peers
}

// answered counts the peers that get an answer; the others are hung up on.
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

// TestKtsUnheard: large calls whose ends do not come take what all of them may; those who have
// sent nothing for the longest are hung up on, and whole calls are answered.
func TestKtsUnheard(t *testing.T) {
	r := unheardRig(t)
	peers := r.unheardCalls(8, 3)
	ends := make(chan int, len(peers))
	for _, c := range peers { // which of them are given up depends on what the server has read last
		go func() { ends <- answered(t, []net.Conn{c}) }()
	}
	if n := <-ends + <-ends + <-ends + <-ends; n != 0 {
		t.Errorf("%d calls are answered of which the end is missing", n)
	}
	if n := answered(t, r.unheardCalls(1, 0)); n != 1 {
		t.Error("a whole call is not answered")
	}
	if n := <-ends; n != 0 {
		t.Error("none had to make room")
	}
	call := longCall()
	for _, c := range peers {
		_, _ = io.WriteString(c, call[len(call)-3:]) // five have been hung up on
	}
	if n := <-ends + <-ends + <-ends; n != 3 {
		t.Errorf("%d of the 3 calls that are left are answered", n)
	}
	if _, n, bytes := r.unheard.State(); n != 0 || bytes != 0 {
		t.Errorf("%d calls of %d bytes are counted at the end", n, bytes)
	}
}

// TestKtsHearing: one large call at a time is carried out; small ones do not wait for it, and
// those that wait for their turn count.
func TestKtsHearing(t *testing.T) {
	r := unheardRig(t)
	r.hearing <- struct{}{} // a large call is being carried out
	peers := r.unheardCalls(6, 0)
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
	if n := <-ends + <-ends; n != 0 { // nobody has to come to his turn to be given up
		t.Error("a large call is answered while another is carried out")
	}
	<-r.hearing
	if n := <-ends + <-ends + <-ends + <-ends; n != 4 {
		t.Errorf("%d of 6 large calls are answered, want the four for which there is room", n)
	}
}

// TestKtsChunked: a small call in chunks is a small one: nobody has said how long it is.
func TestKtsChunked(t *testing.T) {
	r := unheardRig(t)
	r.hearing <- struct{}{} // a large call is being carried out
	hello := string(codec.AppendCall(nil, "hello"))
	c := r.dial("kts46")
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(hello), hello)
	if n := answered(t, []net.Conn{c}); n != 1 {
		t.Error("it is not answered")
	}
	<-r.hearing
}

// TestKtsRefusalUnread: a peer that does not read refusals of what has long answers keeps nobody
// from theirs.
func TestKtsRefusalUnread(t *testing.T) {
	r := serve(t, Options{}, 0)
	r.createProjects(manyEntries, "%d")
	refused := string(codec.AppendCall(nil, "getProjectStatus", "nope"))
	refused = strings.Repeat(head(len(refused))+refused, 100)
	deaf := r.dial("kts46")
	var sent atomic.Int64
	written := make(chan struct{})
	go func() {
		defer close(written)
		for _, err := io.WriteString(deaf, refused); err == nil; _, err = io.WriteString(deaf, refused) {
			sent.Add(1)
		}
	}()
	c, call := r.dial("kts46"), string(codec.AppendCall(nil, "getServerStatus"))
	for before, same := int64(0), 0; same < 50; same++ { // then the server does not get on with the other
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
	deaf.Close()
	<-written
}
