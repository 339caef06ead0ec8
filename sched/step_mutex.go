//go:build !invariants

package sched

import "sync"

// stepMutex is a shard's lock. It counts the steps that were ever done under it, see countSteps. Builds with the
// invariants tag also keep the most steps of one hold.
type stepMutex struct {
	sync.Mutex
	steps int
}
