package sched

// Reserves, watches and topics are held for peers in no job's memory, and each peer may have
// many. The bounds of one peer keep one mistake in check; what all have together is bounded
// here, as connections are counted in tens of thousands.
const (
	// maxRegistered bounds what all peers have beyond their own parts, in bytes: watches of
	// some two million queues.
	maxShared = 512 << 20
	// ownRegistered is each peer's own part, which nobody else can take: reserves or queues by
	// the hundred.
	ownQuota = 64 << 10
	// drawRegistered is how much more is drawn, and given back, at a time.
	quotaStep = 64 << 10
)

// The approximate cost of each, with its entries in maps and lines.
const (
	slotCost  = 32
	watchCost = 192
	topicCost = 256 // and the names
)

// cost is a topic's.
func (t topic) cost() int { return topicCost + len(t.queue) + len(t.name) }

// register counts n bytes more for the peer, which is locked; false: there is no room.
func (p *Peer) charge(n int) bool {
	if p.charged+n > ownQuota+p.borrowed {
		if p.quota.Add(quotaStep) > maxShared {
			p.quota.Add(-quotaStep)
			return false
		}
		p.borrowed += quotaStep
	}
	p.charged += n
	return true
}

// unregister takes n bytes back. The peer is locked. One that has left has none.
func (p *Peer) refund(n int) {
	if p.quota == nil {
		return
	}
	p.charged -= n
	for p.borrowed > 0 && p.charged+2*quotaStep <= ownQuota+p.borrowed { // not to and fro at the edge
		p.borrowed -= quotaStep
		p.quota.Add(-quotaStep)
	}
}

// unregisterAll is unregister for a peer that leaves. It is locked.
func (p *Peer) refundAll() {
	p.quota.Add(-int64(p.borrowed))
	p.charged, p.borrowed, p.quota = 0, 0, nil
}
