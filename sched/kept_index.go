package sched

import "github.com/tidwall/btree"

// keptIndex is the jobs of a line, by keptKey. No two jobs have the same key. So the tree has the jobs themselves, and
// a kept job takes no bucket. The zero keptIndex is empty.
type keptIndex struct{ tree *btree.BTreeG[keptElement] }

type keptElement struct {
	key sortKey
	job uint32
}

// count counts the jobs.
func (x *keptIndex) count() int {
	if x.tree == nil {
		return 0
	}
	return x.tree.Len()
}

// add adds a job.
func (x *keptIndex) add(k sortKey, job uint32) {
	if x.tree == nil {
		less := func(x, y keptElement) bool { return x.key.less(y.key) }
		x.tree = btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: degree})
	}
	x.tree.Set(keptElement{k, job})
}

// remove removes the job of a key. An empty index frees its memory.
func (x *keptIndex) remove(k sortKey) {
	if x.tree.Delete(keptElement{key: k}); x.tree.Len() == 0 {
		x.tree = nil
	}
}

// first returns the first job and its key. The job is none in an empty index.
func (x *keptIndex) first() (k sortKey, job uint32) {
	if x.tree == nil {
		return sortKey{}, none
	}
	e, _ := x.tree.Min()
	return e.key, e.job
}

// last returns the last job, or none.
func (x *keptIndex) last() (job uint32) {
	if x.tree == nil {
		return none
	}
	e, _ := x.tree.Max()
	return e.job
}

// firstFrom returns the first job from a key on, and its own key. The job is none when there is no such job.
func (x *keptIndex) firstFrom(from sortKey) (at sortKey, first uint32) {
	first = none
	x.eachFrom(from, func(k sortKey, job uint32) bool {
		at, first = k, job
		return false
	})
	return at, first
}

// eachFrom calls fn for the jobs from a key on, in order, until fn returns false.
func (x *keptIndex) eachFrom(from sortKey, fn func(k sortKey, job uint32) bool) {
	if x.tree != nil {
		x.tree.Ascend(keptElement{key: from}, func(e keptElement) bool { return fn(e.key, e.job) })
	}
}
