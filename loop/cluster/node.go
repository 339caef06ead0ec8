package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"treadle/loop/journal"
)

// The times of an election. A node that has not heard of a leader for one to two times electionTicks asks for votes.
// A leader that has not heard of a majority for electionTicks steps down.
const (
	tick           = 50 * time.Millisecond
	electionTicks  = 10
	heartbeatTicks = 2
)

// Bounds of what is on its way to a follower, and of what no majority has yet.
const (
	maxAppend      = 1 << 20
	maxInflight    = 64
	maxBytes       = 32 << 20
	maxUncommitted = 256 << 20
)

// ErrNotLeader is the error of a Lead that has ended.
var ErrNotLeader = errors.New("this node no longer leads the cluster")

// Node is a node of a cluster. One goroutine owns Raft's state and its log.
type Node struct {
	o        Options
	log      *slog.Logger
	number   uint64 // in Raft: the place of the id among all ids, from 1 on
	raft     *raft.RawNode
	storage  *storage
	all      *pb.ConfState
	links    links
	port     *transport // the links of a Node that Start has made
	received chan *pb.Message
	calls    chan func() // run by the owner
	closing  chan struct{}
	workers  sync.WaitGroup
	stop     sync.Once

	serving  sync.Mutex // held from Lead to Lead.End, and while the store is replaced
	applying sync.Mutex // held while the store changes, or is replaced
	wakeUp   chan struct{}
	sending  atomic.Bool // a snapshot
	taking   sync.Mutex  // held while a snapshot is received

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced with each change of the fields below
	role     raft.StateType
	leader   uint64
	term     uint64
	commit   uint64
	lead     *Lead // nil: this node does not lead
	failed   error
	incoming *journal.Incoming // a received snapshot that Raft has not seen yet
}

// links carries messages to the other nodes. send never waits; it drops what it cannot keep.
type links interface {
	send(m *pb.Message)
	sendSnapshot(m *pb.Message, s *journal.Snapshot) error
	close()
}

// newNode makes a node on a log. start begins it.
func newNode(o Options, s *storage) (*Node, error) {
	n := &Node{
		o: o, log: o.Log, number: o.number(o.ID), storage: s, all: &pb.ConfState{Voters: o.voters()},
		received: make(chan *pb.Message, 256), calls: make(chan func()), closing: make(chan struct{}),
		changed: make(chan struct{}), wakeUp: make(chan struct{}, 1),
	}
	hard, _, err := s.InitialState()
	if err != nil {
		return nil, err
	}
	n.term, n.commit = hard.GetTerm(), hard.GetCommit()
	n.raft, err = raft.NewRawNode(&raft.Config{
		ID: n.number, ElectionTick: electionTicks, HeartbeatTick: heartbeatTicks, Storage: s, Applied: s.replica.Applied().Index,
		MaxSizePerMsg: maxAppend, MaxCommittedSizePerReady: maxBytes, MaxUncommittedEntriesSize: maxUncommitted,
		MaxInflightMsgs: maxInflight, MaxInflightBytes: maxBytes,
		CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true, Logger: raftLog{o.Log},
	})
	return n, err
}

// start begins to take part.
func (n *Node) start(l links) {
	n.links = l
	n.workers.Go(n.run)
	n.workers.Go(n.applyLoop)
}

// run owns Raft until the node is closed or has failed.
func (n *Node) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	defer n.change(func() { n.endLead() })
	for {
		select {
		case <-ticker.C:
			n.raft.Tick()
		case m := <-n.received:
			n.step(m)
			for more := true; more; {
				select {
				case m := <-n.received:
					n.step(m)
				default:
					more = false
				}
			}
		case call := <-n.calls:
			call()
		case <-n.closing:
			return
		}
		if !n.process() {
			return
		}
	}
}

// process does what Raft asks for. It returns false when the node has failed.
func (n *Node) process() bool {
	for n.Err() == nil && n.raft.HasReady() {
		rd := n.raft.Ready()
		if err := n.handle(&rd); err != nil {
			n.fail(err)
			break
		}
		n.raft.Advance(rd)
	}
	return n.Err() == nil
}

// step passes a message on to Raft, which ignores those that it does not expect.
func (n *Node) step(m *pb.Message) {
	if err := n.raft.Step(m); err != nil {
		n.log.Debug("a message of another node is ignored", "type", m.GetType(), "error", err)
	}
}

