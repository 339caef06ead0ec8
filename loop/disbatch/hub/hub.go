// Package hub is a Disbatch node inside of a server: the server's workers, whatever protocol
// they speak, do the site's tasks whose plugin is a function, protocols/disbatch.md.
package hub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/node"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// space is the name space of the tasks.
const space sched.Space = 6

// Spaces are those of the tasks: the database has them, so they are not journaled and end with
// the node; a worker that fails one or leaves has ended it; the node keeps their time.
func Spaces() []protocol.Space {
	return []protocol.Space{{ID: space, Rules: sched.Rules{Owned: true, Untimed: true, Kept: true, Deaths: 1}}}
}

// Options are the settings of the node.
type Options struct {
	Config string        // path of the original's config.json; empty: there is no node
	Node   string        // name, default the host's
	Runner []string      // command that runs tasks which are commands; without it they are left to other nodes
	Drain  time.Duration // for the tasks that a stopping node waits for
}

var errWorkerFailed = errors.New("the worker failed the job or left")

// Hub has workers do tasks of Disbatch. It implements node.Functions and protocol.Service.
type Hub struct {
	host  protocol.Host
	node  *node.Node    // nil: there is none
	ready chan struct{} // there are endings

	running atomic.Bool // the node
	serving sync.WaitGroup
	stopped chan struct{} // closed by Close

	mu      sync.Mutex // of the peer's verbs, and what follows
	peer    *sched.Peer
	sink    protocol.Sink
	last    uint64 // tag
	waiting map[uint64]func(data []byte, err error)

	ended   sync.Mutex // taken under a shard's lock
	endings []ending
}

// ending is how one job ended.
type ending struct {
	tag    uint64
	effect sched.Effect
	data   []byte
}

// New prepares the node that the settings ask for; it connects to nothing.
func New(host protocol.Host, o Options) (*Hub, error) {
	h := &Hub{
		host: host, ready: make(chan struct{}, 1), stopped: make(chan struct{}),
		sink: host.NewSink(), waiting: make(map[uint64]func([]byte, error)),
	}
	h.peer = host.NewInsider(h.put)
	if o.Config == "" {
		return h, nil
	}
	config, err := disbatch.ReadConfig(o.Config)
	if err != nil {
		return nil, err
	}
	h.node, err = node.New(node.Options{Config: config, Name: o.Node, Runner: o.Runner, Functions: h, Drain: o.Drain, Log: host.Log()})
	return h, err
}

// Name implements protocol.Protocol.
func (h *Hub) Name() string { return "disbatch" }

// Ports implements protocol.Protocol.
func (h *Hub) Ports() []protocol.Port { return nil }

// CloseReasons implements protocol.Protocol.
func (h *Hub) CloseReasons() []protocol.CloseReason { return nil }

// Samples implements protocol.Protocol.
func (h *Hub) Samples() []web.Sample {
	if h.node == nil {
		return nil
	}
	return h.node.Samples()
}

// Listen implements protocol.Service: the node connects to the database, nobody to the node.
func (h *Hub) Listen() ([]protocol.Listening, error) { return nil, nil }

// Serve implements protocol.Service. A node that cannot run stops the server.
func (h *Hub) Serve(ctx context.Context) {
	if h.node == nil {
		return
	}
	h.running.Store(true)
	h.serving.Go(h.run)
	h.serving.Go(func() {
		defer h.running.Store(false)
		if err := h.node.Run(ctx); err != nil {
			h.host.Fail(err)
		}
	})
}

// Drain implements protocol.Service: the node stops with the context of Serve.
func (h *Hub) Drain() {}

// Owes implements protocol.Service.
func (h *Hub) Owes() bool { return h.running.Load() }

// Close implements protocol.Service.
func (h *Hub) Close() {
	close(h.stopped)
	h.serving.Wait()
}

// Submit implements node.Functions.
func (h *Hub) Submit(function, name string, workload []byte, done func(data []byte, err error)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.waiting[h.last] = done
	err := h.host.Sched().Submit(h.host.Now(), &sched.Submission{
		Space: space, Queue: protocol.Queue([]byte(function)), Name: []byte(name), Workload: workload, Await: h.peer, Tag: h.last,
	}, h.sink)
	if err != nil {
		delete(h.waiting, h.last)
	}
	h.sink.Wake()
	return err
}

// Withdraw implements node.Functions.
func (h *Hub) Withdraw(function, name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := h.host.Sched().Withdraw(h.host.Now(), space, protocol.Queue([]byte(function)), []byte(name), h.sink)
	h.sink.Wake()
	return gone
}

// put takes a delivery to the hub. It is called under a shard's lock.
func (h *Hub) put(d *sched.Delivery) {
	h.ended.Lock()
	h.endings = append(h.endings, ending{d.Tag, d.Effect, append([]byte(nil), d.Data...)})
	h.ended.Unlock()
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// run tells tasks of their ends until Close.
func (h *Hub) run() {
	for {
		select {
		case <-h.stopped:
			return
		case <-h.ready:
			h.turn()
		}
	}
}

// Turn does what run does when there are endings, for a hub that does not serve; false: there are
// none.
func (h *Hub) Turn() bool {
	select {
	case <-h.ready:
		h.turn()
		return true
	default:
		return false
	}
}

// turn tells tasks of the ends that there are, but for those that were withdrawn.
func (h *Hub) turn() {
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
