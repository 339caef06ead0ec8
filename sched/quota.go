package sched

import "sync/atomic"

// Slots, watches, topics and unreported names take memory for a peer, not for a job. The bounds of one peer keep a
// mistake of that peer in check. The quota bounds all peers together, since there may be tens of thousands of
// connections.
const (
	// maxShared bounds the bytes that all peers have beyond their own parts, unless Options.PeerMemory is less. It has
	// room for watches of some two million queues.
	maxShared = 512 << 20
	// ownQuota is each peer's own part in bytes, which no other peer can use: hundreds of reserves
	// or queues.
	ownQuota = 64 << 10
	// quotaStep is how many bytes a peer borrows, and gives back, at a time.
	quotaStep = 64 << 10
)

// The approximate bytes of a slot, a watch and a topic, with their entries in maps and lines.
const (
	slotCost  = 32
	watchCost = 192
	topicCost = 256 // without the names
)

// quota counts the bytes that all peers have borrowed beyond their own parts.
type quota struct {
	atomic.Int64
	limit int64
}

// cost is the approximate bytes of a topic.
func (t topic) cost() int { return topicCost + len(t.queue) + len(t.name) }

// charge counts n bytes more for the peer. It returns false when the quota is used up. The caller
// holds the peer's lock.
func (p *Peer) charge(n int) bool {
	if p.charged+n > ownQuota+p.borrowed {
		if p.quota.Add(quotaStep) > p.quota.limit {
			p.quota.Add(-quotaStep)
			return false
		}
		p.borrowed += quotaStep
	}
	p.charged += n
	return true
}

// refund takes n charged bytes back. A departed peer has none. The caller holds the peer's lock.
func (p *Peer) refund(n int) {
	if p.quota == nil {
		return
	}
	p.charged -= n
	for p.borrowed > 0 && p.charged+2*quotaStep <= ownQuota+p.borrowed { // one step is kept against borrowing to and fro
		p.borrowed -= quotaStep
		p.quota.Add(-quotaStep)
	}
}

// refundAll refunds everything of a peer that leaves. The caller holds the peer's lock.
func (p *Peer) refundAll() {
	p.quota.Add(-int64(p.borrowed))
	p.charged, p.borrowed, p.quota = 0, 0, nil
}
