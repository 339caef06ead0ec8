package journal

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
)

// FirstNote is the first space whose records are no jobs but notes of the scheduler. Names
// are unique among the jobs of a queue and space, not among notes.
const FirstNote = 13

// namesakes finds jobs that have the name of a later one: an acknowledged end of theirs was
// lost, and no server would restore both.
type namesakes struct {
	seed  maphash.Seed
	names []nameOf
}

// nameOf is a job and the hash of its space, queue and name, which is long enough to stand
// for them.
type nameOf struct{ hash, more, seq uint64 }

func newNamesakes() *namesakes { return &namesakes{seed: maphash.MakeSeed()} }

func (n *namesakes) add(r *Record) {
	if r.Space >= FirstNote {
		return
	}
	var h maphash.Hash
	h.SetSeed(n.seed)
	_ = h.WriteByte(r.Space) // none of these fails
	_, _ = fmt.Fprintf(&h, "%d ", len(r.Queue))
	_, _ = h.Write(r.Queue)
	_, _ = h.Write(r.Name)
	sum := h.Sum64()
	_ = h.WriteByte(0)
	n.names = append(n.names, nameOf{sum, h.Sum64(), r.Seq})
}

// older is the jobs that have the name of a later one, by their Seq, and the last of the
// later ones.
func (n *namesakes) older() (seqs []uint64, later uint64) {
	slices.SortFunc(n.names, func(a, b nameOf) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.more, b.more), cmp.Compare(a.seq, b.seq))
	})
	for i := 1; i < len(n.names); i++ {
		if a, b := n.names[i-1], n.names[i]; a.hash == b.hash && a.more == b.more {
			seqs, later = append(seqs, a.seq), b.seq
		}
	}
	slices.Sort(seqs)
	return seqs, later
}

// damage tells of namesakes, if there are any.
func (n *namesakes) damage() []Damage {
	seqs, later := n.older()
	if len(seqs) == 0 {
		return nil
	}
	return []Damage{{File: storeName, Offset: -1, What: fmt.Sprintf(
		"%d jobs have the queue and name of a later job, the last of them %d and %d: their ends are lost", len(seqs), seqs[len(seqs)-1], later)}}
}
