//go:build !invariants

package sched

import "sync"

// guard is a shard's lock, with a count of the steps that were ever done under it, see op. Builds
// with the invariants tag also note the most that anybody did who held it.
type guard struct {
	sync.Mutex
	steps int
}