// handle does what Raft asks for. A leader sends while it writes, as the others need not wait for its disk; everybody
// else sends what the disk has.
func (n *Node) handle(rd *raft.Ready) error {
	n.follow(rd)
	leads := n.raft.BasicStatus().RaftState == raft.StateLeader
	if leads {
		n.sendAll(rd.Messages)
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		if err := n.install(rd); err != nil {
			return err
		}
	}
	if err := n.storage.save(rd.HardState, rd.Entries, rd.MustSync); err != nil {
		return err
	}
	if !leads {
		n.sendAll(rd.Messages)
	}
	n.count(rd.CommittedEntries)
	if n.storage.replica.FullLogs() > 1 {
		n.wakeApply()
	}
	return nil
}

// change changes the fields under mu, and wakes everybody who waits for a change.
func (n *Node) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
	close(n.changed)
	n.changed = make(chan struct{})
}

// follow notes role, leader and term. Each term of a leader has a Lead of its own.
func (n *Node) follow(rd *raft.Ready) {
	status := n.raft.BasicStatus()
	if rd.SoftState == nil && status.GetTerm() == n.term {
		return
	}
	n.change(func() {
		role, leader := n.role, n.leader
		n.role, n.leader, n.term = status.RaftState, status.Lead, status.GetTerm()
		if n.lead != nil && (n.role != raft.StateLeader || n.lead.term != n.term) {
			n.endLead()
		}
		if n.role == raft.StateLeader && n.lead == nil {
			n.lead = &Lead{n: n, term: n.term, ready: make(chan struct{}), lost: make(chan struct{})}
			n.lead.wake = sync.NewCond(&n.lead.mu)
		}
		if role != n.role || leader != n.leader {
			n.log.Info("the role in the cluster has changed", "node", n.o.ID, "role", roleName(n.role),
				"leader", n.o.id(n.leader), "term", n.term, "before", roleName(role))
		}
	})
}

// endLead ends the present Lead. mu is held.
func (n *Node) endLead() {
	if l := n.lead; l != nil {
		n.lead = nil
		l.end()
	}
}

// count takes committed entries: a Lead is ready with the first one of its term, which Raft makes itself.
func (n *Node) count(entries []*pb.Entry) {
	if len(entries) == 0 {
		return
	}
	n.mu.Lock()
	n.commit = entries[len(entries)-1].GetIndex()
	lead := n.lead
	n.mu.Unlock()
	if lead == nil {
		return
	}
	for _, e := range entries {
		if e.GetTerm() == lead.term {
			lead.committed(len(e.GetData()))
		}
	}
}

// sendAll sends messages. A snapshot takes longer, and goes its own way.
func (n *Node) sendAll(messages []*pb.Message) {
	for _, m := range messages {
		switch {
		case m.GetType() != pb.MsgSnap:
			n.links.send(m)
		case n.sending.CompareAndSwap(false, true):
			n.workers.Go(func() { n.sendSnapshot(m) })
		default:
			n.raft.ReportSnapshot(m.GetTo(), raft.SnapshotFailure) // Raft asks again
		}
	}
}

// sendSnapshot sends the present store instead of the one that the message names, which is older.
func (n *Node) sendSnapshot(m *pb.Message) {
	defer n.sending.Store(false)
	began, status := time.Now(), raft.SnapshotFinish
	err := n.applyCommitted()
	var s *journal.Snapshot
	if err == nil {
		s, err = n.storage.replica.Snapshot()
	}
	if err == nil {
		m.Snapshot = &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: &s.Index, Term: &s.Term, ConfState: n.all}}
		err = errors.Join(n.links.sendSnapshot(m, s), s.Close())
	}
	if err != nil {
		status = raft.SnapshotFailure
		n.log.Warn("cannot send a snapshot", "to", n.o.id(m.GetTo()), "error", err)
	} else {
		n.log.Info("a snapshot is sent", "to", n.o.id(m.GetTo()), "entry", s.Index, "took", time.Since(began))
	}
	n.call(func() { n.raft.ReportSnapshot(m.GetTo(), status) })
}

// receiveSnapshot hands a snapshot that was received whole to Raft. It returns an error if Raft does not take it.
func (n *Node) receiveSnapshot(m *pb.Message, in *journal.Incoming) (err error) {
	done := n.call(func() {
		n.incoming = in
		n.step(m)
		n.process()
		if err = n.Err(); n.incoming != nil {
			n.incoming = nil
			err = errors.Join(err, errors.New("it is older than what this node has"))
		}
	})
	if !done {
		err = errors.New("the node stops")
	}
	return err
}

