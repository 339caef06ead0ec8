package cluster

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Leadership is the time of this node as leader in one term. It is the journal.Replicator of a server.
//
// It ends before another node can lead, even if this node does not hear of it. Otherwise two nodes could answer what
// has no group in the journal, such as a handed-out job or a submission that changes nothing. For electionTicks after a
// node has heard from the leader it votes for no other. So each time that a majority answers, the lease lasts for
// leaseTicks from the moment of the question.
type Leadership struct {
	n     *Node
	term  uint64
	ready chan struct{} // closed when the first entry of the term, and so all before it, are committed and there is a lease
	lost  chan struct{} // closed when the Leadership ends
	lease atomic.Int64  // the uptime at which the lease ends; 0: it has not begun

	mu            sync.Mutex
	wake          *sync.Cond
	termCommitted bool // the first entry of the term is committed
	isReady       bool
	isLost        bool
	proposed      int // entries
	committed     int // proposed entries that are committed
	bytes         int // of entries that are proposed and not committed
}

// maxProposed bounds the bytes of proposed entries that are not committed. Append waits while there are more.
const maxProposed = 32 << 20

// Holds reports whether no other node can lead yet. It is called after an answer is computed and before it is sent:
// Lost may be closed much later, for example in a process that was stopped for a while.
func (l *Leadership) Holds() bool {
	select {
	case <-l.lost:
		return false
	default:
		return !l.expired(l.n.uptime())
	}
}

// Lost returns a channel that is closed when this node no longer leads in this term.
func (l *Leadership) Lost() <-chan struct{} { return l.lost }

// ReleaseStore tells the node that the caller no longer uses the store, which may then be replaced.
func (l *Leadership) ReleaseStore() { l.n.storeInUse.Unlock() }

// Append implements journal.Replicator: it proposes a batch of the journal.
func (l *Leadership) Append(batch []byte) error {
	l.mu.Lock()
	for (l.bytes > maxProposed || l.n.storage.replica.FullLogs() > maxFullLogs) && !l.isLost {
		l.wake.Wait()
	}
	l.proposed++
	l.bytes += len(batch)
	l.mu.Unlock()
	err := ErrNotLeader
	l.n.callUnless(l.lost, func() {
		l.n.mu.Lock()
		present := l.n.lead
		l.n.mu.Unlock()
		if present == l {
			if err = l.n.raft.Propose(batch); err != nil { // as while the lead is transferred
				err = fmt.Errorf("%w: %w", ErrNotLeader, err)
			}
		}
	})
	if err != nil {
		l.n.observed.proposalsRefused.Add(1)
		l.mu.Lock()
		l.proposed--
		l.bytes -= len(batch)
		l.mu.Unlock()
	}
	return err
}

// Sync implements journal.Replicator: it waits until all proposed batches are committed.
func (l *Leadership) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.committed < l.proposed && !l.isLost {
		l.wake.Wait()
	}
	if l.committed < l.proposed {
		return ErrNotLeader
	}
	return nil
}

// Store implements journal.Replicator.
func (l *Leadership) Store() error { return l.n.applyCommitted() }

// countCommitted counts a committed entry of the term. The first one is made by Raft and is empty.
func (l *Leadership) countCommitted(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes > 0 {
		l.committed++
		l.bytes -= bytes
		l.wake.Broadcast()
	}
	l.termCommitted = true
	l.markReady()
}

// extendLease makes the lease last for leaseTicks from the uptime asked, at which a majority was asked that has
// answered.
func (l *Leadership) extendLease(asked int64) {
	l.lease.Store(asked + int64(leaseTicks*tick))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.markReady()
}

// leaseOver reports whether the lease that begins at the uptime asked has ended already.
func (l *Leadership) leaseOver(asked int64) bool { return l.n.uptime() > asked+int64(leaseTicks*tick) }

// lastAsked returns the uptime at which the majority was asked that has answered last.
func (l *Leadership) lastAsked() int64 { return l.lease.Load() - int64(leaseTicks*tick) }

// markReady closes ready if the Leadership is ready. The caller holds mu.
func (l *Leadership) markReady() {
	if !l.isReady && l.termCommitted && l.lease.Load() > 0 {
		l.isReady = true
		close(l.ready)
	}
}

// expired reports whether the lease has ended.
func (l *Leadership) expired(now int64) bool {
	lease := l.lease.Load()
	return lease > 0 && now > lease
}

// wakeWaiters wakes the Appends that wait for the store.
func (l *Leadership) wakeWaiters() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake.Broadcast()
}

// end ends the Leadership.
func (l *Leadership) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isLost = true
	close(l.lost)
	l.wake.Broadcast()
}

// uptime returns the time since the node was made, in nanoseconds of the monotonic clock.
func (n *Node) uptime() int64 { return int64(time.Since(n.startedAt)) }

// requestLease asks a majority whether this node still leads. renewLease handles the answer. The owner calls it at each
// tick.
func (n *Node) requestLease() {
	n.raft.ReadIndex(binary.BigEndian.AppendUint64(nil, uint64(n.uptime())))
}

// renewLease extends the lease of the Leadership after a majority has answered the question asked. A single voter needs
// no answer.
func (n *Node) renewLease(asked []byte) {
	n.mu.Lock()
	lead := n.lead
	n.mu.Unlock()
	if lead == nil || len(asked) != 8 {
		return
	}
	at := int64(binary.BigEndian.Uint64(asked))
	if len(n.members.confState().GetVoters()) == 1 {
		at = int64(forever)
	}
	if !lead.leaseOver(at) {
		lead.extendLease(at)
	}
}

// forever is longer than a process lives.
const forever = 100 * 365 * 24 * time.Hour

// watchLease ends a Leadership whose lease has ended, even while the owner of Raft's state waits for a disk.
func (n *Node) watchLease() {
	ticker := time.NewTicker(tick / 5)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-n.closing:
			return
		}
		n.mu.Lock()
		lead := n.lead
		n.mu.Unlock()
		if lead == nil || !lead.expired(n.uptime()) {
			continue
		}
		n.log.Warn("this node no longer leads: no majority has answered in time", "node", n.o.ID, "time", leaseTicks*tick)
		n.updateState(func() {
			if n.lead == lead {
				n.endLeadership()
			}
		})
	}
}

// leadEnded reports whether this node leads and will serve nobody in this term, since its Leadership has ended.
func (n *Node) leadEnded() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lead == nil && n.ledTerm == n.term
}

// transferWhenEnded asks Raft to transfer the lead if the Leadership of this node has ended. If no other node can take
// over, this node gets the Leadership that its wrong clock has prevented. The owner calls it.
func (n *Node) transferWhenEnded() {
	n.mu.Lock()
	ended := n.lead == nil
	n.mu.Unlock()
	if !ended {
		return
	}
	status := n.raft.Status()
	if to := n.successor(&status, ""); to != 0 {
		n.raft.TransferLeader(to)
		return
	}
	n.updateState(func() { n.beginLeadership(true) })
}
