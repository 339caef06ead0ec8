package sched

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
)

// id is a name in a space whose names are unique over all queues.
type id struct {
	space Space
	name  string
}

// idShards is how many parts the table of global names has, each with its own lock.
const idShards = 16

// idTable is one part: the names of live jobs. Its lock may be taken under a shard's, and
// none under it.
type idTable struct {
	mu    sync.Mutex
	names map[id]struct{}
}

func (s *Scheduler) idTable(space Space, name []byte) *idTable {
	return &s.ids[(maphash.Bytes(s.seed, name)+uint64(space))%idShards]
}

// claimID takes a global name; false when a live job has it.
func (s *Scheduler) claimID(space Space, name []byte) bool {
	t := s.idTable(space, name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.names[id{space, string(name)}]; taken {
		return false
	}
	if t.names == nil {
		t.names = make(map[id]struct{})
	}
	t.names[id{space, string(name)}] = struct{}{}
	return true
}

func (s *Scheduler) freeID(n id) {
	t := s.idTable(n.space, []byte(n.name))
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.names, n)
	if len(t.names) == 0 {
		t.names = nil // a map keeps the memory of its largest size
	}
}

// leavers are peers that have left more awaits behind than can be ended at once.
type leavers struct {
	mu  sync.Mutex
	all []leaver
}

func (l *leavers) has(p *Peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, func(l leaver) bool { return l.peer == p })
}

type leaver struct {
	peer   *Peer
	awaits []JobRef
}

// leave ends the awaits of a peer that goes: some at once, oldest jobs first, many by the
// Ticks that follow and in any order, so that nobody else waits for it.
func (s *Scheduler) leave(now Time, p *Peer, awaits map[JobRef]int, sink Sink) {
	all := slices.AppendSeq(make([]JobRef, 0, len(awaits)), maps.Keys(awaits))
	if len(all) <= tickBatch {
		slices.SortFunc(all, func(a, b JobRef) int { return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Seq, b.Seq)) })
		for _, ref := range all {
			s.shards[ref.Shard].forgetAwait(now, p, ref, sink)
		}
		return
	}
	s.leavers.mu.Lock()
	s.leavers.all = append(s.leavers.all, leaver{p, all})
	s.leavers.mu.Unlock()
	s.alarmMono(0)
}

// buryBatch is how many awaits one Tick ends, so that due jobs do not wait for them.
const buryBatch = 16 * tickBatch

// bury ends awaits that peers left behind; true when there are more.
func (s *Scheduler) bury(now Time, sink Sink) bool {
	for room := buryBatch; room > 0; {
		s.leavers.mu.Lock()
		n := len(s.leavers.all)
		if n == 0 {
			s.leavers.mu.Unlock()
			return false
		}
		l := &s.leavers.all[n-1]
		k := min(room, len(l.awaits))
		peer, batch := l.peer, l.awaits[:k]
		l.awaits = l.awaits[k:]
		if len(l.awaits) == 0 {
			s.leavers.all[n-1] = leaver{}
			s.leavers.all = s.leavers.all[:n-1]
		}
		s.leavers.mu.Unlock()
		for _, ref := range batch {
			s.shards[ref.Shard].forgetAwait(now, peer, ref, sink)
		}
		room -= k
	}
	return true
}

// exhume ends, ahead of bury, what a peer that has left awaits of a job of this queue and
// name: who comes back and submits its jobs again must find their names free. false: there
// is no such job.
func (s *Scheduler) exhume(now Time, j *Submission, sink Sink) bool {
	ref, owner := s.shardOf(j.Queue).awaiter(j)
	if owner == nil || !s.leavers.has(owner) {
		return false
	}
	s.shards[ref.Shard].forgetAwait(now, owner, ref, sink)
	return true
}

// awaiter returns the job of a submission's name and the first peer that awaits it, or nil.
func (sh *shard) awaiter(j *Submission) (JobRef, *Peer) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(j.Queue)]
	if q == nil {
		return JobRef{}, nil
	}
	job, ok := sh.lookup(sh.s.tag(q.id, j.Space, j.Name), q, j.Space, j.Name)
	if !ok || len(sh.awaits[job]) == 0 {
		return JobRef{}, nil
	}
	return sh.ref(job, sh.slab.at(job)), sh.awaits[job][0].peer
}
