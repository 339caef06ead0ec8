package journal

import "math/bits"

// index finds the operation on a job in a gather's buffer. It is an open-addressing
// table with two words an entry. Clearing it counts up a generation, because that
// happens as often as all that a turn appended is undone within the turn.
type index struct {
	entries    []entry
	shift      uint8 // of the hash, for the table's size
	generation uint64
	count      int // entries of this generation
	used       int // count lately, for letting go of a table that is too large
}

// entry is one job. word holds, from the top, the generation, whether the job is
// new to the store, and where its operation is.
type entry struct {
	seq  uint64
	word uint64
}

const (
	atBits      = 39 // half a terabyte of buffer
	atMask      = 1<<atBits - 1
	freshBit    = 1 << atBits
	generations = 1 << (64 - atBits - 1)
	minEntries  = 64
)

func (e *entry) at() int     { return int(e.word & atMask) }
func (e *entry) fresh() bool { return e.word&freshBit != 0 }

// set says where the job's operation is and whether the job is new to the store.
func (e *entry) set(at int, fresh bool) {
	e.word = e.word&^(freshBit|atMask) | uint64(at)
	if fresh {
		e.word |= freshBit
	}
}

func (x *index) holds(e *entry) bool { return e.word>>(atBits+1) == x.generation }

// home is where the search for seq begins.
func (x *index) home(seq uint64) uint64 { return seq * 0x9e3779b97f4a7c15 >> x.shift }

// slot is where seq is, or where it goes.
func (x *index) slot(seq uint64) *entry {
	mask := uint64(len(x.entries) - 1)
	for i := x.home(seq); ; i++ {
		if e := &x.entries[i&mask]; !x.holds(e) || e.seq == seq {
			return e
		}
	}
}

// find returns seq's entry or nil. It is valid until the next change of the index.
func (x *index) find(seq uint64) *entry {
	if x.count == 0 {
		return nil
	}
	if e := x.slot(seq); x.holds(e) {
		return e
	}
	return nil
}

// add makes an entry for seq, which has none.
func (x *index) add(seq uint64) *entry {
	if 2*x.count >= len(x.entries) {
		x.resize(max(2*len(x.entries), minEntries))
	}
	x.count++
	x.used = max(x.used, x.count)
	e := x.slot(seq)
	*e = entry{seq: seq, word: x.generation << (atBits + 1)}
	return e
}

// remove takes seq's entry out and moves those up that had to go around it.
func (x *index) remove(seq uint64) {
	mask := uint64(len(x.entries) - 1)
	hole := x.home(seq) & mask
	for x.entries[hole].seq != seq || !x.holds(&x.entries[hole]) {
		hole = (hole + 1) & mask
	}
	x.count--
	for i := (hole + 1) & mask; x.holds(&x.entries[i]); i = (i + 1) & mask {
		if (i-x.home(x.entries[i].seq))&mask >= (i-hole)&mask {
			x.entries[hole] = x.entries[i]
			hole = i
		}
	}
	x.entries[hole] = entry{} // no generation is 0
}

func (x *index) resize(n int) {
	old := *x
	x.entries = make([]entry, n)
	x.shift = uint8(64 - bits.TrailingZeros(uint(n)))
	x.generation = 1
	for i := range old.entries {
		if e := &old.entries[i]; old.holds(e) {
			*x.slot(e.seq) = entry{seq: e.seq, word: e.word&(freshBit|atMask) | x.generation<<(atBits+1)}
		}
	}
}

// clear forgets all entries.
func (x *index) clear() {
	x.count = 0
	x.generation++
	if x.generation == generations {
		clear(x.entries)
		x.generation = 1
	}
}

// shrink lets go of a table that has long been too large. It follows a clear.
func (x *index) shrink() {
	if len(x.entries) > 16*max(x.used, minEntries) {
		x.entries, x.generation = nil, 1
	}
	x.used -= x.used / 8
}
