package sched

import "sync"

// Peer is one connected party. One goroutine at a time, its session's, calls the verbs that take
// it. Other goroutines reach it only under its lock, to serve a slot or to deliver a result.
type Peer struct {
	id           SessionID
	unconnected  bool   // it is not connected, see NewHolderPeer
	request      bool   // see NewRequestPeer
	name         string // name of a holder
	label        string // how logs and views name the peer of a session
	origin       string // its protocol and address: how histories name the peer
	capabilities Capabilities
	terms        *LeaseTerms       // terms of the leases of its jobs, see LeaseTo; nil: the peer holds its jobs itself
	watches      []*watch          // its watches; of the session's goroutine alone
	byQueue      map[string]*watch // the watches by queue name; of the session's goroutine
	endedWatches int               // number of its watches that have ended; of the session's goroutine
	cost         int               // see TakeCost; of the session's goroutine
	partialScan  bool              // its last scan stopped early, see maxPeerClashes; of the session's goroutine
	class        class

	mu              sync.Mutex
	slots           slotLine       // outstanding reserves, oldest first
	unsent          int            // bytes handed out since the last Flushed
	window          int            // at this many unsent bytes the peer is handed nothing more
	blocked         bool           // a job was not handed out because of window
	behind          bool           // more is ready for the peer than it was handed, see maxServe
	awaits          map[JobRef]int // the results that it awaits, and how often
	topics          map[topic]bool // the jobs whose data it receives
	stalled         []owedProceed  // the publishers that wait until unsent is below window
	unreportedNames int            // number of its unreported names

	quota    *quota // the scheduler's sharedQuota, nil when the peer is departed
	charged  int    // bytes of its slots, watches, topics and unreported names
	borrowed int    // bytes of quota that it has beyond its own part
}

// Capabilities say which jobs a peer can be given.
type Capabilities uint8

// The capabilities.
const (
	// LongNames peers take names and queues of any length. Other peers take names of up to 255 bytes and
	// queues of up to 256.
	LongNames Capabilities = 1 << iota
	// NameOnly peers know a job by its queue and name. A NameOnly peer never holds two jobs of different spaces with
	// the same queue and name.
	NameOnly
	// NoGrace peers report in time: a reservation ends with its time-out, without Options.Grace.
	NoGrace
	// AutoDelete peers leave no queue behind. The last of these peers that leaves a queue takes the queue with it, if
	// the queue has no jobs left, has only had jobs of Rules.Numbered, and no other peer has ever watched it.
	AutoDelete
)

// maxShort is the longest job name for a peer that is not LongNames. maxShortQueue is the longest queue name for such a
// peer: a mark may stand before the name that the peer uses.
const (
	maxShort      = 255
	maxShortQueue = maxShort + 1
)

// NewPeer returns the scheduler's side of a session with the given capabilities. The caller ends it with
// Disconnect.
func (s *Scheduler) NewPeer(id SessionID, capabilities ...Capabilities) *Peer {
	p := &Peer{id: id, window: s.window, quota: &s.sharedQuota}
	for _, k := range capabilities {
		p.capabilities |= k
	}
	p.class = classFor(p.capabilities)
	return p
}

// SetLabel sets how logs and views name the peer, beside its session (label), and how histories name it (origin). The
// caller calls it before any other verb.
func (p *Peer) SetLabel(label, origin string) { p.label, p.origin = label, origin }

// PeerView is what a peer asks for and does at one moment.
type PeerView struct {
	Queues  []string // the first queues that it serves
	More    int      // number of further queues that it serves
	Slots   int      // jobs that it waits for
	Running int      // jobs that it holds, of Queues and of queues between them that it served earlier
}

// View returns what the peer asks for and does, with at most the given number of its queues. Like the verbs, only the
// session's goroutine may call it.
func (p *Peer) View(queues int) (v PeerView) {
	for _, w := range p.watches {
		if len(v.Queues) == queues {
			break
		}
		w.shard.mu.Lock()
		v.Running += len(w.held)
		w.shard.mu.Unlock()
		if !w.ended {
			v.Queues = append(v.Queues, w.queue.name)
		}
	}
	v.More = len(p.watches) - p.endedWatches - len(v.Queues)
	p.mu.Lock()
	v.Slots = p.slots.len()
	p.mu.Unlock()
	return v
}

// Session returns the address of the peer's deliveries.
func (p *Peer) Session() SessionID { return p.id }

// TakeCost returns how many queues, held jobs, listeners and locks the peer's verbs have scanned since the last call. A
// slot or a watch counts as a fraction. The queue of a peer that serves only one queue does not count. The caller slows
// down a peer whose requests scan very many.
func (p *Peer) TakeCost() int {
	n := p.cost
	p.cost = 0
	return n
}

