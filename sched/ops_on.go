//go:build invariants

package sched

import "sync"

// guard is a shard's lock, with a count of the steps that were ever done under it, see op.
type guard struct {
	sync.Mutex
	steps    int
	begin    int // ops when it was taken
	maxSteps int // of any one that held it
}

// Lock implements sync.Locker.
func (g *guard) Lock() {
	g.Mutex.Lock()
	g.begin = g.steps
}

// Unlock implements sync.Locker.
func (g *guard) Unlock() {
	g.maxSteps = max(g.maxSteps, g.steps-g.begin)
	g.Mutex.Unlock()
}
