// Package disbatch runs a Disbatch node in a server, see `treadle help disbatch`. Workers of any protocol do the site's
// tasks whose plugin is a function.
package disbatch

import (
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
	sched *sched.Scheduler
	node  *node.Node    // nil without a configuration
	ready chan struct{} // there are results

	running    atomic.Bool // the node runs
	goroutines sync.WaitGroup
	done       chan struct{} // closed by Close

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
	p := &Protocol{
		host: host, sched: host.Sched(), ready: make(chan struct{}, 1), done: make(chan struct{}),
		sink: host.NewSink(), callbacks: make(map[uint64]func([]byte, error)),
	}
	p.peer = host.NewLocalPeer(p.deliver)
	if o.Config == "" {
		return p, nil
	}
	settings, err := config.Read(o.Config)
	if err != nil {
		return nil, &protocol.OptionError{Setting: name, Err: err}
	}
	drain := func() time.Duration { return host.Limits().Drain }
	p.node, err = node.New(node.Options{Config: settings, Name: o.Node, Executor: o.Executor, Functions: p, Drain: drain, Log: host.Log()})
	if err != nil {
		return nil, &protocol.OptionError{Setting: name, Err: err}
	}
	return p, nil
}

// Name implements protocol.Protocol.
func (p *Protocol) Name() string { return name }

// Samples implements protocol.Protocol.
func (p *Protocol) Samples() []web.Sample {
	if p.node == nil {
		return nil
	}
	return p.node.Samples()
}

// Submit implements node.Functions.
func (p *Protocol) Submit(function, name string, workload []byte, done func(data []byte, err error)) error {
	if err := p.host.Refusing(); err == protocol.ErrMaxMemory { // the tasks are in the site's database, not on the disk
		p.host.Refused(p.Name(), protocol.ReasonOf(err))
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastTag++
	p.callbacks[p.lastTag] = done
	err := p.sched.Submit(p.host.Now(), &sched.Submission{
		Space: Space, Queue: protocol.Queue([]byte(function)), Name: []byte(name), Workload: workload, Await: p.peer, Tag: p.lastTag,
	}, p.sink)
	if err != nil {
		delete(p.callbacks, p.lastTag)
	}
	p.sink.Wake()
	return err
}

// Withdraw implements node.Functions.
func (p *Protocol) Withdraw(function, name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := p.sched.Withdraw(p.host.Now(), Space, protocol.Queue([]byte(function)), []byte(name), p.sink)
	p.sink.Wake()
	return gone
}

// deliver queues a delivery to the node. It runs under a shard's lock.
func (p *Protocol) deliver(d *sched.Delivery) {
	p.resultsMu.Lock()
	p.results = append(p.results, result{d.Tag, d.Effect, append([]byte(nil), d.Data...)})
	p.resultsMu.Unlock()
	select {
	case p.ready <- struct{}{}:
	default:
	}
}
