package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
)

// Health is the state of a node for metrics.
type Health struct {
	Role              string // leader, follower, candidate or learner
	Term              uint64
	Behind            uint64            // entries that the leader has and this node lacks, as far as this node knows
	Contact           time.Duration     // since the last message of a leader; of a leader, since it asked the majority that has answered last
	OthersBehind      map[string]uint64 // how many entries each other node lacks, by id; only on a leader
	ClockAhead        time.Duration     // how far the clock is ahead of the others, or behind if it is negative
	SnapshotsSent     uint64
	SnapshotsReceived uint64
	ProposalsRefused  uint64
}

// observed has what a node has counted and noted for its Health. Any goroutine may read it.
type observed struct {
	lastContact       atomic.Int64  // the uptime of the last message of a leader
	leaderLast        atomic.Uint64 // the last entry that the present leader is known to have; 0: none
	snapshotsSent     atomic.Uint64
	snapshotsReceived atomic.Uint64
	proposalsRefused  atomic.Uint64
}

// noteLeader notes a message of the leader, which has the entries up to last.
func (o *observed) noteLeader(now int64, last uint64) {
	o.lastContact.Store(now)
	o.leaderLast.Store(max(o.leaderLast.Load(), last)) // the owner of Raft's state alone writes it
}

// Health returns the state of the node for metrics. It takes up to healthTimeout while the node waits for its disk.
func (n *Node) Health() Health {
	s := n.ownStatus()
	h := Health{
		Role: s.Role, Term: s.Term, ClockAhead: n.clocks.ahead(), SnapshotsSent: n.observed.snapshotsSent.Load(),
		SnapshotsReceived: n.observed.snapshotsReceived.Load(), ProposalsRefused: n.observed.proposalsRefused.Load(),
	}
	n.mu.Lock()
	lead := n.lead
	h.Contact = n.contact()
	n.mu.Unlock()
	if has := n.observed.leaderLast.Load(); lead == nil && has > s.Last {
		h.Behind = has - s.Last
	}
	if lead == nil {
		return h
	}
	ended := make(chan struct{})
	timer := time.AfterFunc(healthTimeout, func() { close(ended) })
	defer timer.Stop()
	n.callUnless(ended, func() {
		last, _ := n.storage.LastIndex() // of a MemoryStorage: it never fails
		h.OthersBehind = make(map[string]uint64)
		for number, p := range n.raft.Status().Progress {
			if number != n.number {
				h.OthersBehind[n.members.id(number)] = last - min(last, p.Match)
			}
		}
	})
	return h
}

// healthTimeout bounds the wait of Health and of leaderServes: monitors give up after a few seconds.
const healthTimeout = time.Second

// Ready reports whether clients of this node reach a leader that serves. The text says why not, or which role the node
// has.
func (n *Node) Ready() (ok bool, text string) {
	s := n.ownStatus()
	switch {
	case s.Error != "":
		return false, "failed: " + s.Error
	case n.awaitingPeers.Load():
		n.transport.mu.Lock()
		missing := n.transport.neverMet()
		n.transport.mu.Unlock()
		return false, fmt.Sprintf("waiting until this node has met all nodes with which its cluster begins: %s%s",
			strings.Join(missing, " "), n.transport.problemText())
	case s.Leader == "" || s.Leader != s.ID && n.uptime()-n.observed.lastContact.Load() > int64(2*electionTicks*tick):
		return false, "no leader is known" + n.transport.problemText()
	case !n.leaderServes(s.Leader):
		return false, fmt.Sprintf("the leader %s does not serve yet: it reads its store", s.Leader)
	case s.Leader == s.ID:
		text = "ok: leader"
	default:
		text = fmt.Sprintf("ok: %s of %s, %d entries behind", s.Role, s.Leader, n.observed.leaderLast.Load()-min(n.observed.leaderLast.Load(), s.Last))
	}
	if wrong, ahead := n.clocks.wrong.Load(), n.clocks.ahead(); wrong {
		text += fmt.Sprintf("; its clock is %v from those of the others, so that it does not lead", ahead.Abs().Round(time.Millisecond))
	}
	return true, text
}

// servesCache is the last answer of a leader to the question whether it serves.
type servesCache struct {
	mu     sync.Mutex
	leader string
	serves bool
	seen   time.Time // when it answered
}

// How long the answers count that a leader serves, and that it does not.
const (
	servingValid    = time.Second
	notServingValid = 200 * time.Millisecond
)

// leaderServes reports whether the leader serves. It asks another node only if its last answer no longer counts.
func (n *Node) leaderServes(leader string) bool {
	if leader == n.o.ID {
		return n.transport.isServing()
	}
	v := &n.servesCache
	v.mu.Lock()
	defer v.mu.Unlock()
	valid := notServingValid
	if v.serves {
		valid = servingValid
	}
	if v.leader == leader && time.Since(v.seen) < valid {
		return v.serves
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	p, _ := n.member(leader)
	s, err := n.transport.askStatus(ctx, p)
	v.leader, v.serves, v.seen = leader, err == nil && s.Serves, time.Now()
	return v.serves
}

// isServing reports whether this node takes forwarded connections: its server is ready.
func (t *transport) isServing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dialLocal != nil
}

// Unreachable returns why other nodes cannot be reached, by id.
func (n *Node) Unreachable() map[string]string {
	n.transport.mu.Lock()
	defer n.transport.mu.Unlock()
	all := maps.Clone(n.transport.problems)
	maps.DeleteFunc(all, func(_, why string) bool { return why == "" })
	return all
}

// problemText returns why other nodes cannot be reached, as the end of a text, or "".
func (t *transport) problemText() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(t.problems)) {
		if why := t.problems[id]; why != "" {
			fmt.Fprintf(&b, "; %s: %s", id, why)
		}
	}
	return b.String()
}

func roleName(s raft.StateType) string {
	switch s {
	case raft.StateLeader:
		return "leader"
	case raft.StateFollower:
		return "follower"
	default:
		return "candidate"
	}
}
