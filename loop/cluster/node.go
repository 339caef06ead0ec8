package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"treadle/loop/journal"
)

// The times of an election. A node that has not heard of a leader for one to two times electionTicks asks for votes.
// A leader that has not heard of a majority for one to two times electionTicks steps down;
// its Leadership has ended before.
const (
	tick           = 50 * time.Millisecond
	electionTicks  = 10
	heartbeatTicks = 2
	leaseTicks     = 7 // less than electionTicks by one for each end of a clock's tick, and one for the server to stop
)

// Bounds of the messages on their way to a follower, and of the entries that no majority has yet.
const (
	maxAppend      = 1 << 20
	maxInflight    = 64
	maxBytes       = 32 << 20
	maxUncommitted = 256 << 20
	maxFullLogs    = 8 // logs that wait for the store: beyond it no entries are appended
)

// ErrNotLeader is the error of a Leadership that has ended.
var ErrNotLeader = errors.New("this node no longer leads the cluster")

// Node is a node of a cluster. One goroutine owns Raft's state and its log.
type Node struct {
	o             Options
	log           *slog.Logger
	number        uint64 // in Raft, see member
	raft          *raft.RawNode
	storage       *storage
	links         links
	incoming      *journal.Incoming // a received snapshot that Raft has not seen yet; of the owner
	transport     *transport        // the links of a Node that Start has made
	received      chan *pb.Message
	calls         chan func() // the owner runs them
	closing       chan struct{}
	goroutines    sync.WaitGroup
	stop          sync.Once
	startedAt     time.Time
	awaitingPeers atomic.Bool          // the node takes no part yet: see transport.startWhenAllMet
	ticks         int                  // since the start; of the owner
	answeredAt    map[uint64]time.Time // when another node last answered a heartbeat, by number; of the owner
	ledTerm       uint64               // the term of the last Leadership; of the owner
	observed      observed
	clocks        clocks
	disk          diskSpeed
	servesCache   servesCache

	storeInUse        sync.Mutex // held from AwaitLeadership to Leadership.End, and while the store is replaced
	applying          sync.Mutex // held while the store changes or is replaced
	wakeUp            chan struct{}
	sendingSnapshot   atomic.Bool
	pinned            pin
	requestSlots      chan struct{} // a semaphore: maxRequests
	receivingSnapshot sync.Mutex    // held while a snapshot is received

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when role, leader, term, members, lead or failed changes
	role    raft.StateType
	leader  uint64
	term    uint64
	commit  uint64
	members *members    // as of commit; the owner alone writes it
	lead    *Leadership // nil: this node does not lead
	failed  error
}

// links carries messages to the other nodes. send never blocks: it drops messages that do not fit its queue. update
// sets the nodes.
type links interface {
	update(m *members)
	send(m *pb.Message)
	sendSnapshot(m *pb.Message, s *journal.Snapshot) error
	close()
}

