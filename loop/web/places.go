package web

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// When all places are taken, a new connection waits for one. It has it at the latest when one that
// has it has said nothing for silence, in which everybody says what they have connected for, or
// if all of them wait for an answer, has done so for slowRequest: pages take milliseconds, and
// who wants a profile is rarely one of very many.
const (
	silence     = 250 * time.Millisecond
	slowRequest = time.Second
)

// places are the connections of a server, first the one that has been as it is for the longest.
type places struct {
	most  int
	mu    sync.Mutex
	taken []place
	left  chan struct{} // has one when a place was left
}

// place is a connection that waits for a request, or has one under way.
type place struct {
	conn   net.Conn
	asking bool
	until  time.Time // it is not hung up on before
}

// Places is for the ConnState of a server that is to have so many connections at most. When they
// are all there, a new one takes the place of the one that has waited longest for the end of a
// request's head, or if none does, of the one whose request is under way for longest.
func Places(most int) func(net.Conn, http.ConnState) {
	return (&places{most: most, left: make(chan struct{}, 1)}).change
}

func (p *places) change(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.taken, func(t place) bool { return t.conn == c })
	switch {
	case i >= 0:
		p.leave(i)
	case state == http.StateNew:
		p.makeRoom()
	default:
		return // it has been hung up on
	}
	switch state {
	case http.StateActive:
		p.taken = append(p.taken, place{c, true, time.Now().Add(slowRequest)})
	case http.StateNew, http.StateIdle:
		p.taken = append(p.taken, place{c, false, time.Now().Add(silence)})
	}
}

// makeRoom returns when there is a place. The next connections are not accepted meanwhile.
func (p *places) makeRoom() {
	for len(p.taken) >= p.most {
		i := max(0, slices.IndexFunc(p.taken, func(t place) bool { return !t.asking }))
		if wait := time.Until(p.taken[i].until); wait > 0 {
			p.mu.Unlock()
			select {
			case <-p.left:
			case <-time.After(wait):
			}
			p.mu.Lock()
			continue
		}
		_ = p.taken[i].conn.Close() // what it is told is not read any more
		p.leave(i)
	}
}

func (p *places) leave(i int) {
	p.taken = slices.Delete(p.taken, i, i+1)
	select {
	case p.left <- struct{}{}:
	default:
	}
}
