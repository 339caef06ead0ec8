//go:build invariants

package sched

// hashSeed stands for the same seed in every process: a seed of the simulation is the same play everywhere.
type hashSeed struct{}

func newHashSeed() hashSeed { return hashSeed{} }

// hash is FNV-1a, with its upper bits mixed in.
func (hashSeed) hash(b []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range b {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return h ^ h>>32
}
