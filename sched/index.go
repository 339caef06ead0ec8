package sched

import (
	"math"

	"github.com/tidwall/btree"
)

// sortKey orders buckets: first by major, then by minor, both ascending. The user of an index says what they mean.
type sortKey struct{ major, minor int64 }

// firstKey is the smallest key.
var firstKey = sortKey{math.MinInt64, math.MinInt64}

func (k sortKey) less(o sortKey) bool {
	return k.major < o.major || k.major == o.major && k.minor < o.minor
}

// bucket is a first-in first-out list of the jobs of one key.
type bucket struct {
	key        sortKey
	head, tail uint32
	count      uint32
}

// Buckets come in chunks. So a pool of many millions grows without a copy of the present buckets, and without an
// allocation that the garbage collector charges to the verb under the lock.
const (
	bucketBits  = 7
	bucketChunk = 1 << bucketBits
)

// buckets is the pool of buckets that a shard's indexes share.
type buckets struct {
	chunks []*[bucketChunk]bucket
	fresh  uint32 // the buckets from here on were never used
	spare  uint32 // first of the free list through head; meaningless when spares is 0
	spares uint32 // buckets in that list
}

// at returns the bucket of a number that was allocated.
func (p *buckets) at(i uint32) *bucket { return &p.chunks[i>>bucketBits][i&(bucketChunk-1)] }

// alloc returns the number of an empty bucket with a key. It reuses freed buckets before it grows the chunks.
func (p *buckets) alloc(k sortKey) uint32 {
	i := p.spare
	if p.spares > 0 {
		p.spare = p.at(i).head
		p.spares--
	} else {
		if i = p.fresh; i&(bucketChunk-1) == 0 {
			p.chunks = append(p.chunks, new([bucketChunk]bucket))
		}
		p.fresh++
	}
	*p.at(i) = bucket{key: k, head: none, tail: none}
	return i
}

// free frees a bucket. An empty pool frees its memory.
func (p *buckets) free(i uint32) {
	p.at(i).head = p.spare
	p.spare = i
	p.spares++
	if p.spares == p.fresh && len(p.chunks) > 1 {
		*p = buckets{}
	}
}

// element is an element of an index's tree: a key and the number of its bucket.
type element struct {
	key    sortKey
	bucket uint32
}

func elementLess(x, y element) bool { return x.key.less(y.key) }

// index is an ordered set of buckets: a B-tree of distinct keys, not of jobs. The first and the last bucket are reached
// without the tree, which is made with the third bucket: a lane seldom has jobs of more than two due seconds. The last
// remaining bucket is kept when it empties, and takes the next key: a queue that alternates between no job and one job
// costs no tree operation.
type index struct {
	tree        *btree.BTreeG[element]
	first, last uint32
	keys        int // number of buckets, an empty one included
	jobs        int
}

func newIndex() index { return index{first: none, last: none} }

// degree is the tree's. 32 was the fastest for these elements.
const degree = 32

// min returns the smallest key that has jobs.
func (x *index) min(p *buckets) (sortKey, bool) {
	if x.jobs == 0 {
		return sortKey{}, false
	}
	return p.at(x.first).key, true
}

// head returns the first job; none for an empty index.
func (x *index) head(p *buckets) uint32 {
	if x.jobs == 0 {
		return none
	}
	return p.at(x.first).head
}

// tail returns the last job; none for an empty index.
func (x *index) tail(p *buckets) uint32 {
	if x.jobs == 0 {
		return none
	}
	return p.at(x.last).tail
}

// bucketFor returns the number of a key's bucket. It makes a missing bucket.
func (x *index) bucketFor(p *buckets, k sortKey) uint32 {
	if x.keys == 0 {
		x.first = p.alloc(k)
		x.last = x.first
		x.keys = 1
		return x.first
	}
	last := p.at(x.last)
	if last.key == k {
		return x.last
	}
	if x.jobs == 0 { // the kept bucket is empty: it takes the new key
		if x.tree != nil {
			x.tree.Set(element{k, x.last})
			x.tree.Delete(element{key: last.key})
		}
		last.key = k
		return x.last
	}
	first := p.at(x.first)
	if first.key == k {
		return x.first
	}
	beyond := last.key.less(k)
	if !beyond && x.tree != nil && first.key.less(k) {
		if e, ok := x.tree.Get(element{key: k}); ok {
			return e.bucket
		}
	}
	return x.addBucket(p, k, beyond, k.less(first.key))
}

