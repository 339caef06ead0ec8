package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A new connection waits when the server has as many as it may. It then replaces the connection that has exceeded its
// grace for the longest. Silent connections go first, idle ones next, and those with a request in progress last. A new
// connection never waits longer than requestGrace, even if all others keep sending requests.
const (
	// newGrace is the time for a new connection to send its first byte.
	newGrace = 250 * time.Millisecond
	// requestGrace is the time for a request, and the time from an answer to the next request. Pages take milliseconds.
	// A profile takes longer, but is rarely recorded while very many peers connect.
	requestGrace = time.Second
)

// graces are the times for which a connection in each state cannot be replaced.
var graces = map[http.ConnState]time.Duration{http.StateNew: newGrace, http.StateIdle: requestGrace, http.StateActive: requestGrace}

// sendBuffer bounds the unread bytes that the kernel buffers for a connection, in bytes. The kernel would buffer
// megabytes, and the server would not notice for long that a slow peer still reads.
const sendBuffer = 128 << 10

// connections limits how many connections a server has.
type connections struct {
	limit    int
	admit    func() (leave func(), err error) // see Config.Admit
	mu       sync.Mutex
	open     []connection
	cancel   map[net.Conn]context.CancelFunc // ends the requests of a connection
	admitted map[net.Conn]func()             // those that are not among open, with what ends their admission
	freed    chan struct{}                   // holds a token after a connection has left
}

// connection is a connection that is not replaced before a time.
type connection struct {
	conn  net.Conn
	state http.ConnState
	until time.Time
}

// newConnections returns the limit of a server. The context of a connection's requests ends with the connection:
// net/http does not notice that end while a body is unread.
func newConnections(most int, admit func() (leave func(), err error)) *connections {
	return &connections{
		limit: most, admit: admit, cancel: make(map[net.Conn]context.CancelFunc), admitted: make(map[net.Conn]func()),
		freed: make(chan struct{}, 1),
	}
}

// admission is the key of the function in a request's context that admits its connection.
type admission struct{}

// Admit takes the connection of a request out of the few that Config.MaxConnections allows, until it is closed: it is
// counted by Config.Admit, and no new connection replaces it. Admit returns the error of that when it allows none.
func Admit(r *http.Request) error {
	if admit, ok := r.Context().Value(admission{}).(func() error); ok {
		return admit()
	}
	return nil
}

// errReplaced is the error of a request whose connection had to make room before it was admitted. Few peers see it.
var errReplaced = errors.New("the connection made room for another one: ask again")

// admitOne admits a connection, see Admit.
func (l *connections) admitOne(c net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, before := l.admitted[c]; before {
		return nil
	}
	i := slices.IndexFunc(l.open, func(o connection) bool { return o.conn == c })
	if i < 0 {
		return errReplaced
	}
	leave, err := l.admit()
	if err != nil {
		return err
	}
	l.admitted[c] = leave
	l.remove(i)
	return nil
}

// begin implements http.Server.ConnContext. The server calls it before the first change of a connection.
func (l *connections) begin(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = c.SetWriteBuffer(sendBuffer) // fails only when the connection is closed
	}
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel[c] = cancel
	if l.admit == nil {
		return ctx
	}
	return context.WithValue(ctx, admission{}, func() error { return l.admitOne(c) })
}

// end cancels the requests of a connection. It may be called again.
func (l *connections) end(c net.Conn) {
	if cancel, ok := l.cancel[c]; ok {
		cancel()
		delete(l.cancel, c)
	}
}

// change implements http.Server.ConnState.
func (l *connections) change(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leave, admitted := l.admitted[c]
	if state == http.StateClosed {
		l.end(c)
		if admitted {
			delete(l.admitted, c)
			leave()
		}
	}
	if admitted {
		return
	}
	i := slices.IndexFunc(l.open, func(o connection) bool { return o.conn == c })
	switch {
	case i >= 0:
		l.remove(i)
	case state == http.StateNew:
		l.makeRoom()
	default:
		return // it has been replaced
	}
	if grace, open := graces[state]; open {
		l.open = append(l.open, connection{c, state, time.Now().Add(grace)})
	}
}

// makeRoom waits until there is room for a connection, and closes a victim if none ends in time. It releases mu while
// it waits. The server accepts no further connections meanwhile.
func (l *connections) makeRoom() {
	end := time.Now().Add(requestGrace)
	for len(l.open) >= l.limit {
		i := l.victim()
		if wait := min(time.Until(l.open[i].until), time.Until(end)); wait > 0 {
			l.mu.Unlock()
			select {
			case <-l.freed:
			case <-time.After(wait):
			}
			l.mu.Lock()
			continue
		}
		_ = l.open[i].conn.Close() // an error would change nothing
		l.end(l.open[i].conn)
		l.remove(i)
	}
}

// victim returns the index of the connection to replace next.
func (l *connections) victim() int {
	now, first := time.Now(), 0
	for i := range l.open {
		if l.open[i].until.Before(l.open[first].until) {
			first = i
		}
	}
	for _, state := range []http.ConnState{http.StateNew, http.StateIdle} {
		if i := slices.IndexFunc(l.open, func(o connection) bool { return o.state == state && !o.until.After(now) }); i >= 0 {
			return i
		}
	}
	return first
}

func (l *connections) remove(i int) {
	l.open = slices.Delete(l.open, i, i+1)
	select {
	case l.freed <- struct{}{}:
	default:
	}
}
