package sched

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// indexedJob is a job of an index under test, with its key and its age in the key.
type indexedJob struct {
	key  sortKey
	age  int
	slot uint32
}

// indexModel is an index and the sorted slice that it is compared with.
type indexModel struct {
	t   *rapid.T
	sh  *shard
	x   *index
	all []indexedJob
	age int
}

func (w *indexModel) push(k sortKey) {
	slot, _ := w.sh.slab.alloc()
	w.x.pushBack(&w.sh.buckets, &w.sh.slab, k, slot)
	w.age++
	w.all = append(w.all, indexedJob{k, w.age, slot})
}

func (w *indexModel) remove(i int) {
	w.x.remove(&w.sh.buckets, &w.sh.slab, w.all[i].slot)
	w.sh.slab.free(w.all[i].slot)
	w.all = slices.Delete(w.all, i, i+1)
}

// check compares the whole order, the first job and the smallest second part.
func (w *indexModel) check() {
	slices.SortFunc(w.all, func(a, b indexedJob) int {
		if a.key != b.key {
			return 1 - 2*oneIf(a.key.less(b.key))
		}
		return a.age - b.age
	})
	i := 0
	c := checker{sh: w.sh, used: make(map[uint32]bool)}
	err := c.index(w.x, "index", func(slot uint32, _ *record, k sortKey) error {
		if i >= len(w.all) || w.all[i].slot != slot || w.all[i].key != k {
			w.t.Fatalf("job %d at place %d, want %v", slot, i, w.all)
		}
		i++
		return nil
	})
	if err == nil {
		err = c.pool()
	}
	if err != nil || i != len(w.all) {
		w.t.Fatalf("%d of %d jobs: %v", i, len(w.all), err)
	}
	k, ok := w.x.min(&w.sh.buckets)
	head := w.x.head(&w.sh.buckets)
	if len(w.all) == 0 {
		if ok || head != none {
			w.t.Fatal("an empty index has a first job")
		}
		return
	}
	if !ok || k != w.all[0].key || head != w.all[0].slot {
		w.t.Fatalf("min %v, head %d; want %v", k, head, w.all[0])
	}
	for a := range int64(5) {
		from := sortKey{a - 2, w.all[len(w.all)/2].key.minor}
		i := slices.IndexFunc(w.all, func(s indexedJob) bool { return !s.key.less(from) })
		if k, ok := w.x.minFrom(&w.sh.buckets, from); ok != (i >= 0) || ok && k != w.all[i].key {
			w.t.Fatalf("from %v: %v, %v, want number %d of %v", from, k, ok, i, w.all)
		}
	}
	w.checkKeys()
}

// checkKeys looks for the jobs of each key, before it, beside it, and by the second parts of the keys.
func (w *indexModel) checkKeys() {
	p, end := &w.sh.buckets, len(w.all)-1
	for i, s := range w.all {
		first := slices.IndexFunc(w.all, func(o indexedJob) bool { return o.key == s.key })
		if got := w.x.headOf(p, s.key); got != w.all[first].slot {
			w.t.Fatalf("the first job of %v is %d, want number %d of %v", s.key, got, first, w.all)
		}
		if k := s.key.next(); (i == end || k.less(w.all[i+1].key)) && w.x.headOf(p, k) != none {
			w.t.Fatalf("%v has a job, want none of %v", k, w.all)
		}
		if n, more := w.x.jobsBefore(p, s.key, len(w.all)); n != first || more {
			w.t.Fatalf("%d jobs before %v, more: %v, want %d of %v", n, s.key, more, first, w.all)
		}
		least, budget := int64(math.MaxInt64), len(w.all)
		for _, o := range w.all {
			if o.key.minor >= s.key.minor {
				least = min(least, o.key.minor)
			}
		}
		if got := w.x.minOfEach(p, s.key.minor, &budget); got != least {
			w.t.Fatalf("the least second part from %d on is %d, want %d of %v", s.key.minor, got, least, w.all)
		}
	}
	other := none
	for _, s := range w.all {
		if s.key != w.all[end].key {
			other = s.slot
		}
	}
	if got := w.x.tailBut(p, w.all[end].key); got != other {
		w.t.Fatalf("the last job of another key is %d, want %d of %v", got, other, w.all)
	}
}

// TestIndexAgainstSlice checks an index against a sorted slice: keys new and known, before, between
// and behind the others, jobs that leave from anywhere, and an index that empties and fills again.
func TestIndexAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sh := &shard{slab: newSlab()}
		x := newIndex()
		w := indexModel{t: t, sh: sh, x: &x}
		spread := rapid.SampledFrom([]int64{0, 1, 3, 100}).Draw(t, "spread")
		keys := rapid.Custom(func(t *rapid.T) sortKey {
			return sortKey{rapid.Int64Range(-1, 1).Draw(t, "a"), rapid.Int64Range(-spread, spread).Draw(t, "b")}
		})
		for range rapid.IntRange(1, 100).Draw(t, "ops") {
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 5 || len(w.all) == 0:
				w.push(keys.Draw(t, "key"))
			case op < 7:
				w.remove(0)
			case op < 9:
				w.remove(rapid.IntRange(0, len(w.all)-1).Draw(t, "which"))
			default:
				for len(w.all) > 0 {
					w.remove(len(w.all) - 1)
				}
			}
			w.check()
		}
		for len(w.all) > 0 {
			w.remove(0)
		}
		x.free(&sh.buckets)
		if sh.buckets.spares != sh.buckets.fresh {
			t.Fatalf("%d of %d buckets are spare", sh.buckets.spares, sh.buckets.fresh)
		}
	})
}

// TestIndexEmptyAndBack checks that one job that comes and goes costs no allocation, under one key
// and under changing keys, also after the tree was needed.
func TestIndexEmptyAndBack(t *testing.T) {
	f := func(name string, step int64, before ...sortKey) {
		t.Helper()
		sh := &shard{slab: newSlab()}
		x := newIndex()
		slot, _ := sh.slab.alloc()
		for _, k := range before {
			other, _ := sh.slab.alloc()
			x.pushBack(&sh.buckets, &sh.slab, k, other)
			defer x.remove(&sh.buckets, &sh.slab, other)
		}
		k := sortKey{0, 1000}
		if a := testing.AllocsPerRun(100, func() {
			k.minor += step
			x.pushBack(&sh.buckets, &sh.slab, k, slot)
			x.remove(&sh.buckets, &sh.slab, slot)
		}); a != 0 {
			t.Errorf("%s: %v allocations", name, a)
		}
	}
	f("one key", 0)
	f("moving keys", 1)
	f("moving keys behind another", 1, sortKey{0, 1})
	f("moving keys between others", 1, sortKey{0, 1}, sortKey{0, 1 << 40})
}
