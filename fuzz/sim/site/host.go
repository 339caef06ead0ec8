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

func (p *process) String() string { return fmt.Sprintf("%s.%d", p.host.name, p.number) }

// start starts a server on a host.
func (s *site) start(h *host) {
	h.starts++
	p := &process{site: s, host: h, number: h.starts, ended: make(chan struct{})}
	s.trace.Logf("%v starts", p)
	var err error
	if p.server, err = loop.NewOffline(loop.Options{Shards: 1}); err != nil {
		s.trace.Failf("%v does not start: %v", p, err)
	}
	// Several goroutines of a node may pick at the same instant, in any order: what they get follows from the instant
	// alone.
	pick := func(n int) int {
		return rand.New(rand.NewPCG(s.seed^uint64(time.Now().UnixNano()), uint64(h.number<<32|p.number))).IntN(n)
	}
	n, err := node.NewIn(node.Options{
		Config: s.config, Name: h.name, Functions: p, Interval: interval, Drain: func() time.Duration { return drain },
	}, node.Environment{
		Dial:  p.dial,
		Clock: func() time.Time { return time.Now().Add(h.skew) },
		Pick:  pick,
	})
	if err != nil {
		s.trace.Failf("%v has no node: %v", p, err)
	}
	ctx, end := context.WithCancel(context.Background())
	p.end, h.process, s.processes = end, p, append(s.processes, p)
	go func() {
		p.err = n.Run(ctx)
		close(p.ended)
	}()
	s.join(p)
	s.settle()
}

// kill ends a server's process.
func (s *site) kill(h *host) {
	s.trace.Logf("%v dies", h.process)
	s.markLost(h)
	s.reap(h.process)
	s.settle()
}

// stop stops a server as SIGTERM does, and does not wait.
func (s *site) stop(h *host) {
	s.trace.Logf("%v is to stop", h.process)
	h.process.stopping = true
	h.process.end()
	s.settle()
}

// stopInOrder stops a server while its database answers. It must leave no task behind, except those that the process
// before it left.
func (s *site) stopInOrder(h *host) {
	p := h.process
	if s.away.Load() || p.stopping {
		return
	}
	before := s.lostTasks()
	s.stop(h)
	for range 150 {
		if h.process != p {
			break
		}
		s.deliverAll(p)
	}
	if h.process == p {
		s.trace.Failf("%v has not stopped, although its database has answered all: want it stopped", p)
	}
	for _, t := range s.ledger.tasks {
		if !before[t] && t.node == h.name && (t.status == store.StatusClaimed || t.status == store.StatusRunning) {
			s.trace.Failf("%v has stopped in order, although %v has status %d", p, t, t.status)
		}
	}
}

// checkEnded notes that a server has stopped, which it may do only when told to.
func (s *site) checkEnded(p *process) {
	select {
	case <-p.ended:
	default:
		return
	}
	if p.err != nil || !p.stopping {
		s.trace.Failf("the node of %v ends unasked, or with an error: %v", p, p.err)
	}
	s.trace.Logf("%v has stopped", p)
	s.markLost(p.host)
	s.reap(p)
}

// reap ends everything that a process has left running.
func (s *site) reap(p *process) {
	p.host.process = nil
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	s.cut(p, false)
	p.end()
	p.server.Abandon()
}

// cut ends a process's connections to the database. A command on its way there is lost, or still arrives. Of the
// heartbeats of a host's dead processes only the last arrives, since the successor would rightly take more for those of
// a second node of its name.
func (s *site) cut(p *process, lost bool) {
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	signed := false
	for i := len(s.messages) - 1; i >= 0; i-- {
		m := s.messages[i]
		gone := m.process == p && (p.dead && m.call != nil || m.back || m.call == nil && lost)
		if p.dead && m.process.host == p.host && !m.back && strings.HasPrefix(m.what, `{"update":"nodes"`) {
			gone = gone || signed
			signed = true
		}
		if gone {
			m.pass(mongotest.LoseCall)
			s.messages = slices.Delete(s.messages, i, i+1)
		}
	}
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

var errAway = errors.New("connection refused")

// refusal is how long that takes. The driver tries again at once.
const refusal = 100 * time.Millisecond

// dial connects a node to the database.
func (p *process) dial(context.Context) (net.Conn, error) {
	if p.isDead() {
		time.Sleep(refusal)
		return nil, errAway
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	near, far := net.Pipe()
	p.conns = append(p.conns, near, far)
	go p.site.fake.ServeConn(far, p)
	return near, nil
}

// Submit implements node.Functions.
func (p *process) Submit(function, name string, workload []byte, done func([]byte, error)) (err error) {
	p.call("a job "+name, func() { err = p.server.Functions().Submit(function, name, workload, done) })
	return err
}

// Withdraw implements node.Functions.
func (p *process) Withdraw(function, name string) (unseen bool) {
	p.call("to withdraw "+name, func() { unseen = p.server.Functions().Withdraw(function, name) })
	return unseen
}

func (p *process) call(what string, do func()) {
	if p.isDead() {
		return
	}
	(&message{process: p, what: what, call: func() {
		do()
		p.server.Settle()
	}}).wait()
}
