package sched

import (
	"errors"
	"fmt"
	"slices"
)

// everyLane returns a queue's lanes.
func (q *queue) everyLane() []*lane {
	if q.keyed == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(q.keyed.lanes), func(l *lane) bool { return l == nil })
}

// changing reports whether the Ticks are to change a queue's lanes.
func (c *checker) changing(q *queue) bool { return q.keyed != nil && q.keyed.change.active }

// keyed checks a queue's lanes: their jobs, what they count, and the levels in which they take turns.
func (c *checker) keyed(q *queue) error {
	k := q.keyed
	if k == nil {
		return nil
	}
	running, jobs, present, idle := c.keyedRuns(q), 0, 0, 0
	for _, l := range q.everyLane() {
		if err := c.lane(q, l, running[l.id]); err != nil {
			return fmt.Errorf("lane %x: %w", l.key, err)
		}
		jobs += l.jobs.jobs
		present += oneIf(l.generation == k.generation)
		idle += oneIf(l.idle)
	}
	for l := k.idle.first; l != nil; l = l.next {
		if idle--; !l.idle || l.next == nil && k.idle.last != l {
			return fmt.Errorf("lane %x is not idle, and among those that are, or the list ends early", l.key)
		}
	}
	if idle != 0 || k.idles > k.count {
		return fmt.Errorf("%d idle lanes are not in the list of %d, with %d others", idle, k.idles, k.count)
	}
	if n := len(q.everyLane()); n != k.count+k.idles || jobs != k.jobs || present != len(k.byKey) || n+len(k.free) != len(k.lanes) {
		return fmt.Errorf("%d lanes, %d jobs in them and %d keys are counted, %d, %d and %d are there", k.count+k.idles, k.jobs, len(k.byKey), n, jobs, present)
	}
	if k.change.active != slices.Contains(c.sh.changing, q) && !q.dropped {
		return errors.New("disagrees with the Ticks about its lanes")
	}
	return c.levels(k)
}

// keyedRuns counts the jobs that each lane counts as taken.
func (c *checker) keyedRuns(q *queue) map[uint32]int32 {
	running := make(map[uint32]int32)
	for _, w := range c.sh.watches {
		if w != nil && w.queue == q {
			for _, h := range w.held {
				running[h.lane]++
			}
		}
	}
	q.withheld.eachFrom(&c.sh.buckets, &c.sh.slab, firstKey, func(job uint32) bool {
		if r := c.sh.slab.at(job); r.flags&laned != 0 {
			running[r.laneID()]++
		}
		return true
	})
	if b := q.broadcast; b != nil && c.sh.slab.at(b.job).flags&laned != 0 {
		running[c.sh.slab.at(b.job).laneID()]++
	}
	return running
}

// lane checks a lane: its place in the tables, its count of running jobs, its level, and the keys of its jobs.
func (c *checker) lane(q *queue, l *lane, running int32) error {
	k := q.keyed
	switch {
	case k.lanes[l.id] != l || l.generation == k.generation && k.byKey[l.key] != l:
		return errors.New("is not found")
	case l.taken != running || l.taken < 0:
		return fmt.Errorf("counts %d running jobs, has %d", l.taken, running)
	case l.idle != (l.jobs.jobs == 0 && l.taken == 0):
		return errors.New("has no jobs and is not idle, or the other way round")
	case l.jobs.jobs == 0 && l.level != nil:
		return errors.New("has no jobs and takes turns")
	case l.generation != k.generation && !c.changing(q) && q.withheld.jobs == 0 && q.broadcast == nil:
		return errors.New("is of a key of before")
	}
	var err error
	l.jobs.eachFrom(&c.sh.buckets, &c.sh.slab, firstKey, func(job uint32) bool {
		r := c.sh.slab.at(job)
		if key := k.rule.find(unpack(c.sh.arena.view(r.bytes, int(r.size)))); l.generation == k.generation && c.sh.hash(key) != l.key {
			err = fmt.Errorf("job %d has the key %q", job, key)
		}
		return err == nil
	})
	if err != nil || c.changing(q) {
		return err
	}
	switch open := l.jobs.jobs > 0 && (k.limit == 0 || l.taken < k.limit); {
	case open != (l.level != nil):
		return fmt.Errorf("takes turns: %v, with %d jobs ready and %d running", l.level != nil, l.jobs.jobs, l.taken)
	case open && (l.level.shared != k.fair || l.weight != k.weightOf(l.key) || k.fair && l.turn >= l.weight):
		return fmt.Errorf("has had %d turns of %d in a level of its own: %v", l.turn, l.weight, !l.level.shared)
	}
	return nil
}

// levels checks the order of the levels and the rings of lanes in them.
func (c *checker) levels(k *keyedJobs) error {
	if err := k.open.Check(); err != nil {
		return err
	}
	shared, open := 0, 0
	for _, v := range k.open {
		shared += oneIf(v.shared)
		if v.first == nil || v.shared && k.levels[v.rank.key.major] != v || !v.shared && v.first != v.last {
			return fmt.Errorf("the level at %v is not found, or has no lane of its own", v.rank)
		}
		var prev *lane
		for l := v.first; l != nil; prev, l = l, l.next {
			open++
			at := c.sh.rankOf(l.jobs.head(&c.sh.buckets))
			if l.level != v || l.prev != prev || at.key.major != v.rank.key.major || !v.shared && at != v.rank {
				return fmt.Errorf("lane %x, whose first job is at %v, is in the level at %v", l.key, at, v.rank)
			}
		}
		if v.last != prev {
			return fmt.Errorf("the level at %v does not end at its last lane", v.rank)
		}
	}
	for _, l := range k.lanes {
		open -= oneIf(l != nil && l.level != nil)
	}
	if shared != len(k.levels) || open != 0 {
		return fmt.Errorf("%d levels are shared and %d are known, %d lanes too many are in them", shared, len(k.levels), open)
	}
	return nil
}
