package cluster

// wakeApply wakes applyLoop. It does not block.
func (n *Node) wakeApply() {
	select {
	case n.wakeUp <- struct{}{}:
	default:
	}
}

// applyLoop applies committed entries to the store when logs are full, and then compacts the log.
func (n *Node) applyLoop() {
	for {
		select {
		case <-n.wakeUp:
			before := n.storage.replica.Applied().Index
			if err := n.applyCommitted(); err != nil {
				n.fail(err)
				return
			}
			at, stored := n.storage.replica.Members()
			nodes, err := parseMembers(stored)
			if err == nil { // a follower that is a little behind needs no snapshot
				keep := n.pinned.keep(before, n.storage.written.Load())
				n.call(func() { err = n.storage.compact(at.Index, keep, nodes.confState()) })
			}
			if err != nil {
				n.fail(err)
				return
			}
			n.mu.Lock()
			lead := n.lead
			n.mu.Unlock()
			if lead != nil {
				lead.wakeWaiters()
			}
		case <-n.closing:
			return
		}
	}
}

// applyCommitted applies all entries to the store that are known to be committed.
func (n *Node) applyCommitted() error {
	n.applying.Lock()
	defer n.applying.Unlock()
	n.mu.Lock()
	commit := n.commit
	n.mu.Unlock()
	return n.storage.apply(commit)
}
