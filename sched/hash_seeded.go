//go:build !invariants

package sched

import "hash/maphash"

// hashSeed seeds the hashes of names. It differs in every scheduler, so that no peer can choose names of one hash.
type hashSeed struct{ maphash.Seed }

func newHashSeed() hashSeed { return hashSeed{maphash.MakeSeed()} }

func (h hashSeed) hash(b []byte) uint64 { return maphash.Bytes(h.Seed, b) }
