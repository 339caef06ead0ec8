package sched

// hash returns the seeded hash of a name or of a key. Names and keys are compared by their hashes, so two names of the
// same hash count as one.
func (sh *shard) hash(b []byte) uint64 { return sh.s.seed.hash(b) }
