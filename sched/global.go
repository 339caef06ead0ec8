package sched

import (
	"sync"
)

// id is a Global name: it is unique over all queues of its space.
type id struct {
	space Space
	name  string
}

// idShards is the number of parts of the table of Global names. Each part has a lock.
const idShards = 16

// idTable is one part: the names of live jobs. Its lock may be taken under a shard's. No lock is
// taken under it.
type idTable struct {
	mu    sync.Mutex
	names map[id]struct{}
}

func (s *Scheduler) idTable(space Space, name []byte) *idTable {
	return &s.ids[(s.seed.hash(name)+uint64(space))%idShards]
}

// claimID takes a Global name. It returns false when a live job has it.
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
