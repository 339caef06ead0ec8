package sched

import (
	"container/list"
	"errors"
	"fmt"
	"slices"
)

// delayedQueues checks that the heap has exactly the queues with delayed jobs, by their earliest.
func (c *checker) delayedQueues() error {
	for _, q := range c.sh.queues {
		if q == nil {
			continue
		}
		k, ok := q.delayed.min(&c.sh.buckets)
		in := q.heapIndex >= 0 && q.heapIndex < len(c.sh.delayedQueues) && c.sh.delayedQueues[q.heapIndex] == q
		if in != (ok && !q.dropped) || q.heapIndex >= 0 && !in || in && q.firstDelayed != k {
			return fmt.Errorf("delayed queues: queue %q at %d under %v, its first is %v, %v", q.name, q.heapIndex, q.firstDelayed, k, ok)
		}
	}
	return c.sh.delayedQueues.Check()
}

// lines checks the watches in line, and that no watch waits beside a job that it could have.
func (c *checker) lines() error {
	for _, q := range c.sh.queues {
		if q == nil {
			continue
		}
		for k, line := range q.lines {
			if err := line.Check(); err != nil {
				return err
			}
			for _, w := range line {
				if w.queue != q || w.ended || w.peer.class != class(k) {
					return fmt.Errorf("queue %q has a watch of %q in line %d, ended %v", q.name, w.queue.name, k, w.ended)
				}
			}
		}
	}
	for _, w := range c.sh.watches {
		if w != nil && !w.ended {
			if err := c.line(w); err != nil {
				return fmt.Errorf("peer %d in queue %q: %w", w.peer.id, w.queue.name, err)
			}
		}
	}
	return nil
}

// line checks a watch: a peer with slots is in line unless it is blocked or busy, and no job that
// it could be given is ready.
func (c *checker) line(w *watch) error {
	budget := maxClashes
	first := c.sh.jobFor(w, &budget)
	w.peer.mu.Lock()
	defer w.peer.mu.Unlock()
	p, q := w.peer, w.queue
	if line := q.lines[p.class]; w.lineIndex >= 0 && (w.lineIndex >= len(line) || line[w.lineIndex] != w) {
		return fmt.Errorf("thinks it is at %d of %d in line", w.lineIndex, len(line))
	}
	if p.blocked && p.unsent < p.window {
		return fmt.Errorf("is blocked with %d bytes unsent of %d", p.unsent, p.window)
	}
	if p.slots.len() == 0 {
		return nil
	}
	oldest := p.slots.first()
	if w.lineIndex >= 0 && w.seq > oldest.seq {
		return fmt.Errorf("is in line as of %d with a slot of %d", w.seq, oldest.seq)
	}
	if !p.blocked && w.lineIndex < 0 && (q.broadcast == nil || !slices.Contains(q.broadcast.busy, w)) {
		return errors.New("has slots and is not in line")
	}
	if first != none && !q.offers.active && !q.matchDeferred && !c.changing(q) && !p.behind && q.broadcast == nil && (oldest.wake || p.unsent < p.window) {
		return fmt.Errorf("waits with %d and %d jobs ready, for it the first is %d", q.ready.jobs, q.longNames.jobs, first)
	}
	return nil
}

// awaited checks that awaits are of live jobs with the flag, and notes them by peer.
func (c *checker) awaited() error {
	for _, w := range c.sh.watches {
		if w != nil {
			c.note(w.peer)
		}
	}
	flagged := 0
	for job := range c.seen {
		r := c.sh.slab.at(job)
		if r.flags&awaited == 0 {
			continue
		}
		flagged++
		for _, a := range c.sh.awaits[job] {
			c.note(a.peer)
			c.awaits[a.peer][c.sh.ref(job, r)]++
		}
		if n := len(c.sh.awaits[job]); n == 0 || n > MaxAwaits {
			return fmt.Errorf("job %d is awaited %d times", job, n)
		}
	}
	for _, t := range c.sh.notifications {
		for _, a := range t.waiting {
			c.note(a.peer)
			c.awaits[a.peer][t.ref]++
		}
	}
	if flagged != len(c.sh.awaits) {
		return fmt.Errorf("%d jobs have the flag, %d have awaits", flagged, len(c.sh.awaits))
	}
	return nil
}

// note makes room for the awaits and topics of a peer.
func (c *checker) note(p *Peer) {
	if c.awaits[p] == nil {
		c.awaits[p], c.topics[p] = make(map[JobRef]int), make(map[topic]int)
	}
}

// listened notes the topics by peer.
func (c *checker) listened() error {
	for t, all := range c.sh.topics {
		if len(all) == 0 || len(all) > MaxAwaits || c.sh.s.shardOf([]byte(t.queue)) != c.sh {
			return fmt.Errorf("topic %v has %d listeners, or is in another shard", t, len(all))
		}
		for _, a := range all {
			c.note(a.peer)
			c.topics[a.peer][t]++
		}
	}
	return nil
}

