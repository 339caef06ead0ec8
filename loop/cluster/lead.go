package cluster

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Lead is this node's time as leader, in one term. It is the journal.Replicator of a server.
//
// A Lead ends before another node can lead, even if this one does not hear of it: what has no group of its own, such as
// a job that is handed out or a submission that changes nothing, would otherwise be answered by two nodes. Nobody votes
// for another leader within electionTicks after it has heard of this one. So the Lead has a lease of leaseTicks from
// each moment at which a majority was asked and has answered since, and ends with it.
type Lead struct {
	n     *Node
	term  uint64
	ready chan struct{} // closed when the first entry of the term is committed, and so all before it are, and there is a lease
	lost  chan struct{} // closed at its end
	lease atomic.Int64  // the time on the node's clock at which the Lead ends; 0: it has not begun

	mu       sync.Mutex
	wake     *sync.Cond
	begun    bool // the first entry of the term is committed
	isReady  bool
	isLost   bool
	proposed int // entries
	done     int // committed ones of these
	bytes    int // of entries that are proposed and not committed
}

// maxProposed is how many bytes may be proposed and not committed when Append waits.
const maxProposed = 32 << 20

// Holds reports whether no other node can lead yet. What is answered must have been found out before the call: Lost is
// closed a little later, when the clock or Raft is looked at, and much later in a process that was stopped meanwhile.
func (l *Lead) Holds() bool {
	select {
	case <-l.lost:
		return false
	default:
		return !l.expired(l.n.clock())
	}
}

// Lost returns a channel that is closed when this node no longer leads in this term.
func (l *Lead) Lost() <-chan struct{} { return l.lost }

// End lets the store be replaced again: the caller no longer uses it.
func (l *Lead) End() { l.n.serving.Unlock() }

// Append proposes a batch of the journal, as journal.Replicator says.
func (l *Lead) Append(batch []byte) error {
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
			if err = l.n.raft.Propose(batch); err != nil { // as while another node is asked to lead
				err = fmt.Errorf("%w: %w", ErrNotLeader, err)
			}
		}
	})
	if err != nil {
		l.n.observed.refused.Add(1)
		l.mu.Lock()
		l.proposed--
		l.bytes -= len(batch)
		l.mu.Unlock()
	}
	return err
}

// Sync waits until all proposed batches are committed.
func (l *Lead) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.done < l.proposed && !l.isLost {
		l.wake.Wait()
	}
	if l.done < l.proposed {
		return ErrNotLeader
	}
	return nil
}

// committed counts a committed entry of the term. The first one is Raft's, and empty.
func (l *Lead) committed(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes > 0 {
		l.done++
		l.bytes -= bytes
		l.wake.Broadcast()
	}
	l.begun = true
	l.markReady()
}

// extend gives the Lead a lease from the time on that a majority has answered of.
func (l *Lead) extend(asked int64) {
	l.lease.Store(asked + int64(leaseTicks*tick))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.markReady()
}

// late reports whether an answer comes when the lease that it gives is over.
func (l *Lead) late(asked int64) bool { return l.n.clock() > asked+int64(leaseTicks*tick) }

// asked returns when the majority was asked that has answered last, on the node's clock.
func (l *Lead) asked() int64 { return l.lease.Load() - int64(leaseTicks*tick) }

// markReady closes ready when it is time. mu is held.
func (l *Lead) markReady() {
	if !l.isReady && l.begun && l.lease.Load() > 0 {
		l.isReady = true
		close(l.ready)
	}
}

// expired reports whether the lease has ended.
func (l *Lead) expired(now int64) bool {
	lease := l.lease.Load()
	return lease > 0 && now > lease
}

// applied wakes those who wait for the store.
func (l *Lead) applied() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake.Broadcast()
}

// end ends the Lead.
func (l *Lead) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isLost = true
	close(l.lost)
	l.wake.Broadcast()
}

// clock is the time since the node began, in nanoseconds.
func (n *Node) clock() int64 { return int64(time.Since(n.born)) }

// askLease asks a majority whether this node still leads; heard takes the answer. The owner calls it at each tick.
func (n *Node) askLease() {
	n.raft.ReadIndex(binary.BigEndian.AppendUint64(nil, uint64(n.clock())))
}

// heard takes answers of a majority. A node that is alone with its vote needs none.
func (n *Node) heard(asked []byte) {
	n.mu.Lock()
	lead := n.lead
	n.mu.Unlock()
	if lead == nil || len(asked) != 8 {
		return
	}
	at := int64(binary.BigEndian.Uint64(asked))
	if len(n.members.state().GetVoters()) == 1 {
		at = int64(forever)
	}
	if !lead.late(at) {
		lead.extend(at)
	}
}

// forever is longer than a process lives.
const forever = 100 * 365 * 24 * time.Hour

// watchLease ends a Lead whose lease is over, even while the owner of Raft's state waits for a disk.
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
		if lead == nil || !lead.expired(n.clock()) {
			continue
		}
		n.log.Warn("this node no longer leads: no majority has answered in time", "node", n.o.ID, "time", leaseTicks*tick)
		n.change(func() {
			if n.lead == lead {
				n.endLead()
			}
		})
	}
}

// resign has another node lead if this one still does for Raft, and has no Lead. The owner calls it.
func (n *Node) resign() {
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
	n.change(func() { n.beginLead(true) }) // in a term in which it had none, because of its clock
}
