package journal

import "math/bits"

// index maps a job's Seq to its operation in a shard buffer. It is an open-addressing hash table
// with two words an entry. clear increments a generation instead of zeroing the table, because a
// buffer that cancels all its operations is cleared as often as once a turn.
type index struct {
	entries    []entry
	shift      uint8 // of the hash, for the size of the table
	generation uint64
	count      int // entries of this generation
	used       int // decaying maximum of count, by which shrink frees a table
}

// entry is one job. From the top bit, word holds the generation, whether the job is new to the
// store, and the offset of its operation.
type entry struct {
	seq  uint64
	word uint64
}

const (
	atBits      = 39 // offsets up to 512 GiB
	atMask      = 1<<atBits - 1
	freshBit    = 1 << atBits
	generations = 1 << (64 - atBits - 1)
	minEntries  = 64
)

func (e *entry) offset() int { return int(e.word & atMask) }
func (e *entry) fresh() bool { return e.word&freshBit != 0 }

// set stores the operation's offset and whether the job is new to the store.
func (e *entry) set(at int, fresh bool) {
	e.word = e.word&^(freshBit|atMask) | uint64(at)
	if fresh {
		e.word |= freshBit
	}
}

func (x *index) holds(e *entry) bool { return e.word>>(atBits+1) == x.generation }

// home returns the slot at which the search for seq begins.
func (x *index) home(seq uint64) uint64 { return seq * 0x9e3779b97f4a7c15 >> x.shift }

// slot returns seq's entry or the free entry for it.
func (x *index) slot(seq uint64) *entry {
	mask := uint64(len(x.entries) - 1)
	for i := x.home(seq); ; i++ {
		if e := &x.entries[i&mask]; !x.holds(e) || e.seq == seq {
			return e
		}
	}
}

// find returns seq's entry or nil. The entry is valid until the next change of the index.
func (x *index) find(seq uint64) *entry {
	if x.count == 0 {
		return nil
	}
	if e := x.slot(seq); x.holds(e) {
		return e
	}
	return nil
}

// add inserts an entry for seq, which must have none.
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

// remove deletes seq's entry and moves displaced entries back (backward-shift deletion).
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
	x.entries[hole] = entry{} // generations begin at 1
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

// clear removes all entries.
func (x *index) clear() {
	x.count = 0
	x.generation++
	if x.generation == generations {
		clear(x.entries)
		x.generation = 1
	}
}

// shrink frees a table that has long been too large. It must follow clear.
func (x *index) shrink() {
	if len(x.entries) > 16*max(x.used, minEntries) {
		x.entries, x.generation = nil, 1
	}
	x.used -= x.used / 8
}
