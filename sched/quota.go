package sched

// Reserves, watches and topics are held for peers in no job's memory, and each peer may have
// many. The bounds of one peer keep one mistake in check; what all have together is bounded
// here, as connections are counted in tens of thousands.
const (
	// maxRegistered bounds what all peers have beyond their own parts, in bytes: watches of
	// some two million queues.
	maxRegistered = 512 << 20
	// ownRegistered is each peer's own part, which nobody else can take: reserves or queues by
	// the hundred.
	ownRegistered = 64 << 10
	// drawRegistered is how much more is drawn, and given back, at a time.
	drawRegistered = 64 << 10
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
func (p *Peer) register(n int) bool {
	if p.registered+n > ownRegistered+p.drawn {
		if p.quota.Add(drawRegistered) > maxRegistered {
			p.quota.Add(-drawRegistered)
			return false
		}
		p.drawn += drawRegistered
	}
	p.registered += n
	return true
}

// unregister takes n bytes back. The peer is locked. One that has left has none.
func (p *Peer) unregister(n int) {
	if p.quota == nil {
		return
	}
	p.registered -= n
	for p.drawn > 0 && p.registered+2*drawRegistered <= ownRegistered+p.drawn { // not to and fro at the edge
		p.drawn -= drawRegistered
		p.quota.Add(-drawRegistered)
	}
}

// unregisterAll is unregister for a peer that leaves. It is locked.
func (p *Peer) unregisterAll() {
	p.quota.Add(-int64(p.drawn))
	p.registered, p.drawn, p.quota = 0, 0, nil
}
