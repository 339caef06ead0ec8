//go:build invariants

package sched

import "sync"

// guard is a shard's lock, with a count of the steps that were ever done under it, see op.
type guard struct {
	sync.Mutex
	ops   int
	begin int // ops when it was taken
	most  int // of any one that held it
}

// Lock implements sync.Locker.
func (g *guard) Lock() {
	g.Mutex.Lock()
	g.begin = g.ops
}

// Unlock implements sync.Locker.
func (g *guard) Unlock() {
	g.most = max(g.most, g.ops-g.begin)
	g.Mutex.Unlock()
}