// newNode makes a node on a log. known are the members that other nodes have named, for a node without a store. start
// starts it.
func newNode(o Options, s *storage, number uint64, known *members) (*Node, error) {
	_, stored := s.replica.Members()
	m, err := parseMembers(stored)
	if err != nil {
		return nil, err
	}
	if len(m.Nodes) == 0 {
		m = known
	}
	n := &Node{
		o: o, log: o.Log, number: number, storage: s, members: m, startedAt: time.Now(), answeredAt: make(map[uint64]time.Time),
		received: make(chan *pb.Message, 256), calls: make(chan func()), closing: make(chan struct{}),
		changed: make(chan struct{}), wakeUp: make(chan struct{}, 1), requestSlots: make(chan struct{}, maxRequests),
		clocks: clocks{now: time.Now, limit: o.ClockLimit, offsets: make(map[string]clockOffset)},
		disk:   diskSpeed{others: make(map[string]measuredSync)},
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

// start begins to take part. The messages go through l.
func (n *Node) start(l links) {
	n.links = l
	l.update(n.members)
	n.goroutines.Go(n.run)
	n.goroutines.Go(n.applyLoop)
	n.goroutines.Go(n.watchLease)
}

// run owns Raft until the node is closed or has failed.
func (n *Node) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	defer n.updateState(func() { n.endLeadership() })
	for {
		select {
		case <-ticker.C:
			n.tick()
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

// tick passes the time on to Raft.
func (n *Node) tick() {
	if n.awaitingPeers.Load() {
		return
	}
	n.raft.Tick()
	if n.raft.BasicStatus().RaftState == raft.StateLeader {
		n.requestLease()
		if n.ticks%electionTicks == 0 {
			n.promote()
			n.transferWhenEnded()
		}
	}
	n.ticks++
}

// process handles all that Raft has ready. It returns false when the node has failed.
func (n *Node) process() bool {
	for n.Err() == nil && n.raft.HasReady() {
		rd := n.raft.Ready()
		if err := n.handleReady(&rd); err != nil {
			n.fail(err)
			break
		}
		n.raft.Advance(rd)
	}
	return n.Err() == nil
}

// step passes a message on to Raft, which ignores those that it does not expect.
func (n *Node) step(m *pb.Message) {
	if n.filterMessage(m) {
		return
	}
	if err := n.raft.Step(m); err != nil {
		n.log.Debug("a message of another node is ignored", "type", m.GetType(), "error", err)
	}
}

// filterMessage notes the contact with the leader and the answer to a heartbeat, and drops what Raft must not see. It
// fails the node if a heartbeat shows that the node has lost acknowledged entries. It returns true if the message is
// dropped.
func (n *Node) filterMessage(m *pb.Message) (dropped bool) {
	if n.awaitingPeers.Load() {
		return true
	}
	switch m.GetType() {
	case pb.MsgPreVote, pb.MsgVote: // the process before may have heard of a leader with a lease
		return n.ticks < electionTicks
	case pb.MsgApp: // Raft sends again what the store cannot follow
		n.noteLeaderMessage(m, max(m.GetCommit(), m.GetIndex()+uint64(len(m.GetEntries()))))
		return len(m.GetEntries()) > 0 && n.storage.replica.FullLogs() > maxFullLogs
	case pb.MsgHeartbeatResp:
		n.answeredAt[m.GetFrom()] = time.Now()
	case pb.MsgHeartbeat:
		n.noteLeaderMessage(m, m.GetCommit())
		if last, _ := n.storage.LastIndex(); m.GetCommit() > last { // of a MemoryStorage: it never fails
			n.fail(fmt.Errorf("the log ends with entry %d, and this node has acknowledged up to entry %d: it lost some, remove the node and add another one", last, m.GetCommit()))
			return true
		}
	}
	return false
}

// noteLeaderMessage notes a message of the leader, which has the entries up to last. It ignores a message of an earlier
// term.
func (n *Node) noteLeaderMessage(m *pb.Message, last uint64) {
	if m.GetTerm() >= n.raft.BasicStatus().GetTerm() {
		n.observed.noteLeader(n.uptime(), last)
	}
}

// handleReady does what Raft asks for. A leader sends before it has written, since the others need not wait for its
// disk. Other nodes send after they have written.
func (n *Node) handleReady(rd *raft.Ready) error {
	n.updateRole(rd)
	leads := n.raft.BasicStatus().RaftState == raft.StateLeader
	if leads {
		n.sendAll(rd.Messages)
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		if err := n.install(rd); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := n.storage.save(rd.HardState, rd.Entries, rd.MustSync); err != nil {
		return err
	}
	if rd.MustSync {
		n.disk.add(time.Since(began))
	}
	if !leads {
		n.sendAll(rd.Messages)
	}
	if err := n.handleCommitted(rd.CommittedEntries); err != nil {
		return err
	}
	if last := len(rd.ReadStates) - 1; last >= 0 { // the others were asked before
		n.renewLease(rd.ReadStates[last].RequestCtx)
	}
	if n.storage.replica.FullLogs() > 1 {
		n.wakeApply()
	}
	return nil
}

// updateState runs do under mu and wakes all that wait for a change of the state.
func (n *Node) updateState(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
	close(n.changed)
	n.changed = make(chan struct{})
}

// updateRole copies role, leader and term from Raft. In each term that it leads the node gets a new Leadership.
func (n *Node) updateRole(rd *raft.Ready) {
	status := n.raft.BasicStatus()
	if rd.SoftState == nil && status.GetTerm() == n.term {
		return
	}
	n.updateState(func() {
		role, leader := n.role, n.leader
		n.role, n.leader, n.term = status.RaftState, status.Lead, status.GetTerm()
		if n.lead != nil && (n.role != raft.StateLeader || n.lead.term != n.term) {
			n.endLeadership()
		}
		n.beginLeadership(false)
		if leader != n.leader {
			n.observed.leaderLast.Store(0)
		}
		if role != n.role || leader != n.leader {
			n.log.Info("the role in the cluster has changed", "node", n.o.ID, "role", roleName(n.role),
				"leader", n.members.id(n.leader), "term", n.term, "before", roleName(role))
		}
	})
}

// beginLeadership begins the Leadership of a term that this node leads. A node with a wrong clock begins none, unless
// noSuccessor says that no other node can take over. The owner calls it, and holds mu.
func (n *Node) beginLeadership(noSuccessor bool) {
	if n.role != raft.StateLeader || n.ledTerm == n.term || n.clocks.wrong.Load() && !noSuccessor {
		return
	}
	n.ledTerm = n.term
	n.lead = &Leadership{n: n, term: n.term, ready: make(chan struct{}), lost: make(chan struct{})}
	n.lead.wake = sync.NewCond(&n.lead.mu)
	committed, err := n.storage.Term(n.commit)
	n.lead.termCommitted = err == nil && committed == n.term
}

// endLeadership ends the present Leadership, if there is one. The caller holds mu.
func (n *Node) endLeadership() {
	if l := n.lead; l != nil {
		n.lead = nil
		l.end()
	}
}

// handleCommitted handles committed entries. A Leadership is ready with the first entry of its term, which Raft makes
// itself.
func (n *Node) handleCommitted(entries []*pb.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	n.mu.Lock()
	n.commit = entries[len(entries)-1].GetIndex()
	lead := n.lead
	n.mu.Unlock()
	for _, e := range entries {
		size := len(e.GetData())
		if e.GetType() != pb.EntryNormal {
			if size = 0; n.changeMembers(e) {
				return errRemoved
			}
		}
		if lead != nil && e.GetTerm() == lead.term {
			lead.countCommitted(size)
		}
	}
	return nil
}

// sendAll sends messages. A leader whose Leadership has ended sends no heartbeats, which would keep the others from
// electing another one. A snapshot takes long, so a goroutine of its own sends it.
func (n *Node) sendAll(messages []*pb.Message) {
	for _, m := range messages {
		switch {
		case m.GetType() == pb.MsgHeartbeat && n.leadEnded():
		case m.GetType() != pb.MsgSnap:
			n.links.send(m)
		case n.sendingSnapshot.CompareAndSwap(false, true):
			n.goroutines.Go(func() { n.sendSnapshot(m) })
		default:
			n.raft.ReportSnapshot(m.GetTo(), raft.SnapshotFailure) // Raft asks again
		}
	}
}

// call runs do in the goroutine that owns Raft, and waits until it has run. If the node has ended, it returns false and
// does not run do.
func (n *Node) call(do func()) bool { return n.callUnless(nil, do) }

// callUnless is call that gives up when ended is closed: the owner may wait for the caller, see receiveSnapshot.
func (n *Node) callUnless(ended <-chan struct{}, do func()) bool {
	done := make(chan struct{})
	select {
	case n.calls <- func() { do(); close(done) }:
		<-done
		return true
	case <-n.closing:
	case <-ended:
	}
	return false
}

// fail ends a node that cannot continue. Err returns the error.
func (n *Node) fail(err error) {
	n.updateState(func() {
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
	n.goroutines.Wait()
	return n.storage.replica.Close()
}

// AwaitLeadership waits until this node leads the cluster and its store has every acknowledged group. The caller calls
// End when nothing uses the store any more. The error is that of ctx, or that of a node that has failed.
func (n *Node) AwaitLeadership(ctx context.Context) (*Leadership, error) {
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
			n.storeInUse.Lock()
			select {
			case <-lead.lost:
				n.storeInUse.Unlock()
				continue
			default:
				return lead, nil
			}
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
			return n.id(leader), nil
		}
		select {
		case <-changed:
		case <-n.closing:
			return "", errors.New("the node stops")
		case <-ctx.Done():
			return "", errors.New("no leader is known: a majority of the nodes must run and reach each other")
		}
	}
}

// LeaderIs reports whether the node with an id leads, as far as this node knows.
func (n *Node) LeaderIs(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.members.id(n.leader) == id
}

// AwaitOtherLeader waits until the leader is not the node with this id, this node ends or ctx ends. With the id "" it
// waits for any leader.
func (n *Node) AwaitOtherLeader(ctx context.Context, leader string) {
	for {
		n.mu.Lock()
		same, changed := n.members.id(n.leader) == leader, n.changed
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

// Replica returns the data directory, for the journal of a Leadership.
func (n *Node) Replica() *journal.Replica { return n.storage.replica }

// id returns the id of a node, or "".
func (n *Node) id(number uint64) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.members.id(number)
}
