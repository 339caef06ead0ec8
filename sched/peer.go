package sched

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Peer is one connected party. Its owner, one goroutine at a time, calls the verbs
// that take it; other goroutines reach it only through its lock, to serve a slot
// or to deliver a result.
type Peer struct {
	id          SessionID
	holder      bool   // it is not connected, see NewHolder
	name        string // of a holder
	label       string // of a session: what people are told that it is
	skills      Skills
	watches     []*watch          // the owner's
	byQueue     map[string]*watch // the owner's
	cost        int               // see Looked; the owner's
	partialScan bool              // it was not looked through for all that it could have, see clashRoom; the owner's
	class       class

	mu         sync.Mutex
	slots      slotLine       // outstanding reserves, oldest first
	unsent     int            // bytes handed out since the last Flushed
	window     int            // unsent from which nothing more is handed out
	blocked    bool           // a job was kept back because of window
	behind     bool           // not all that is ready for it was handed out, see serveRoom
	awaits     map[JobRef]int // results it waits for, and how often
	topics     map[topic]bool // jobs whose data it receives
	stalled    []owedProceed  // senders kept waiting because of window
	unreported int            // names remembered for it, see unreported

	quota    *atomic.Int64 // the scheduler's registered, nil when the peer is forgotten
	charged  int           // bytes that slots, watches and topics take
	borrowed int           // what it has of quota for those beyond its own part
}

// Skills say which jobs a peer can be given.
type Skills uint8

// The skills.
const (
	// Wide peers take names and queues of any length, others names of up to 255 bytes and
	// queues of up to 256.
	Wide Skills = 1 << iota
	// Named peers know a job by its queue and name: they never hold two jobs, of
	// different spaces, that have both in common.
	Named
)

// maxShort is the longest name of a job for a peer that is not Wide, maxShortQueue that of a
// queue: a mark may stand before what such a peer calls it.
const (
	maxShort      = 255
	maxShortQueue = maxShort + 1
)

// SetLabel says what people are told about the peer, beside its session. Its owner calls
// it before any other verb.
func (p *Peer) SetLabel(label string) { p.label = label }

// Looked returns how many queues, held jobs, listeners and locks the owner's
// verbs have looked through since it was last called, the one queue of a peer of one aside, and a
// part of the slots and watches: what a peer costs that has very many.
func (p *Peer) TakeCost() int {
	n := p.cost
	p.cost = 0
	return n
}

// prune lets go of watches that ended while jobs were held, once these are gone.
func (p *Peer) prune() {
	n := len(p.watches)
	p.cost += n
	p.watches = slices.DeleteFunc(p.watches, func(w *watch) bool {
		w.shard.mu.Lock()
		defer w.shard.mu.Unlock()
		over := w.over()
		if over {
			delete(p.byQueue, w.queue.name)
		}
		return over
	})
	p.mu.Lock()
	p.refund((n - len(p.watches)) * watchCost)
	p.mu.Unlock()
}

// skimmed is how many slots or watches are looked through in the time in which one queue is
// that has to be locked: they lie side by side.
const entriesPerStep = 32

// slot is one outstanding Reserve.
type slot struct {
	tag  uint64
	seq  uint64 // age: smaller is older, over all peers
	wake bool   // wants to be woken, not served
}

// slotLine is a first-in first-out line of slots.
type slotLine struct {
	all  []slot
	head int
}

func (l *slotLine) len() int     { return len(l.all) - l.head }
func (l *slotLine) first() *slot { return &l.all[l.head] }

func (l *slotLine) has(tag uint64, wake bool) bool {
	for _, s := range l.all[l.head:] {
		if s.tag == tag && s.wake == wake {
			return true
		}
	}
	return false
}

// push moves the slots to the front only when that makes room for as many again as
// are moved.
func (l *slotLine) push(s slot) {
	if l.head > len(l.all)/2 && len(l.all) == cap(l.all) {
		n := copy(l.all, l.all[l.head:])
		l.all, l.head = l.all[:n], 0
	}
	l.all = append(l.all, s)
}

