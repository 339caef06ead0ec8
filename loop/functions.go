package loop

import (
	"context"
	"errors"
	"sync"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/node"
	"treadle/loop/protocol"
	"treadle/sched"
)

// disbatchSpace is the name space of Disbatch tasks whose plugin is a function.
const disbatchSpace sched.Space = 6

// disbatchRules are those of such tasks: the database has them, so they are not journaled
// and end with the node; a worker that fails one or leaves has ended it; the node keeps
// their time.
var disbatchRules = sched.Rules{Owned: true, Untimed: true, Kept: true, Deaths: 1}

// ownLoop stands in the session ids of parties inside of the server, in place of a loop.
const ownLoop = maxLoops

var errWorkerFailed = errors.New("the worker failed the job or left")

// functionHub has workers do tasks of Disbatch. It implements node.Functions.
type functionHub struct {
	server *Server
	ready  chan struct{} // there are endings

	mu      sync.Mutex // of the peer's verbs, and what follows
	peer    *sched.Peer
	sink    timerSink
	last    uint64 // tag
	waiting map[uint64]func(data []byte, err error)

	ended   sync.Mutex // taken under a shard's lock
	endings []ending
}

// ending is what became of one job.
type ending struct {
	tag    uint64
	effect sched.Effect
	data   []byte
}

func newFunctionHub(s *Server) *functionHub {
	return &functionHub{
		server: s, ready: make(chan struct{}, 1), sink: timerSink{s, make([]bool, s.o.Loops)},
		peer: s.sched.NewPeer(sched.SessionID(uint64(ownLoop) << loopShift)), waiting: make(map[uint64]func([]byte, error)),
	}
}

// Submit implements node.Functions.
func (h *functionHub) Submit(function, name string, workload []byte, done func(data []byte, err error)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.waiting[h.last] = done
	err := h.server.sched.Submit(h.server.now(), &sched.Submission{
		Space: disbatchSpace, Queue: protocol.Queue([]byte(function)), Name: []byte(name), Workload: workload, Await: h.peer, Tag: h.last,
	}, &h.sink)
	if err != nil {
		delete(h.waiting, h.last)
	}
	h.server.wake(h.sink.mailed)
	return err
}

// Withdraw implements node.Functions.
func (h *functionHub) Withdraw(function, name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := h.server.sched.Withdraw(h.server.now(), disbatchSpace, protocol.Queue([]byte(function)), []byte(name), &h.sink)
	h.server.wake(h.sink.mailed)
	return gone
}

// put takes a delivery to the hub. It is called under a shard's lock.
func (h *functionHub) put(d *sched.Delivery) {
	h.ended.Lock()
	h.endings = append(h.endings, ending{d.Tag, d.Effect, append([]byte(nil), d.Data...)})
	h.ended.Unlock()
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// run tells tasks of their ends until the server has stopped.
func (h *functionHub) run() {
	for {
		select {
		case <-h.server.stopped:
			return
		case <-h.ready:
			h.turn()
		}
	}
}

// turn tells tasks of the ends that there are, but for those that were withdrawn.
func (h *functionHub) turn() {
	h.ended.Lock()
	endings := h.endings
	h.endings = nil
	h.ended.Unlock()
	for _, e := range endings {
		h.mu.Lock()
		done := h.waiting[e.tag]
		delete(h.waiting, e.tag)
		h.mu.Unlock()
		switch {
		case done == nil || e.effect == sched.Removed:
		case e.effect != sched.Result:
			done(nil, errWorkerFailed)
		default:
			done(e.data, nil)
		}
	}
}

// newDisbatchNode prepares the node that the settings ask for.
func newDisbatchNode(s *Server) error {
	if s.o.Disbatch.Config == "" {
		return nil
	}
	config, err := disbatch.ReadConfig(s.o.Disbatch.Config)
	if err != nil {
		return &OptionError{Setting: "disbatch", Err: err}
	}
	s.functions = newFunctionHub(s)
	s.disbatch, err = node.New(node.Options{
		Config: config, Name: s.o.Disbatch.Node, Runner: s.o.Disbatch.Runner, Functions: s.functions,
		Drain: s.o.Drain, Log: s.log,
	})
	if err != nil {
		return &OptionError{Setting: "disbatch", Err: err}
	}
	return nil
}

// serveDisbatch runs the node, which ends with ctx and what it drains. A node that cannot
// run stops the server.
func (s *Server) serveDisbatch(ctx context.Context) {
	if s.disbatch == nil {
		return
	}
	s.draining.Add(1)
	s.workers.Go(s.functions.run)
	s.workers.Go(func() {
		defer s.draining.Add(-1)
		if err := s.disbatch.Run(ctx); err != nil {
			s.fail(err)
		}
	})
}
