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
)

// Health is what metrics say of a node.
type Health struct {
	Role             string // leader, follower, candidate or learner
	Term             uint64
	Behind           uint64            // entries that the leader has and this node has not, as far as it knows
	Heard            time.Duration     // since a leader was heard last; of a leader, since a majority was asked that has answered
	Others           map[string]uint64 // how many entries the other nodes lack; of a leader alone
	Clock            time.Duration     // how far the clock is ahead of the others', or behind if it is less than 0
	SnapshotsSent    uint64
	SnapshotsTaken   uint64
	ProposalsRefused uint64
}

// observed is what a node remembers for its Health. Any goroutine may read it.
type observed struct {
	heard     atomic.Int64  // on the node's clock
	leaderHas atomic.Uint64 // the last entry that the present leader is known to have
	sent      atomic.Uint64 // snapshots
	taken     atomic.Uint64
	refused   atomic.Uint64 // proposals
}

// hearLeader notes that the leader has been heard, and that it has the entries up to last.
func (o *observed) hearLeader(now int64, last uint64) {
	o.heard.Store(now)
	o.leaderHas.Store(max(o.leaderHas.Load(), last)) // the owner of Raft's state alone writes it
}

// Health returns the state of the node for metrics. It takes up to healthTimeout while the node waits for its disk.
func (n *Node) Health() Health {
	s := n.own()
	h := Health{
		Role: s.Role, Term: s.Term, Clock: n.clocks.ahead(), SnapshotsSent: n.observed.sent.Load(),
		SnapshotsTaken: n.observed.taken.Load(), ProposalsRefused: n.observed.refused.Load(),
	}
	n.mu.Lock()
	lead := n.lead
	n.mu.Unlock()
	if h.Heard = time.Duration(n.clock() - n.observed.heard.Load()); lead != nil {
		h.Heard = time.Duration(max(0, n.clock()-lead.asked()))
	}
	if has := n.observed.leaderHas.Load(); lead == nil && has > s.Last {
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
		h.Others = make(map[string]uint64)
		for number, p := range n.raft.Status().Progress {
			if number != n.number {
				h.Others[n.members.id(number)] = last - min(last, p.Match)
			}
		}
	})
	return h
}

// healthTimeout is how long Health waits: monitors give up after some seconds.
const healthTimeout = time.Second

// Ready reports whether clients of this node reach a leader, with a line of text that says which role the node has.
func (n *Node) Ready() (ok bool, text string) {
	s := n.own()
	switch {
	case s.Error != "":
		return false, "failed: " + s.Error
	case n.waits.Load():
		n.port.mu.Lock()
		missing := n.port.missing()
		n.port.mu.Unlock()
		return false, fmt.Sprintf("waiting until this node has met all nodes with which its cluster begins: %s%s", strings.Join(missing, " "), n.port.trouble())
	case s.Leader == "" || s.Leader != s.ID && n.clock()-n.observed.heard.Load() > int64(2*electionTicks*tick):
		return false, "no leader is known" + n.port.trouble()
	case !n.leaderServes(s.Leader):
		return false, fmt.Sprintf("the leader %s does not serve yet: it reads its store", s.Leader)
	case s.Leader == s.ID:
		text = "ok: leader"
	default:
		text = fmt.Sprintf("ok: %s of %s, %d entries behind", s.Role, s.Leader, n.observed.leaderHas.Load()-min(n.observed.leaderHas.Load(), s.Last))
	}
	if wrong, ahead := n.clocks.wrong.Load(), n.clocks.ahead(); wrong {
		text += fmt.Sprintf("; its clock is %v from those of the others, so that it does not lead", ahead.Abs().Round(time.Millisecond))
	}
	return true, text
}

// servesView is whether a leader serves, seen at a time.
type servesView struct {
	mu     sync.Mutex
	leader string
	serves bool
	seen   time.Time
}

// How long it counts that a leader serves, and that it does not.
const (
	servesFor = time.Second
	idlesFor  = 200 * time.Millisecond
)

// leaderServes asks the leader whether it serves, but not at each call.
func (n *Node) leaderServes(leader string) bool {
	if leader == n.o.ID {
		return n.port.serving()
	}
	v := &n.servesView
	v.mu.Lock()
	defer v.mu.Unlock()
	valid := idlesFor
	if v.serves {
		valid = servesFor
	}
	if v.leader == leader && time.Since(v.seen) < valid {
		return v.serves
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	p, _ := n.member(leader)
	s, err := n.port.askStatus(ctx, p)
	v.leader, v.serves, v.seen = leader, err == nil && s.Serves, time.Now()
	return v.serves
}

// serving reports whether this node takes passed connections.
func (t *transport) serving() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pass != nil
}

// trouble returns why other nodes cannot be reached, for the end of a text, or "".
func (t *transport) trouble() string {
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
