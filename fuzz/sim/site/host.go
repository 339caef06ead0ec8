//go:build invariants

package site

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"treadle/loop"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/node"
	"treadle/loop/disbatch/store"
)

// host is a machine of the site.
type host struct {
	number  int
	name    string
	limit   int           // of its node
	skew    time.Duration // offset of its clock
	process *process      // nil: no server runs there
	starts  int
}

// process is a server with a node, from its start to its end.
type process struct {
	site     *site
	host     *host
	number   int
	server   *loop.Offline
	end      context.CancelFunc
	ended    chan struct{} // closed when the node has stopped
	err      error         // why
	stopping bool
	workers  []*worker
	hired    int

	mu    sync.Mutex
	dead  bool // nothing of it gets anywhere
	conns []net.Conn
}

func (l *process) String() string { return fmt.Sprintf("%s.%d", l.host.name, l.number) }

// start starts a server on a host.
func (s *site) start(h *host) {
	h.starts++
	l := &process{site: s, host: h, number: h.starts, ended: make(chan struct{})}
	s.trace.Say("%v starts", l)
	var err error
	if l.server, err = loop.NewOffline(loop.Options{Shards: 1}); err != nil {
		s.trace.Fail("%v does not start: %v", l, err)
	}
	// Several goroutines of a node may pick at the same instant, in any order: what they get follows from the instant
	// alone.
	pick := func(n int) int {
		return rand.New(rand.NewPCG(s.seed^uint64(time.Now().UnixNano()), uint64(h.number<<32|l.number))).IntN(n)
	}
	n, err := node.NewIn(node.Options{
		Config: s.config, Name: h.name, Functions: l, Interval: interval, Drain: func() time.Duration { return drain },
	}, node.Environment{
		Dial:  l.dial,
		Clock: func() time.Time { return time.Now().Add(h.skew) },
		Pick:  pick,
	})
	if err != nil {
		s.trace.Fail("%v has no node: %v", l, err)
	}
	ctx, end := context.WithCancel(context.Background())
	l.end, h.process, s.processes = end, l, append(s.processes, l)
	go func() {
		l.err = n.Run(ctx)
		close(l.ended)
	}()
	s.join(l)
	s.settle()
}

// kill ends a server's process.
func (s *site) kill(h *host) {
	s.trace.Say("%v dies", h.process)
	s.markLost(h)
	s.reap(h.process)
	s.settle()
}

// stop stops a server as SIGTERM does, and does not wait.
func (s *site) stop(h *host) {
	s.trace.Say("%v is to stop", h.process)
	h.process.stopping = true
	h.process.end()
	s.settle()
}

// stopInOrder stops a server while its database answers. It must leave no task behind, except those that the process
// before it left.
func (s *site) stopInOrder(h *host) {
	l := h.process
	if s.away.Load() || l.stopping {
		return
	}
	before := s.lostTasks()
	s.stop(h)
	for range 150 {
		if h.process != l {
			break
		}
		s.deliverAll(l)
	}
	if h.process == l {
		s.trace.Fail("%v has not stopped, although its database has answered all: want it stopped", l)
	}
	for _, t := range s.ledger.tasks {
		if !before[t] && t.node == h.name && (t.status == store.StatusClaimed || t.status == store.StatusRunning) {
			s.trace.Fail("%v has stopped in order, although %v has status %d", l, t, t.status)
		}
	}
}

// checkEnded notes that a server has stopped, which it may do only when told to.
func (s *site) checkEnded(l *process) {
	select {
	case <-l.ended:
	default:
		return
	}
	if l.err != nil || !l.stopping {
		s.trace.Fail("the node of %v ends unasked, or with an error: %v", l, l.err)
	}
	s.trace.Say("%v has stopped", l)
	s.markLost(l.host)
	s.reap(l)
}

// reap ends everything that a process has left running.
func (s *site) reap(l *process) {
	l.host.process = nil
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	s.cut(l, false)
	l.end()
	l.server.Abandon()
}

// cut ends a process's connections to the database. A command on its way there is lost, or still arrives. Of the
// heartbeats of a host's dead processes only the last arrives, since the successor would rightly take more for those of
// a second node of its name.
func (s *site) cut(l *process, lost bool) {
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	signed := false
	for i := len(s.messages) - 1; i >= 0; i-- {
		p := s.messages[i]
		gone := p.process == l && (l.dead && p.call != nil || p.back || p.call == nil && lost)
		if l.dead && p.process.host == l.host && !p.back && strings.HasPrefix(p.what, `{"update":"nodes"`) {
			gone = gone || signed
			signed = true
		}
		if gone {
			p.pass(mongotest.LoseCall)
			s.messages = slices.Delete(s.messages, i, i+1)
		}
	}
}

func (l *process) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

var errAway = errors.New("connection refused")

// refusal is how long that takes. The driver tries again at once.
const refusal = 100 * time.Millisecond

// dial connects a node to the database.
func (l *process) dial(context.Context) (net.Conn, error) {
	if l.isDead() {
		time.Sleep(refusal)
		return nil, errAway
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	near, far := net.Pipe()
	l.conns = append(l.conns, near, far)
	go l.site.fake.ServeConn(far, l)
	return near, nil
}

// Submit implements node.Functions.
func (l *process) Submit(function, name string, workload []byte, done func([]byte, error)) (err error) {
	l.calls("a job "+name, func() { err = l.server.Functions().Submit(function, name, workload, done) })
	return err
}

// Withdraw implements node.Functions.
func (l *process) Withdraw(function, name string) (unseen bool) {
	l.calls("to withdraw "+name, func() { unseen = l.server.Functions().Withdraw(function, name) })
	return unseen
}

func (l *process) calls(what string, call func()) {
	if l.isDead() {
		return
	}
	(&message{process: l, what: what, call: func() {
		call()
		l.server.Settle()
	}}).wait()
}
