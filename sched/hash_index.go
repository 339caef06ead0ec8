package sched

// The geometry of the name table: extendible hashing over segments of 8 KiB, so that growing never moves more than one
// segment's words. A segment splits when it is four fifths full, since linear probing takes long in a fuller one.
const (
	segmentBits = 10
	segmentSize = 1 << segmentBits
	segmentFull = segmentSize * 4 / 5
	maxDepth    = 32 - segmentBits
)

// hashIndex finds a job by the hash of its name. A word is {hash, job+1}. The hash is the whole
// 32-bit hash: its low bits are the place in a segment, its high bits select the segment. The
// caller tells equal names from equal hashes.
type hashIndex struct {
	dir   []*segment // 1<<depth entries
	depth uint
	count int
}

type segment struct {
	words [segmentSize]uint64
	depth uint // the high bits of a hash that all words here share
	count int
}

func newHashIndex() hashIndex { return hashIndex{dir: []*segment{{}}} }

func (n *hashIndex) segmentOf(hash uint32) *segment {
	// In two steps: a shift by 32 of a uint32 is 0, as wanted at depth 0.
	return n.dir[hash>>(32-n.depth)]
}

// find returns the first job under hash that match accepts.
func (n *hashIndex) find(hash uint32, match func(job uint32) bool) (uint32, bool) {
	s := n.segmentOf(hash)
	for i := hash & (segmentSize - 1); ; i = (i + 1) & (segmentSize - 1) {
		w := s.words[i]
		if w == 0 {
			return 0, false
		}
		if uint32(w>>32) == hash && match(uint32(w)-1) {
			return uint32(w) - 1, true
		}
	}
}

// insert adds a job. It returns false when the table cannot grow. That happens only with hundreds of millions of names,
// or a broken hash.
func (n *hashIndex) insert(hash, job uint32) bool {
	s := n.segmentOf(hash)
	for s.count >= segmentFull {
		if !n.split(s, hash) {
			return false
		}
		s = n.segmentOf(hash)
	}
	s.put(hash, job)
	n.count++
	return true
}

func (s *segment) put(hash, job uint32) {
	i := hash & (segmentSize - 1)
	for s.words[i] != 0 {
		i = (i + 1) & (segmentSize - 1)
	}
	s.words[i] = uint64(hash)<<32 | uint64(job+1)
	s.count++
}

// remove removes the word {hash, job} and closes the gap.
func (n *hashIndex) remove(hash, job uint32) {
	s := n.segmentOf(hash)
	word := uint64(hash)<<32 | uint64(job+1)
	i := hash & (segmentSize - 1)
	for s.words[i] != word {
		if s.words[i] == 0 {
			panic("BUG: name to remove is not in the table")
		}
		i = (i + 1) & (segmentSize - 1)
	}
	for j := i; ; {
		j = (j + 1) & (segmentSize - 1)
		w := s.words[j]
		if w == 0 {
			break
		}
		// w may move to the gap at i when its own place is not between i and j.
		if home := uint32(w>>32) & (segmentSize - 1); (j-home)&(segmentSize-1) >= (j-i)&(segmentSize-1) {
			s.words[i] = w
			i = j
		}
	}
	s.words[i] = 0
	s.count--
	n.count--
	if s.count == 0 {
		n.merge(s, hash)
	}
}

// split divides a full segment by one more bit of the hashes.
func (n *hashIndex) split(s *segment, hash uint32) bool {
	if s.depth == maxDepth {
		return false
	}
	if s.depth == n.depth {
		dir := make([]*segment, 2*len(n.dir))
		for i, e := range n.dir {
			dir[2*i], dir[2*i+1] = e, e
		}
		n.dir = dir
		n.depth++
	}
	old := *s
	*s = segment{depth: old.depth + 1}
	sibling := &segment{depth: old.depth + 1}
	bit := uint32(1) << (31 - old.depth)
	for _, w := range old.words {
		if w == 0 {
			continue
		}
		if uint32(w>>32)&bit != 0 {
			sibling.put(uint32(w>>32), uint32(w)-1)
		} else {
			s.put(uint32(w>>32), uint32(w)-1)
		}
	}
	first, count := n.span(hash|bit, sibling.depth)
	for i := first; i < first+count; i++ {
		n.dir[i] = sibling
	}
	return true
}

// merge gives the directory entries of an empty segment to its sibling, if both have the same depth, and drops the
// segment. So removed names leave no memory behind.
func (n *hashIndex) merge(s *segment, hash uint32) {
	for s.count == 0 && s.depth > 0 {
		bit := uint32(1) << (32 - s.depth)
		first, count := n.span(hash^bit, s.depth)
		sibling := n.dir[first]
		if sibling.depth != s.depth {
			return
		}
		sibling.depth--
		mine, _ := n.span(hash, s.depth)
		for i := mine; i < mine+count; i++ {
			n.dir[i] = sibling
		}
		s = sibling
	}
	if n.count == 0 && n.depth > 0 {
		*n = newHashIndex()
	}
}

// span returns the directory entries whose hashes share their first depth bits with hash.
func (n *hashIndex) span(hash uint32, depth uint) (first, count int) {
	count = 1 << (n.depth - depth)
	return int(uint64(hash)>>(32-depth)) << (n.depth - depth), count
}
