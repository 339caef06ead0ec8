// Package disbatch runs a Disbatch node in a server, see `treadle help disbatch`. Workers of any protocol do the site's
// tasks whose plugin is a function.
package disbatch

import (
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/node"
	view "treadle/loop/disbatch/web"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

const name = "disbatch"

// Protocol is the Disbatch protocol in one server. It implements node.Functions and protocol.Service.
type Protocol struct {
	host  protocol.Host
	sched *sched.Scheduler
	node  *node.Node    // nil without a configuration
	view  *view.View    // nil without a configuration
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
	p.view = view.NewView(settings, host.Log())
	p.node, err = node.New(node.Options{Config: settings, Name: o.Node, Executor: o.Executor, Functions: p, Drain: drain, Log: host.Log()})
	if err != nil {
		return nil, &protocol.OptionError{Setting: name, Err: err}
	}
	return p, nil
}

// View returns what operators see of the site; nil: the server is no node of one.
func (p *Protocol) View() *view.View { return p.view }

// Name implements protocol.Protocol.
func (p *Protocol) Name() string { return name }

// Samples implements protocol.Protocol.
func (p *Protocol) Samples() []web.Sample {
	if p.node == nil {
		return nil
	}
	return p.node.Samples()
}
