package web

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// When all places are taken, a new connection waits for one: for that of whoever has overstayed
// what he has been given the longest. Who comes has silence, in which everybody says what he has
// connected for, who was answered has slowRequest to ask again, and a request as long: pages take
// milliseconds, and who wants a profile is rarely one of very many. Of those whose time is over the
// silent go first and the asking last. A new connection never waits longer than slowRequest,
// whatever the others go on asking.
const (
	silence     = 250 * time.Millisecond
	slowRequest = time.Second
)

// graces are for how long connections keep their places at least.
var graces = map[http.ConnState]time.Duration{http.StateNew: silence, http.StateIdle: slowRequest, http.StateActive: slowRequest}

// sendBuffer bounds what the system keeps of an answer that is not read. It would let that grow to
// megabytes, and then tell nobody for long that somebody who reads slowly still does.
const sendBuffer = 128 << 10

// places are the connections of a server.
type places struct {
	most  int
	mu    sync.Mutex
	taken []place
	ends  map[net.Conn]context.CancelFunc // of what is done for each
	left  chan struct{}                   // has one when a place was left
}

// place is a connection, that is not hung up on before a time.
type place struct {
	conn  net.Conn
	state http.ConnState
	until time.Time
}

// newPlaces returns so many places. When all are taken, a new connection takes the place of another within a second.
// The context of a connection's requests ends with it: net/http does not see its end while there is a body to read.
func newPlaces(most int) *places {
	return &places{most: most, ends: make(map[net.Conn]context.CancelFunc), left: make(chan struct{}, 1)}
}

// begin is called before a connection's first change.
func (p *places) begin(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*net.TCPConn); ok {
		_ = c.SetWriteBuffer(sendBuffer) // fails only when it is closed
	}
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends[c] = cancel
	return ctx
}

// end may be called again.
func (p *places) end(c net.Conn) {
	if cancel, ok := p.ends[c]; ok {
		cancel()
		delete(p.ends, c)
	}
}

func (p *places) change(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == http.StateClosed {
		p.end(c)
	}
	i := slices.IndexFunc(p.taken, func(t place) bool { return t.conn == c })
	switch {
	case i >= 0:
		p.leave(i)
	case state == http.StateNew:
		p.makeRoom()
	default:
		return // it has been hung up on
	}
	if grace, open := graces[state]; open {
		p.taken = append(p.taken, place{c, state, time.Now().Add(grace)})
	}
}

// makeRoom returns when there is a place. The next connections are not accepted meanwhile.
func (p *places) makeRoom() {
	end := time.Now().Add(slowRequest)
	for len(p.taken) >= p.most {
		i := p.first()
		if wait := min(time.Until(p.taken[i].until), time.Until(end)); wait > 0 {
			p.mu.Unlock()
			select {
			case <-p.left:
			case <-time.After(wait):
			}
			p.mu.Lock()
			continue
		}
		_ = p.taken[i].conn.Close() // what it is told is not read any more
		p.end(p.taken[i].conn)
		p.leave(i)
	}
}

// first is whose place is given away first.
func (p *places) first() int {
	now, first := time.Now(), 0
	for i := range p.taken {
		if p.taken[i].until.Before(p.taken[first].until) {
			first = i
		}
	}
	for _, state := range []http.ConnState{http.StateNew, http.StateIdle} {
		if i := slices.IndexFunc(p.taken, func(t place) bool { return t.state == state && !t.until.After(now) }); i >= 0 {
			return i
		}
	}
	return first
}

func (p *places) leave(i int) {
	p.taken = slices.Delete(p.taken, i, i+1)
	select {
	case p.left <- struct{}{}:
	default:
	}
}
