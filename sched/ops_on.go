//go:build invariants

package sched

import "sync"

// guard is a shard's lock, with a count of the operations that are done under it: steps of loops
// that depend on how much there is of something.
type guard struct {
	sync.Mutex
	ops  int // since it was taken
	most int // of any one that held it
}

// Lock implements sync.Locker.
func (g *guard) Lock() {
	g.Mutex.Lock()
	g.ops = 0
}

// Unlock implements sync.Locker.
func (g *guard) Unlock() {
	g.most = max(g.most, g.ops)
	g.Mutex.Unlock()
}

// op counts operations under the shard's lock.
func (sh *shard) op(n int) { sh.mu.ops += n }