// addBucket adds a bucket for a key that the index does not have, and returns its number. last and first report that
// the key is the largest or the smallest one. The tree is made with the third key.
func (x *index) addBucket(p *buckets, k sortKey, last, first bool) uint32 {
	if x.tree == nil && x.keys > 1 {
		x.tree = btree.NewBTreeGOptions(elementLess, btree.Options{NoLocks: true, Degree: degree})
		x.tree.Set(element{p.at(x.first).key, x.first})
		x.tree.Set(element{p.at(x.last).key, x.last})
	}
	b := p.alloc(k)
	if x.tree != nil {
		x.tree.Set(element{k, b})
	}
	x.keys++
	if last {
		x.last = b
	}
	if first {
		x.first = b
	}
	return b
}

// pushBack adds a job behind the jobs of its key.
func (x *index) pushBack(p *buckets, s *slab, k sortKey, job uint32) {
	i := x.bucketFor(p, k)
	b := p.at(i)
	r := s.at(job)
	r.bucket, r.prev, r.next = i, b.tail, none
	if b.tail != none {
		s.at(b.tail).next = job
	} else {
		b.head = job
	}
	b.tail = job
	b.count++
	x.jobs++
}

// pushFront adds a job ahead of the jobs of its key.
func (x *index) pushFront(p *buckets, s *slab, k sortKey, job uint32) {
	x.link(p, s, x.bucketFor(p, k), none, job)
}

// insert adds a job among the jobs of its key, in the order of their sequence numbers.
func (x *index) insert(p *buckets, s *slab, k sortKey, job uint32) {
	i, r := x.bucketFor(p, k), s.at(job)
	before := p.at(i).tail
	for before != none && s.at(before).seq > r.seq {
		before = s.at(before).prev
	}
	x.link(p, s, i, before, job)
}

// link adds a job to a bucket, behind the job before or, if before is none, as the first job. pushBack does the same at
// the end, where nearly all jobs come in.
func (x *index) link(p *buckets, s *slab, i, before, job uint32) {
	b, r := p.at(i), s.at(job)
	r.bucket, r.prev, r.next = i, before, b.head
	if before == none {
		b.head = job
	} else {
		r.next = s.at(before).next
		s.at(before).next = job
	}
	if r.next == none {
		b.tail = job
	} else {
		s.at(r.next).prev = job
	}
	b.count++
	x.jobs++
}

// remove removes a job.
func (x *index) remove(p *buckets, s *slab, job uint32) {
	r := s.at(job)
	b := p.at(r.bucket)
	if r.prev != none {
		s.at(r.prev).next = r.next
	} else {
		b.head = r.next
	}
	if r.next != none {
		s.at(r.next).prev = r.prev
	} else {
		b.tail = r.prev
	}
	b.count--
	x.jobs--
	if b.count == 0 && x.keys > 1 {
		x.dropBucket(p, r.bucket)
	}
}

// dropBucket frees an empty bucket of an index that has other buckets, and finds the first and the last bucket again.
func (x *index) dropBucket(p *buckets, i uint32) {
	if x.tree != nil {
		x.tree.Delete(element{key: p.at(i).key})
	}
	p.free(i)
	x.keys--
	if x.tree == nil { // there were two buckets
		x.first = x.first + x.last - i
		x.last = x.first
		return
	}
	if i == x.first {
		e, _ := x.tree.Min()
		x.first = e.bucket
	}
	if i == x.last {
		e, _ := x.tree.Max()
		x.last = e.bucket
	}
}

// free frees the kept bucket of an index that is no longer used.
func (x *index) free(p *buckets) {
	if x.keys > 0 {
		p.free(x.first)
	}
	*x = newIndex()
}

// minFrom returns the smallest key that has jobs and is not less than k.
func (x *index) minFrom(p *buckets, k sortKey) (found sortKey, ok bool) {
	switch {
	case x.jobs == 0 || p.at(x.last).key.less(k):
		return sortKey{}, false
	case !p.at(x.first).key.less(k):
		return p.at(x.first).key, true
	case x.tree == nil:
		return p.at(x.last).key, true
	}
	x.tree.Ascend(element{key: k}, func(e element) bool {
		found = e.key
		return false
	})
	return found, true
}

// headOf returns the first job of a key, or none.
func (x *index) headOf(p *buckets, k sortKey) uint32 {
	switch {
	case x.jobs == 0:
		return none
	case p.at(x.first).key == k:
		return p.at(x.first).head
	case p.at(x.last).key == k:
		return p.at(x.last).head
	case x.tree == nil:
		return none
	}
	if e, ok := x.tree.Get(element{key: k}); ok {
		return p.at(e.bucket).head
	}
	return none
}

