package disbatch

import (
	"context"

	"treadle/loop/protocol"
	"treadle/sched"
)

// Listen implements protocol.Service. The node accepts no connections.
func (p *Protocol) Listen() ([]protocol.Listening, error) { return nil, nil }

// Serve implements protocol.Service. A node that cannot run stops the server.
func (p *Protocol) Serve(ctx context.Context) {
	if p.node == nil {
		return
	}
	p.running.Store(true)
	p.goroutines.Go(p.run)
	p.goroutines.Go(func() {
		defer p.running.Store(false)
		if err := p.node.Run(ctx); err != nil {
			p.host.Fail(err)
		}
	})
}

// Drain implements protocol.Service. The node stops with the context of Serve.
func (p *Protocol) Drain() {}

// HasPending implements protocol.Service.
func (p *Protocol) HasPending() bool { return p.running.Load() }

// Close implements protocol.Service.
func (p *Protocol) Close() {
	close(p.done)
	p.goroutines.Wait()
	if p.view != nil {
		p.view.Close()
	}
}

// run takes turns until Close.
func (p *Protocol) run() {
	for {
		select {
		case <-p.done:
			return
		case <-p.ready:
			p.turn()
		}
	}
}

// Turn takes a turn, for a server that does not serve. It returns false without results.
func (p *Protocol) Turn() bool {
	select {
	case <-p.ready:
		p.turn()
		return true
	default:
		return false
	}
}

// turn passes the results on to the tasks that were not withdrawn.
func (p *Protocol) turn() {
	p.resultsMu.Lock()
	results := p.results
	p.results = nil
	p.resultsMu.Unlock()
	for _, e := range results {
		p.mu.Lock()
		done := p.callbacks[e.tag]
		delete(p.callbacks, e.tag)
		p.mu.Unlock()
		switch {
		case done == nil || e.effect == sched.Removed:
		case e.effect != sched.Result:
			done(nil, errWorkerFailed)
		default:
			done(e.data, nil)
		}
	}
}
