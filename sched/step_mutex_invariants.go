//go:build invariants

package sched

import "sync"

// stepMutex is a shard's lock. It counts the steps that were ever done under it, see countSteps.
type stepMutex struct {
	sync.Mutex
	steps    int
	begin    int // steps when the lock was taken
	maxSteps int // most steps of one hold
}

// Lock implements sync.Locker.
func (g *stepMutex) Lock() {
	g.Mutex.Lock()
	g.begin = g.steps
}

// Unlock implements sync.Locker.
func (g *stepMutex) Unlock() {
	g.maxSteps = max(g.maxSteps, g.steps-g.begin)
	g.Mutex.Unlock()
}