func (l *slotLine) pop() slot {
	s := l.all[l.head]
	l.head++
	if l.head == len(l.all) {
		l.all, l.head = l.all[:0], 0
		if cap(l.all) > 1024 { // a burst's memory is not kept
			l.all = nil
		}
	}
	return s
}

// drop takes the newest slot with tag out; false when it was served meanwhile.
func (l *slotLine) removeNewest(tag uint64) bool {
	for i := len(l.all) - 1; i >= l.head; i-- {
		if l.all[i].tag == tag && !l.all[i].wake {
			l.all = append(l.all[:i], l.all[i+1:]...)
			return true
		}
	}
	return false
}

// answer says what came of asking a peer for a slot.
type answer uint8

const (
	served  answer = iota // a slot was taken
	moved                 // its oldest slot is younger than the line thought
	nothing               // no slot, or it is to get nothing now
)

// claim takes the peer's oldest slot for a job of size bytes, if that slot is the
// one that the line knows by seq; next is the seq the line shall know it by.
func (p *Peer) claim(seq uint64, size int) (s slot, next uint64, a answer) {
	p.mu.Lock()
	s, next, a = p.take(seq, size)
	p.mu.Unlock()
	return s, next, a
}

// take is claim with the peer locked.
func (p *Peer) take(seq uint64, size int) (s slot, next uint64, a answer) {
	if p.slots.len() == 0 {
		return s, 0, nothing
	}
	oldest := p.slots.first()
	if p.unsent >= p.window && !oldest.wake {
		p.blocked = true
		return s, 0, nothing
	}
	if oldest.seq != seq {
		return s, oldest.seq, moved
	}
	s = p.slots.pop()
	p.refund(slotCost)
	if !s.wake {
		p.unsent += size
	}
	if p.slots.len() == 0 {
		return s, seq, served
	}
	return s, p.slots.first().seq, served
}

// watch is one peer serving one queue.
type watch struct {
	peer      *Peer
	queue     *queue
	shard     *shard
	id        uint32 // in the shard's watches
	seq       uint64 // the oldest slot of the peer, as the line last knew it
	at        int    // place in the queue's line of its class, -1: not in it
	broadcast bool   // registered for broadcasts
	departed  bool   // its peer is departed
	ended     bool   // unwatched, kept while jobs are held or unreported
	held      []held // the jobs that the peer holds from this queue

	unreported map[uint64]*unreported // by the hash of the name
	suspended  *unreported            // when it is over that the peer gets nothing from the queue
}

// watchOf returns the peer's watch of a queue, nil when it has none.
func (p *Peer) watchOf(name []byte) *watch {
	if len(p.watches) == 1 && p.watches[0].queue.name == string(name) { // nearly always
		return p.watches[0]
	}
	return p.byQueue[string(name)]
}

// over says that a watch has ended and nothing is held or remembered under it any more.
func (w *watch) over() bool { return w.ended && len(w.held)+w.unreportedCount() == 0 }

// remembers is how many names the watch remembers, the quiet one included.
func (w *watch) unreportedCount() int { return len(w.unreported) + count(w.suspended != nil) }

func (w *watch) ahead(o *watch) bool { return w.seq < o.seq }
func (w *watch) place() int          { return w.at }
func (w *watch) setPlace(i int)      { w.at = i }

// held is one job in the hands of a peer.
type held struct {
	job   uint32 // its slot
	order uint64 // the number of the run, the age of its slot; larger: handed out later to this peer
	tag   uint64 // of the Reserve that it answered
}

// await is one session waiting for a job's result.
type await struct {
	peer   *Peer
	tag    uint64
	onFail bool
}

// settle forgets one await of a job, from whichever goroutine ended it.
func (p *Peer) dropAwait(ref JobRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := p.awaits[ref]; {
	case n > 1:
		p.awaits[ref] = n - 1
	case n == 1: // 0: forgotten meanwhile
		delete(p.awaits, ref)
	}
}
