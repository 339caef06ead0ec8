package disbatch

import (
	"errors"

	"treadle/loop/protocol"
	"treadle/sched"
)

var errWorkerFailed = errors.New("the worker failed the job or left")

// result is the end of one job.
type result struct {
	tag    uint64
	effect sched.Effect
	data   []byte
}

// Submit implements node.Functions.
func (p *Protocol) Submit(function, name string, workload []byte, done func(data []byte, err error)) error {
	if err := p.host.CheckCapacity(); err == protocol.ErrMaxMemory { // the tasks are in the site's database, not on the disk
		p.host.CountRefusal(p.Name(), protocol.ReasonOf(err))
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
