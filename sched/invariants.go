package sched

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// check derives again everything that the scheduler keeps twice, and returns the first disagreement. It is for tests:
// it holds all shard locks at once, its time grows with all that the scheduler has, and no verb may be under way.
func (s *Scheduler) check() error {
	awaits, topics, names := make(map[*Peer]map[JobRef]int), make(map[*Peer]map[topic]int), make(map[*Peer]int)
	queues, tallies, memory, leased := 0, 0, int64(0), 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		defer sh.mu.Unlock()
		queues += len(sh.byName)
		for _, q := range sh.queues {
			tallies += oneIf(q != nil && q.tally != &sh.sharedTally)
		}
		for k := range sh.arena.chunks {
			memory += allocated(len(sh.arena.chunks[k].buf))
		}
		for k := range sh.slab.chunks {
			memory += sh.slab.chunks[k].size()
		}
		c := checker{sh: sh, awaits: awaits, topics: topics, unreportedNames: names, leasedJobs: &leased, seen: make(map[uint32]string), used: make(map[uint32]bool)}
		if err := c.run(); err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	if n := s.queueCount.Load(); n != int64(queues) {
		return fmt.Errorf("%d queues are counted, %d are there", n, queues)
	}
	if n := s.Memory(); n != memory {
		return fmt.Errorf("%d bytes of chunks are counted, %d are there", n, memory)
	}
	if n := s.tallies.Load(); n != int64(tallies) || tallies > s.maxTallies {
		return fmt.Errorf("%d tallies are counted, %d are there, of at most %d", n, tallies, s.maxTallies)
	}
	for p, want := range awaits {
		if err := s.checkAwaits(p, want); err != nil {
			return err
		}
		if err := s.checkTopics(p, topics[p], names[p]); err != nil {
			return err
		}
	}
	if err := s.checkGlobalNames(); err != nil {
		return err
	}
	if err := s.checkLeases(leased); err != nil {
		return err
	}
	return s.checkLocks()
}

// checkAwaits compares the awaits of a peer with the awaits of the jobs. A departed peer may have some left.
func (s *Scheduler) checkAwaits(p *Peer, want map[JobRef]int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quota == nil {
		return nil
	}
	if len(p.awaits) != len(want) {
		return fmt.Errorf("peer %d awaits %d jobs, %d jobs are awaited by it", p.id, len(p.awaits), len(want))
	}
	for ref, n := range want {
		if p.awaits[ref] != n {
			return fmt.Errorf("peer %d awaits job %v %d times, the job says %d", p.id, ref, p.awaits[ref], n)
		}
	}
	return nil
}

// checkTopics compares the topics of a peer with the topics of the shards. It also counts the peer's charged bytes and
// ended watches again.
func (s *Scheduler) checkTopics(p *Peer, want map[topic]int, names int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quota == nil {
		return nil
	}
	costs := p.slots.len()*slotCost + len(p.watches)*watchCost + names*unreportedCost
	for t, n := range want {
		if !p.topics[t] {
			return fmt.Errorf("peer %d listens to %v and does not know", p.id, t)
		}
		costs += n * t.cost()
	}
	ended := 0
	for _, w := range p.watches {
		ended += oneIf(w.ended)
	}
	switch {
	case p.endedWatches != ended:
		return fmt.Errorf("peer %d counts %d ended watches, it has %d", p.id, p.endedWatches, ended)
	case len(p.topics) != len(want):
		return fmt.Errorf("peer %d listens to %v, the shards say %v", p.id, p.topics, want)
	case p.unreportedNames != names:
		return fmt.Errorf("peer %d remembers %d names, the shards say %d", p.id, p.unreportedNames, names)
	case p.charged != costs:
		return fmt.Errorf("peer %d has %d bytes registered, should have %d", p.id, p.charged, costs)
	}
	return nil
}