// Flushed sets how many bytes that were handed to the peer are still unsent. Jobs that back-pressure has kept back are
// handed out when the peer has room again. more reports whether more is ready for the peer: the caller calls Flushed
// again after other peers had their turn.
func (s *Scheduler) Flushed(now Time, p *Peer, unsent int, sink Sink) (more bool) {
	p.mu.Lock()
	p.unsent = unsent
	resume := (p.blocked || p.behind) && unsent < p.window
	if resume {
		p.blocked, p.behind = false, false
	}
	var stalled []owedProceed
	if unsent < p.window {
		stalled, p.stalled = p.stalled, nil
	}
	p.mu.Unlock()
	proceed(stalled, sink)
	if resume {
		s.serve(now, p, sink)
	}
	return resume && p.isBehind()
}

// Blocked reports whether a job was kept back from the peer because of its unsent bytes.
func (p *Peer) Blocked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocked
}

func (p *Peer) isBehind() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.behind
}

// entriesPerStep is how many slots, watches or clashing jobs are scanned in the time of one step, or of one unit of
// TakeCost. Such a scan takes no lock.
const entriesPerStep = 32

// slot is one outstanding Reserve or Sleep.
type slot struct {
	tag  uint64
	seq  uint64 // age: smaller is older, over all peers
	wake bool   // a Sleep: the answer is a Wake
}

// slotLine is a first-in first-out line of slots.
type slotLine struct {
	slots []slot
	head  int
}

func (l *slotLine) len() int     { return len(l.slots) - l.head }
func (l *slotLine) first() *slot { return &l.slots[l.head] }

func (l *slotLine) has(tag uint64, wake bool) bool {
	for _, s := range l.slots[l.head:] {
		if s.tag == tag && s.wake == wake {
			return true
		}
	}
	return false
}

// push appends a slot. It moves the slots to the front only when that makes room for as many more slots as it moves.
func (l *slotLine) push(s slot) {
	if l.head > len(l.slots)/2 && len(l.slots) == cap(l.slots) {
		n := copy(l.slots, l.slots[l.head:])
		l.slots, l.head = l.slots[:n], 0
	}
	l.slots = append(l.slots, s)
}

func (l *slotLine) pop() slot {
	s := l.slots[l.head]
	l.head++
	if l.head == len(l.slots) {
		l.slots, l.head = l.slots[:0], 0
		if cap(l.slots) > 1024 { // free a burst's memory
			l.slots = nil
		}
	}
	return s
}

// removeNewest removes the newest slot with tag. It returns false if the peer has no such slot, because the slot was
// served meanwhile.
func (l *slotLine) removeNewest(tag uint64) bool {
	for i := len(l.slots) - 1; i >= l.head; i-- {
		if l.slots[i].tag == tag && !l.slots[i].wake {
			l.slots = append(l.slots[:i], l.slots[i+1:]...)
			return true
		}
	}
	return false
}

// slotResult is the result of takeSlot.
type slotResult uint8

const (
	slotTaken   slotResult = iota // a slot was taken
	slotYounger                   // the line has the seq of a slot that is gone: the oldest slot is younger
	slotMissing                   // there is no slot, or the peer is blocked
)

// takeSlot takes the peer's oldest slot for a job of size bytes, if the line has the slot's seq for the peer. next is
// the seq of the oldest slot that is left, which the line is to have from now on.
func (p *Peer) takeSlot(seq uint64, size int) (s slot, next uint64, a slotResult) {
	p.mu.Lock()
	s, next, a = p.takeSlotLocked(seq, size)
	p.mu.Unlock()
	return s, next, a
}

// takeSlotLocked is takeSlot for a caller that holds the peer's lock.
func (p *Peer) takeSlotLocked(seq uint64, size int) (s slot, next uint64, a slotResult) {
	if p.slots.len() == 0 {
		return s, 0, slotMissing
	}
	oldest := p.slots.first()
	if p.unsent >= p.window && !oldest.wake {
		p.blocked = true
		return s, 0, slotMissing
	}
	if oldest.seq != seq {
		return s, oldest.seq, slotYounger
	}
	s = p.slots.pop()
	p.refund(slotCost)
	if !s.wake {
		p.unsent += size
	}
	if p.slots.len() == 0 {
		return s, seq, slotTaken
	}
	return s, p.slots.first().seq, slotTaken
}

// await is one request of a peer for the end of a job.
type await struct {
	peer   *Peer
	tag    uint64
	onFail bool
}

// dropAwait removes one await of a job. Any goroutine may end the job, so it takes the peer's lock.
func (p *Peer) dropAwait(ref JobRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := p.awaits[ref]; {
	case n > 1:
		p.awaits[ref] = n - 1
	case n == 1: // 0: the peer has left meanwhile
		delete(p.awaits, ref)
	}
}