// install replaces store and log by the received snapshot. A server that still runs on the store ends first.
func (n *Node) install(rd *raft.Ready) error {
	in := n.incoming
	n.incoming = nil
	if in == nil {
		return errors.New("BUG: Raft has a snapshot that was not received")
	}
	n.serving.Lock()
	defer n.serving.Unlock()
	n.applying.Lock()
	defer n.applying.Unlock()
	if err := n.storage.install(rd.Snapshot, rd.HardState, in); err != nil {
		return err
	}
	n.mu.Lock()
	n.commit = rd.Snapshot.GetMetadata().GetIndex()
	n.mu.Unlock()
	n.log.Info("a snapshot of the leader is taken", "entry", n.commit)
	return nil
}

// call runs do in the goroutine that owns Raft, and waits. It returns false if the node has ended.
func (n *Node) call(do func()) bool {
	done := make(chan struct{})
	select {
	case n.calls <- func() { do(); close(done) }:
		<-done
		return true
	case <-n.closing:
		return false
	}
}

func (n *Node) wakeApply() {
	select {
	case n.wakeUp <- struct{}{}:
	default:
	}
}

// applyLoop brings committed entries into the store when logs are full, and forgets those before.
func (n *Node) applyLoop() {
	for {
		select {
		case <-n.wakeUp:
			before := n.storage.replica.Applied().Index
			if err := n.applyCommitted(); err != nil {
				n.fail(err)
				return
			}
			at := n.storage.replica.Applied().Index
			var err error
			n.call(func() { err = n.storage.compact(at, before, n.all) }) // a follower that is a little behind needs no snapshot
			if err != nil {
				n.fail(err)
				return
			}
		case <-n.closing:
			return
		}
	}
}

// applyCommitted brings all entries that are known to be committed into the store.
func (n *Node) applyCommitted() error {
	n.applying.Lock()
	defer n.applying.Unlock()
	n.mu.Lock()
	commit := n.commit
	n.mu.Unlock()
	return n.storage.apply(commit)
}

// fail ends a node that cannot go on. Err returns why.
func (n *Node) fail(err error) {
	n.change(func() {
		if n.failed == nil {
			n.failed = err
			n.log.Error("the node of the cluster has failed", "error", err)
		}
	})
	n.stop.Do(func() { close(n.closing) })
}

// Close stops the node.
func (n *Node) Close() error {
	n.stop.Do(func() { close(n.closing) })
	n.links.close()
	n.workers.Wait()
	return n.storage.replica.Close()
}

// Lead waits until this node leads the cluster and its store has every acknowledged group. The caller calls End when
// nothing uses the store any more. The error is that of ctx, or why the node has failed.
func (n *Node) Lead(ctx context.Context) (*Lead, error) {
	for {
		n.mu.Lock()
		lead, failed, changed := n.lead, n.failed, n.changed
		n.mu.Unlock()
		if failed != nil {
			return nil, failed
		}
		var ready, lost chan struct{}
		if lead != nil {
			ready, lost, changed = lead.ready, lead.lost, nil
		}
		select {
		case <-ready:
			if err := n.applyCommitted(); err != nil {
				n.fail(err)
				return nil, err
			}
			n.serving.Lock()
			return lead, nil
		case <-lost:
		case <-changed:
		case <-n.closing:
			return nil, n.Err()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Err returns why the node has failed, or nil.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// Leader waits until a leader is known, and returns its id.
func (n *Node) Leader(ctx context.Context) (string, error) {
	for {
		n.mu.Lock()
		leader, changed := n.leader, n.changed
		n.mu.Unlock()
		if leader != raft.None {
			return n.o.id(leader), nil
		}
		select {
		case <-changed:
		case <-n.closing:
			return "", errors.New("the node stops")
		case <-ctx.Done():
			return "", fmt.Errorf("no leader is known: %w", ctx.Err())
		}
	}
}

// AwaitChange waits until the leader is not the one of this id, the node ends or ctx is done.
func (n *Node) AwaitChange(ctx context.Context, leader string) {
	for {
		n.mu.Lock()
		same, changed := n.o.id(n.leader) == leader, n.changed
		n.mu.Unlock()
		if !same {
			return
		}
		select {
		case <-changed:
		case <-n.closing:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Replica returns the data directory, for the journal of a Lead.
func (n *Node) Replica() *journal.Replica { return n.storage.replica }

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

// number and id map the ids of nodes to those of Raft.
func (o *Options) number(id string) uint64 {
	return uint64(slices.IndexFunc(o.Peers, func(p Peer) bool { return p.ID == id }) + 1)
}

func (o *Options) id(number uint64) string {
	if number == 0 || number > uint64(len(o.Peers)) {
		return ""
	}
	return o.Peers[number-1].ID
}

func (o *Options) voters() (all []uint64) {
	for i := range o.Peers {
		all = append(all, uint64(i+1))
	}
	return all
}