// checker is one check of one shard.
type checker struct {
	sh              *shard
	counts          map[*queue]queueCounts
	awaits          map[*Peer]map[JobRef]int
	seen            map[uint32]string // job -> where it stands
	used            map[uint32]bool   // buckets
	states          [finished + 1]int // jobs by state
	lastOfNames     int               // kept done jobs that are found by their names
	topics          map[*Peer]map[topic]int
	unreportedNames map[*Peer]int // number of each peer's unreported names
	leasedJobs      *int          // of all shards
}

func (c *checker) run() error {
	for _, f := range []func() error{
		c.slab, c.numbered, c.count, c.queues, c.watches, c.deadlines, c.parked, c.graph, c.pool, c.everyJob, c.policies, c.cron, c.names,
		c.arena, c.delayedQueues, c.lines, c.awaited, c.listened, c.unreported, c.leases,
	} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// stand notes the place in which a job stands. It is the job's only place.
func (c *checker) stand(job uint32, where string) error {
	if other, ok := c.seen[job]; ok {
		return fmt.Errorf("job %d stands in %s and in %s", job, other, where)
	}
	c.seen[job] = where
	return nil
}

// index checks an index: its tree, its buckets in order, their lists. It calls visit with each job
// and its bucket's key.
func (c *checker) index(x *index, where string, visit func(job uint32, r *record, k sortKey) error) error {
	order, err := c.order(x)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	jobs := 0
	for _, i := range order {
		b := c.sh.buckets.at(i)
		if c.used[i] {
			return fmt.Errorf("%s: bucket %d belongs to two indexes", where, i)
		}
		c.used[i] = true
		if b.count == 0 && x.keys > 1 {
			return fmt.Errorf("%s: empty bucket %v among others", where, b.key)
		}
		n, prev := uint32(0), none
		for job := b.head; job != none; job = c.sh.slab.at(job).next {
			r := c.sh.slab.at(job)
			if r.prev != prev || r.bucket != i {
				return fmt.Errorf("%s: job %d has prev %d bucket %d, want %d and %d", where, job, r.prev, r.bucket, prev, i)
			}
			if err := visit(job, r, b.key); err != nil {
				return fmt.Errorf("%s: job %d: %w", where, job, err)
			}
			if n, prev = n+1, job; n > b.count {
				break
			}
		}
		if n != b.count || b.tail != prev {
			return fmt.Errorf("%s: bucket %v counts %d and ends at %d, its list has %d and ends at %d", where, b.key, b.count, b.tail, n, prev)
		}
		jobs += int(n)
	}
	if jobs != x.jobs {
		return fmt.Errorf("%s: counts %d jobs, has %d", where, x.jobs, jobs)
	}
	return nil
}

// order returns an index's buckets in the order of its tree.
func (c *checker) order(x *index) ([]uint32, error) {
	var order []uint32
	switch {
	case x.tree != nil:
		var err error
		x.tree.Scan(func(e element) bool {
			k := c.sh.buckets.at(e.bucket).key
			if k != e.key || len(order) > 0 && !c.sh.buckets.at(order[len(order)-1]).key.less(k) {
				err = fmt.Errorf("the tree has %v for the bucket of %v, or out of order", e.key, k)
			}
			order = append(order, e.bucket)
			return err == nil
		})
		if err != nil {
			return nil, err
		}
	case x.keys > 0:
		order = []uint32{x.first, x.last}[:min(x.keys, 2)] // the tree comes with the third key
		if first, last := c.sh.buckets.at(x.first).key, c.sh.buckets.at(x.last).key; x.keys > 1 && !first.less(last) {
			return nil, fmt.Errorf("without a tree %v is ahead of %v", first, last)
		}
	}
	if len(order) != x.keys {
		return nil, fmt.Errorf("%d keys are counted, %d are there", x.keys, len(order))
	}
	if x.keys > 0 && (x.first != order[0] || x.last != order[x.keys-1]) {
		return nil, fmt.Errorf("first and last are %d and %d, want %d and %d", x.first, x.last, order[0], order[x.keys-1])
	}
	return order, nil
}

// queues checks the tables of queues against each other, and then each queue.
func (c *checker) queues() error {
	dropped := 0
	for id, q := range c.sh.queues {
		if q == nil {
			continue
		}
		if q.id != uint32(id) || !q.dropped && c.sh.byName[q.name] != q {
			return fmt.Errorf("queue %q stands at %d under id %d, or is not found by name", q.name, id, q.id)
		}
		if q.dropped {
			dropped++
		}
		if err := c.queue(q); err != nil {
			return fmt.Errorf("queue %q: %w", q.name, err)
		}
	}
	live := len(c.sh.queues) - len(c.sh.freeQueueIDs) - dropped
	if len(c.sh.byName) != live || len(c.sh.dropped) != dropped {
		return fmt.Errorf("%d queues by name and %d dropped, want %d and %d", len(c.sh.byName), len(c.sh.dropped), live, dropped)
	}
	return nil
}

// queue checks the places of a queue's jobs, and the queue's counts of them.
func (c *checker) queue(q *queue) error {
	if err := c.pending(q); err != nil {
		return err
	}
	if b := q.broadcast; b != nil {
		if r := c.sh.slab.at(b.job); r.state != broadcasting || r.container != q.id || !slices.Contains(c.sh.broadcasting, q) {
			return fmt.Errorf("job %d is broadcast with state %d, container %d", b.job, r.state, r.container)
		}
		if err := c.stand(b.job, "a broadcast"); err != nil {
			return err
		}
	}
	if err := c.keptJobs(q); err != nil {
		return err
	}
	if err := c.keyed(q); err != nil {
		return err
	}
	if q.matchDeferred != slices.Contains(c.sh.deferredMatches, q) || q.offers.active != slices.Contains(c.sh.offering, q) {
		return errors.New("disagrees with the Ticks about deferred work")
	}
	if got := (queueCounts{q.workers, q.busy, q.broadcastWorkers, q.nameOnly, q.running}); got != c.counts[q] {
		return fmt.Errorf("counts %+v, has %+v", got, c.counts[q])
	}
	if q.dropped && (q.workers > 0 || q.running > 0) {
		return errors.New("was dropped while it was served")
	}
	return nil
}

// pending checks the indexes of a queue's ready and delayed jobs.
func (c *checker) pending(q *queue) error {
	immediates, urgent, retrying, others, oldest := 0, 0, 0, make(map[int64]int), int64(math.MaxInt64)
	type place struct {
		name  string
		index *index
		state state
	}
	places := []place{{"ready", &q.ready, ready}, {"withheld", &q.withheld, ready}, {"long names", &q.longNames, ready},
		{"private", &q.private, ready}, {"by number", &q.byNumber, ready}, {"delayed", &q.delayed, delayed}}
	for _, l := range q.everyLane() {
		places = append(places, place{fmt.Sprintf("lane %x", l.key), &l.jobs, ready})
	}
	for _, x := range places {
		if err := c.index(x.index, x.name, func(job uint32, r *record, k sortKey) error {
			want := c.sh.standing(r)
			switch {
			case x.state == delayed:
				want = sortKey{r.due, int64(r.dueMillis())}
			case x.index == &q.byNumber:
				want = numberKey(r)
				if r.prev != none && c.sh.slab.at(r.prev).seq >= r.seq {
					return errors.New("is behind a later number")
				}
			}
			if r.state != x.state || k != want || r.container != q.id {
				return fmt.Errorf("state %d key %v container %d, want %d %v %d", r.state, k, r.container, x.state, want, q.id)
			}
			if x.state == ready && c.sh.readyFor(q, r) != x.index {
				return errors.New("is in the ready index of others")
			}
			if q.spaces&(1<<r.space) == 0 {
				return fmt.Errorf("space %d is not noted", r.space)
			}
			switch {
			case x.state != ready || r.due < firstDue:
			case x.index != &q.byNumber:
				oldest = min(oldest, k.minor)
			case job == q.byNumber.head(&c.sh.buckets):
				oldest = min(oldest, r.due)
			}
			if x.state == ready && r.flags&numbered != 0 && r.priority > 0 {
				urgent++
			}
			immediates += oneIf(r.flags&immediate != 0)
			retrying += oneIf(x.state == delayed && r.flags&hasHistory != 0)
			if x.state == ready && (r.priority != 0 || r.flags&laned != 0) && r.flags&immediate == 0 && x.index != &q.byNumber {
				others[r.due]++
			}
			return c.stand(job, "queue "+q.name)
		}); err != nil {
			return err
		}
	}
	if got := c.sh.oldestDue(q); got != oldest && len(places) < maxOldest/8 {
		return fmt.Errorf("the oldest ready job is due at %d, oldestDue says %d", oldest, got)
	}
	if q.prioritized.tree != nil {
		q.prioritized.tree.Scan(func(d dueCount) bool { others[d.due] -= d.jobs; return true })
	}
	for due, n := range others {
		if n != 0 {
			return fmt.Errorf("%d ready jobs with a priority that are due at %d are not counted", n, due)
		}
	}
	return q.pendingCounts(urgent, retrying, immediates)
}

// pendingCounts returns an error when a queue's counts of its pending jobs differ from the given counts.
func (q *queue) pendingCounts(urgent, retrying, immediates int) error {
	switch {
	case urgent != q.urgent:
		return fmt.Errorf("%d ready numbered jobs with a priority are counted, %d are there", q.urgent, urgent)
	case retrying != q.retrying:
		return fmt.Errorf("%d delayed jobs with a history are counted, %d are there", q.retrying, retrying)
	case immediates != q.immediate:
		return fmt.Errorf("%d immediate jobs are counted, %d are there", q.immediate, immediates)
	}
	return nil
}

// queueCounts is the numbers that a queue keeps of its watches.
type queueCounts struct{ workers, busy, broadcasts, nameOnly, running int }

// count counts the workers, broadcasts and running jobs of each queue by the watches and jobs, for comparison with the
// queues' own counts.
func (c *checker) count() error {
	c.counts = make(map[*queue]queueCounts)
	for _, w := range c.sh.watches {
		if w != nil {
			t := c.counts[w.queue]
			t.workers += oneIf(!w.ended)
			t.busy += oneIf(!w.ended && len(w.held) > 0)
			t.broadcasts += oneIf(w.takesBroadcasts)
			t.nameOnly += oneIf(!w.ended && w.peer.capabilities&NameOnly != 0)
			t.running += len(w.held)
			c.counts[w.queue] = t
		}
	}
	for _, q := range c.sh.queues {
		if q != nil && q.broadcast != nil {
			t := c.counts[q]
			t.running++
			c.counts[q] = t
		}
		if q != nil && q.leaseWatch != nil {
			t := c.counts[q]
			t.workers++
			t.busy++
			c.counts[q] = t
		}
	}
	return nil
}

// watches checks the numbers of watches, and that each held job and its watch agree.
func (c *checker) watches() error {
	live := 0
	for id, w := range c.sh.watches {
		if w == nil {
			continue
		}
		live++
		switch {
		case w.id != uint32(id) || w.shard != c.sh:
			return fmt.Errorf("watch %d stands at %d, or in another shard", w.id, id)
		case w.ended && (w.removable() || w.lineIndex >= 0 || w.takesBroadcasts):
			return fmt.Errorf("ended watch %d holds %d jobs at place %d in line", id, len(w.held), w.lineIndex)
		}
		for i, h := range w.held {
			job := h.job
			if r := c.sh.slab.at(job); r.state != reserved || r.container != w.id || r.heldIndex() != uint32(i) {
				return fmt.Errorf("job %d held by watch %d at %d says state %d container %d index %d", job, id, i, r.state, r.container, r.heldIndex())
			}
			if err := c.stand(job, fmt.Sprint("watch ", id)); err != nil {
				return err
			}
		}
	}
	if n := len(c.sh.watches) - len(c.sh.freeWatchIDs); n != live {
		return fmt.Errorf("%d watches by number, %d live", n, live)
	}
	return nil
}
