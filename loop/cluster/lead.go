package cluster

import (
	"fmt"
	"sync"
)

// Lead is this node's time as leader, in one term. It is the journal.Replicator of a server.
type Lead struct {
	n     *Node
	term  uint64
	ready chan struct{} // closed when the first entry of the term is committed, and so all before it are
	lost  chan struct{} // closed at its end

	mu       sync.Mutex
	wake     *sync.Cond
	isReady  bool
	isLost   bool
	proposed int // entries
	done     int // committed ones of these
	bytes    int // of entries that are proposed and not committed
}

// maxProposed is how many bytes may be proposed and not committed when Append waits.
const maxProposed = 32 << 20

// Lost returns a channel that is closed when this node no longer leads in this term.
func (l *Lead) Lost() <-chan struct{} { return l.lost }

// End lets the store be replaced again: the caller no longer uses it.
func (l *Lead) End() { l.n.serving.Unlock() }

// Append proposes a batch of the journal, as journal.Replicator says.
func (l *Lead) Append(batch []byte) error {
	l.mu.Lock()
	for l.bytes > maxProposed && !l.isLost {
		l.wake.Wait()
	}
	l.proposed++
	l.bytes += len(batch)
	l.mu.Unlock()
	err := ErrNotLeader
	l.n.call(func() {
		l.n.mu.Lock()
		present := l.n.lead
		l.n.mu.Unlock()
		if present == l {
			if err = l.n.raft.Propose(batch); err != nil { // as while another node is asked to lead
				err = fmt.Errorf("%w: %w", ErrNotLeader, err)
			}
		}
	})
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
	if !l.isReady {
		l.isReady = true
		close(l.ready)
	}
}

// end ends the Lead.
func (l *Lead) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isLost = true
	close(l.lost)
	l.wake.Broadcast()
}
