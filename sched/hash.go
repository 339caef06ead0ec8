package sched

// hash returns the seeded hash of a name or of a key. Names and keys are compared by it: two of them with one hash count
// as the same.
func (sh *shard) hash(b []byte) uint64 { return sh.s.seed.hash(b) }