// checkLocks checks that locks, holders, waiters and woken jobs agree. Every lock must have a holder or a waiter, and
// no job may wait for a free lock.
func (s *Scheduler) checkLocks() error {
	l := &s.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	held, waits := 0, 0
	woken := make(map[string]int)
	for ref, name := range l.woken {
		woken[name]++
		if !s.knowsLocks(ref, delayed, ready, reserved, broadcasting) {
			return fmt.Errorf("%v was woken for lock %q, and is gone or does not know", ref, name)
		}
	}
	for name, k := range l.byName {
		if len(k.holders)+len(k.lines) == 0 {
			return fmt.Errorf("lock %q has neither holders nor waiters", name)
		}
		for ref := range k.holders {
			held++
			if !s.knowsLocks(ref, reserved) || !slices.Contains(l.held[ref], name) {
				return fmt.Errorf("lock %q is held by %v, which is not running or does not know", name, ref)
			}
		}
		for count, line := range k.lines {
			waits += line.waiters.Len()
			if open := slices.Contains(k.open, line); open != (count > len(k.holders)) || open != (line.heapIndex >= 0) || line.count != count {
				return fmt.Errorf("lock %q has %d holders, and its line for %d is open: %v", name, len(k.holders), count, open)
			}
			if slices.Contains(l.pending, name) { // the Ticks will wake jobs
				continue
			}
			if err := s.checkLockLine(name, k, &line.waiters, count, woken[name]); err != nil {
				return err
			}
		}
	}
	for _, names := range l.held {
		held -= len(names)
	}
	if held != 0 || waits != len(l.waits) {
		return fmt.Errorf("locks: %d holders too many, %d waiters, %d jobs wait", held, waits, len(l.waits))
	}
	return nil
}

// checkLockLine checks the waiters that wait for a lock with one count.
func (s *Scheduler) checkLockLine(name string, k *namedLock, line *list.List, count, woken int) error {
	turn := uint64(0)
	for e := line.Front(); e != nil; e = e.Next() {
		w := e.Value.(waiter)
		switch {
		case !s.knowsLocks(w.job, parked) || s.locks.waits[w.job] != e:
			return fmt.Errorf("lock %q is waited for by %v, which is not parked or does not know", name, w.job)
		case w.lock != name || w.count != count || w.turn <= turn:
			return fmt.Errorf("%v stands in the wrong line: %+v is in that of %d for lock %q", w.job, w, count, name)
		case len(k.holders)+woken < count:
			return fmt.Errorf("%v waits to be one of %d with lock %q, which %d have and %d were woken for", w.job, count, name, len(k.holders), woken)
		}
		turn = w.turn
	}
	if turn == 0 {
		return fmt.Errorf("a line for lock %q is empty", name)
	}
	return nil
}

// knowsLocks reports whether a job exists, in one of the states, with the flag by which its end reaches
// the locks.
func (s *Scheduler) knowsLocks(ref JobRef, states ...state) bool {
	r := s.shards[ref.Shard].slab.find(ref.Record)
	return r != nil && r.seq == ref.Seq && r.flags&locking != 0 && slices.Contains(states, r.state)
}

// checkGlobalNames checks that the table of Global names has exactly the names of the live jobs.
func (s *Scheduler) checkGlobalNames() error {
	names := make(map[globalName]int)
	for i := range s.shards {
		sh := &s.shards[i]
		for slot := range uint32(len(sh.slab.chunks)) << slabBits {
			if r := sh.slab.find(slot); r != nil && r.state != free && s.rules[r.space].Global {
				name, _ := unpack(sh.arena.view(r.bytes, int(r.size)))
				names[globalName{r.space, string(name)}]++
			}
		}
	}
	known := 0
	for i := range s.globalNames {
		known += len(s.globalNames[i].names)
	}
	for n, times := range names {
		if _, ok := s.globalNamesOf(n.space, []byte(n.name)).names[n]; !ok || times != 1 {
			return fmt.Errorf("the global name %v is known %v, of %d jobs", n, ok, times)
		}
	}
	if known != len(names) {
		return fmt.Errorf("%d global names are known, %d jobs have one", known, len(names))
	}
	return nil
}

// unreported checks that each unreported name is in the heap once and counted by its queue, and
// that no peer holds a job of such a name.
func (c *checker) unreported() error {
	if err := c.sh.byGraceEnd.Check(); err != nil {
		return err
	}
	all, perQueue := 0, make(map[*queue]int)
	for _, w := range c.sh.watches {
		if w == nil || w.unreportedCount() == 0 {
			continue
		}
		c.note(w.peer)
		for name, u := range w.unreportedByHash {
			if u.name != name || u.watch != w || c.sh.byGraceEnd[u.heapIndex] != u || u.runs < 1 || w.peer.class != nameOnly {
				return fmt.Errorf("peer %d does not know what it remembers of a name: %+v", w.peer.id, u)
			}
		}
		if u := w.suspended; u != nil && (u.watch != w || c.sh.byGraceEnd[u.heapIndex] != u) {
			return fmt.Errorf("peer %d is quiet for no reason", w.peer.id)
		}
		for _, h := range w.held {
			if w.unreportedByHash[c.sh.hash(c.sh.nameView(h.job))] != nil {
				return fmt.Errorf("peer %d holds %q, and has not reported another by that name", w.peer.id, c.sh.nameView(h.job))
			}
		}
		all += w.unreportedCount()
		c.unreportedNames[w.peer] += len(w.unreportedByHash)
		if !w.ended {
			perQueue[w.queue] += w.unreportedCount()
		}
	}
	if all != len(c.sh.byGraceEnd) {
		return fmt.Errorf("%d names are not reported, the heap has %d", all, len(c.sh.byGraceEnd))
	}
	for _, q := range c.sh.queues {
		if q != nil && q.unreportedCount != perQueue[q] {
			return fmt.Errorf("queue %q counts %d names that are not reported, has %d", q.name, q.unreportedCount, perQueue[q])
		}
	}
	return nil
}