// headFrom returns the first job from a key on, or none.
func (x *index) headFrom(p *buckets, s *slab, from sortKey) (first uint32) {
	first = none
	x.eachFrom(p, s, from, func(job uint32) bool {
		first = job
		return false
	})
	return first
}

// tailBut returns the last job that has another key, or none.
func (x *index) tailBut(p *buckets, other sortKey) (job uint32) {
	switch {
	case x.jobs == 0:
		return none
	case p.at(x.last).key != other:
		return p.at(x.last).tail
	case x.keys == 1:
		return none
	case x.tree == nil:
		return p.at(x.first).tail
	}
	job = none
	x.tree.Descend(element{key: other}, func(e element) bool {
		if e.key != other {
			job = p.at(e.bucket).tail
		}
		return job == none
	})
	return job
}

// eachFrom calls fn for the index's jobs from a key on, in order, until fn returns false.
func (x *index) eachFrom(p *buckets, s *slab, from sortKey, fn func(job uint32) bool) {
	if x.jobs == 0 {
		return
	}
	of := func(i uint32) bool {
		for job := p.at(i).head; job != none; job = s.at(job).next {
			if !fn(job) {
				return false
			}
		}
		return true
	}
	x.ascend(p, element{key: from}, func(e element) bool { return of(e.bucket) })
}

// ascend calls fn for the elements from a given one on, in order, until fn returns false.
func (x *index) ascend(p *buckets, from element, fn func(e element) bool) {
	if x.tree != nil {
		x.tree.Ascend(from, fn)
		return
	}
	ends := [...]uint32{x.first, x.last}
	for _, i := range ends[:x.keys] {
		if k := p.at(i).key; !k.less(from.key) && !fn(element{k, i}) {
			return
		}
	}
}

// jobsBefore counts the jobs of the keys that are less than k. It looks at no more than the given number of keys; more
// reports whether there are others.
func (x *index) jobsBefore(p *buckets, k sortKey, keys int) (n int, more bool) {
	if x.jobs == 0 {
		return 0, false
	}
	x.ascend(p, element{key: firstKey}, func(e element) bool {
		if keys--; keys < 0 || !e.key.less(k) {
			more = e.key.less(k)
			return false
		}
		n += int(p.at(e.bucket).count)
		return true
	})
	return n, more
}

// minOfEach returns the least minor of the keys that have jobs and whose minor is not less than from. It looks at the
// first such key of each major, from the largest major down, as long as budget lasts. It returns math.MaxInt64 if there
// is none.
func (x *index) minOfEach(p *buckets, from int64, budget *int) int64 {
	least := int64(math.MaxInt64)
	if x.jobs == 0 {
		return least
	}
	for major := p.at(x.last).key.major; *budget > 0; major = x.nextLower(p, major) {
		*budget--
		if k, ok := x.minFrom(p, sortKey{major, from}); ok && k.major == major {
			least = min(least, k.minor)
		}
		if major == p.at(x.first).key.major {
			break
		}
	}
	return least
}

// nextLower returns the largest major of the keys that is less than the given major. The index must have such a key.
func (x *index) nextLower(p *buckets, major int64) (lower int64) {
	if x.tree == nil {
		return p.at(x.first).key.major
	}
	x.tree.Descend(element{key: sortKey{major, math.MinInt64}}, func(e element) bool {
		lower = e.key.major
		return lower == major
	})
	return lower
}

// dueCounts counts by due second those ready jobs of a queue that have a priority. The ready index has these jobs in
// the order of their priorities. There are hardly ever any.
type dueCounts struct{ tree *btree.BTreeG[dueCount] }

type dueCount struct {
	due  int64
	jobs int
}

// add counts n more jobs of a due second; n may be negative.
func (d *dueCounts) add(due int64, n int) {
	if d.tree == nil {
		d.tree = btree.NewBTreeGOptions(func(x, y dueCount) bool { return x.due < y.due }, btree.Options{NoLocks: true, Degree: degree})
	}
	c, _ := d.tree.Get(dueCount{due: due})
	if c.jobs += n; c.jobs > 0 {
		d.tree.Set(dueCount{due, c.jobs})
	} else if d.tree.Delete(dueCount{due: due}); d.tree.Len() == 0 {
		d.tree = nil
	}
}

// min returns the earliest due second.
func (d *dueCounts) min() (due int64, ok bool) {
	if d.tree == nil {
		return 0, false
	}
	c, ok := d.tree.Min()
	return c.due, ok
}
