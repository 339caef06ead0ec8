package sched

import (
	"sync"
)

// globalName is a Global name: it is unique over all queues of its space.
type globalName struct {
	space Space
	name  string
}

// globalNameShards is the number of parts of the table of Global names. Each part has a lock.
const globalNameShards = 16

// globalNames is one part: the names of live jobs. Its lock may be taken under a shard's. No lock is
// taken under it.
type globalNames struct {
	mu    sync.Mutex
	names map[globalName]struct{}
}

func (s *Scheduler) globalNamesOf(space Space, name []byte) *globalNames {
	return &s.globalNames[(s.seed.hash(name)+uint64(space))%globalNameShards]
}

// takeGlobalName takes a Global name. It returns false when a live job has it.
func (s *Scheduler) takeGlobalName(space Space, name []byte) bool {
	t := s.globalNamesOf(space, name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.names[globalName{space, string(name)}]; taken {
		return false
	}
	if t.names == nil {
		t.names = make(map[globalName]struct{})
	}
	t.names[globalName{space, string(name)}] = struct{}{}
	return true
}

func (s *Scheduler) freeGlobalName(n globalName) {
	t := s.globalNamesOf(n.space, []byte(n.name))
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.names, n)
	if len(t.names) == 0 {
		t.names = nil // a map keeps the memory of its largest size
	}
}
