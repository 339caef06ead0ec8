// Package disbatch runs a Disbatch node in a server, see `treadle help disbatch`. Workers of any protocol do
// the site's tasks whose plugin is a function.
package disbatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/node"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

const name = "disbatch"

var errWorkerFailed = errors.New("the worker failed the job or left")

// Protocol is the Disbatch protocol in one server. It implements node.Functions and protocol.Service.
type Protocol struct {
	host  protocol.Host
	node  *node.Node    // nil without a configuration
	ready chan struct{} // there are results

	running    atomic.Bool // the node runs
	goroutines sync.WaitGroup
	closed     chan struct{} // closed by Close

	mu        sync.Mutex // guards the fields below and the peer's scheduler calls
	peer      *sched.Peer
	sink      protocol.Sink
	lastTag   uint64
	callbacks map[uint64]func(data []byte, err error) // by tag

	resultsMu sync.Mutex // taken under a shard's lock
	results   []result
}

var _ interface {
	protocol.Service
	node.Functions
} = (*Protocol)(nil)

// result is the end of one job.
type result struct {
	tag    uint64
	effect sched.Effect
	data   []byte
}

// New makes the node, if there is one, without connecting to the database. It returns a protocol.OptionError when a
// setting cannot work.
func New(host protocol.Host, o Options) (*Protocol, error) {
	h := &Protocol{
		host: host, ready: make(chan struct{}, 1), closed: make(chan struct{}),
		sink: host.NewSink(), callbacks: make(map[uint64]func([]byte, error)),
	}
	h.peer = host.NewLocalPeer(h.deliver)
	if o.Config == "" {
		return h, nil
	}
	config, err := config.Read(o.Config)
	if err != nil {
		return nil, &protocol.OptionError{Setting: name, Err: err}
	}
	drain := func() time.Duration { return host.Limits().Drain }
	h.node, err = node.New(node.Options{Config: config, Name: o.Node, Runner: o.Runner, Functions: h, Drain: drain, Log: host.Log()})
	if err != nil {
		return nil, &protocol.OptionError{Setting: name, Err: err}
	}
	return h, nil
}

// Name implements protocol.Protocol.
func (h *Protocol) Name() string { return name }

// Samples implements protocol.Protocol.
func (h *Protocol) Samples() []web.Sample {
	if h.node == nil {
		return nil
	}
	return h.node.Samples()
}

// Listen implements protocol.Service. The node accepts no connections.
func (h *Protocol) Listen() ([]protocol.Listening, error) { return nil, nil }

// Serve implements protocol.Service. A node that cannot run stops the server.
func (h *Protocol) Serve(ctx context.Context) {
	if h.node == nil {
		return
	}
	h.running.Store(true)
	h.goroutines.Go(h.run)
	h.goroutines.Go(func() {
		defer h.running.Store(false)
		if err := h.node.Run(ctx); err != nil {
			h.host.Fail(err)
		}
	})
}

// Drain implements protocol.Service. The node stops with the context of Serve.
func (h *Protocol) Drain() {}

// Owes implements protocol.Service.
func (h *Protocol) Owes() bool { return h.running.Load() }

// Close implements protocol.Service.
func (h *Protocol) Close() {
	close(h.closed)
	h.goroutines.Wait()
}

// Submit implements node.Functions.
func (h *Protocol) Submit(function, name string, workload []byte, done func(data []byte, err error)) error {
	if err := h.host.Refusing(); err == protocol.ErrMaxMemory { // the tasks are in the site's database, not on the disk
		h.host.Refused(h.Name(), protocol.ReasonOf(err))
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastTag++
	h.callbacks[h.lastTag] = done
	err := h.host.Sched().Submit(h.host.Now(), &sched.Submission{
		Space: space, Queue: protocol.Queue([]byte(function)), Name: []byte(name), Workload: workload, Await: h.peer, Tag: h.lastTag,
	}, h.sink)
	if err != nil {
		delete(h.callbacks, h.lastTag)
	}
	h.sink.Wake()
	return err
}

// Withdraw implements node.Functions.
func (h *Protocol) Withdraw(function, name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := h.host.Sched().Withdraw(h.host.Now(), space, protocol.Queue([]byte(function)), []byte(name), h.sink)
	h.sink.Wake()
	return gone
}

// deliver queues a delivery to the node. It runs under a shard's lock.
func (h *Protocol) deliver(d *sched.Delivery) {
	h.resultsMu.Lock()
	h.results = append(h.results, result{d.Tag, d.Effect, append([]byte(nil), d.Data...)})
	h.resultsMu.Unlock()
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// run takes turns until Close.
func (h *Protocol) run() {
	for {
		select {
		case <-h.closed:
			return
		case <-h.ready:
			h.turn()
		}
	}
}

// Turn takes a turn, for a server that does not serve. It returns false without results.
func (h *Protocol) Turn() bool {
	select {
	case <-h.ready:
		h.turn()
		return true
	default:
		return false
	}
}

// turn passes the results on to the tasks that were not withdrawn.
func (h *Protocol) turn() {
	h.resultsMu.Lock()
	results := h.results
	h.results = nil
	h.resultsMu.Unlock()
	for _, e := range results {
		h.mu.Lock()
		done := h.callbacks[e.tag]
		delete(h.callbacks, e.tag)
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
