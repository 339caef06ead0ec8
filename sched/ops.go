//go:build !invariants

package sched

import "sync"

// guard is a shard's lock with the number of steps that were ever done under it, see countSteps.
// Builds with the invariants tag also keep the largest number of one hold.
type guard struct {
	sync.Mutex
	steps int
}
