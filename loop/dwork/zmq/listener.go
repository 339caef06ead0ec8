package zmq

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/budget"
)

const (
	// maxTurn is the most messages that a connection may post while no other waits: it makes batches cheap, and lasts a
	// few milliseconds.
	maxTurn = 2048
	// minTurn is the least, with any number of waiting connections.
	minTurn = 8
	// acceptPause is how long accepting rests when the system is out of descriptors or memory: connections wait in the
	// backlog meanwhile.
	acceptPause = 50 * time.Millisecond
	// closeGrace is how long Close waits for answers, and lets connections write the replies that they have.
	closeGrace = time.Second
)

// Listener serves the connections of one address. One goroutine at a time may call Take, and Reply, Postpone and
// Overflowed of its requests. All other methods, and receiving from Ready, are safe from any goroutine.
type Listener struct {
	ln        net.Listener
	o         Options
	ready     chan struct{}
	quit      chan struct{}
	graceOver chan struct{} // closed when Close no longer waits for answers
	done      sync.WaitGroup
	buffered  memoryBudget
	counters  counters
	waiting   atomic.Int64  // connections that wait for replies
	unsent    budget.Budget // of replies that are being written

	mu     sync.Mutex
	posted []*conn // what Take takes next, oldest first
	conns  map[*conn]struct{}
	closed bool
}

// Listen serves what ln accepts, until Close. ln is closed then too.
func Listen(ln net.Listener, o Options) *Listener {
	l := &Listener{
		ln:        ln,
		o:         o.withDefaults(),
		ready:     make(chan struct{}, 1),
		quit:      make(chan struct{}),
		graceOver: make(chan struct{}),
		conns:     make(map[*conn]struct{}),
	}
	l.buffered.limit = int64(l.o.MaxBuffered)
	l.unsent.Max, l.unsent.Free = l.o.MaxUnsent, fewUnsent
	l.done.Go(l.accept)
	return l
}

// Ready returns a channel that receives a value when there are requests to take.
func (l *Listener) Ready() <-chan struct{} { return l.ready }

// Take appends all requests to batch that connections have posted since the last call, each connection's in their order
// and connections in the order of their posts. Every request must be answered, sooner or later: its connection reads no
// further before.
func (l *Listener) Take(batch []Request) []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range l.posted {
		batch = append(batch, c.requests...)
		l.posted[i] = nil
	}
	l.posted = l.posted[:0]
	return batch
}

// post hands a connection's requests to the next Take.
func (l *Listener) post(c *conn) {
	l.mu.Lock()
	l.posted = append(l.posted, c)
	l.mu.Unlock()
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// turnSize returns how many messages a connection may post now.
func (l *Listener) turnSize() int { return max(minTurn, maxTurn/(1+int(l.waiting.Load()))) }

// fewUnsent is the size in bytes up to which unread replies never end a connection.
const fewUnsent = 16 << 10

// accept accepts connections until the listener is closed. It pauses after an error.
func (l *Listener) accept() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		nc, err := l.ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			l.o.OnFault(fmt.Errorf("zmq: cannot accept: %w", err))
			l.counters.acceptErrors.Add(1)
			pause.Reset(acceptPause)
			select {
			case <-pause.C:
			case <-l.quit:
				return
			}
		default:
			l.admit(nc)
		}
	}
}

// admit serves a connection on a goroutine of its own, or closes it if there are too many.
func (l *Listener) admit(nc net.Conn) {
	c := newConn(l, nc)
	l.mu.Lock()
	full := len(l.conns) >= l.o.MaxConnections
	if !full && !l.closed {
		l.conns[c] = struct{}{}
		l.counters.accepted.Add(1)
		l.done.Go(c.run)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	if full {
		l.o.OnFault(fmt.Errorf("zmq: turned a connection away: all %d (max-connections) are open", l.o.MaxConnections))
		l.counters.refused.Add(1)
	}
	_ = nc.Close() // nothing was written
}

func (l *Listener) remove(c *conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

// Close stops accepting and reading. It waits for up to a second for the replies to all posted requests, sends them,
// closes every connection and returns when all goroutines have ended. A later reply has no effect.
func (l *Listener) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.mu.Unlock()
	if again {
		l.done.Wait()
		return nil
	}
	close(l.quit)
	err := l.ln.Close()
	l.each(func(nc net.Conn) { _ = nc.SetReadDeadline(time.Unix(1, 0)) }) // fails only when it is closed
	hurry := time.AfterFunc(closeGrace, func() {
		close(l.graceOver)
		l.each(func(nc net.Conn) { _ = nc.Close() })
	})
	l.done.Wait()
	hurry.Stop()
	return err
}

func (l *Listener) each(do func(net.Conn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		do(c.Conn)
	}
}
