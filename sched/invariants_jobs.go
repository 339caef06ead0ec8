package sched

import (
	"fmt"
	"sort"
	"strconv"
)

// deadlines checks that the two deadline indexes hold exactly the reserved jobs.
func (c *checker) deadlines() error {
	visit := func(flag uint16) func(uint32, *record, sortKey) error {
		return func(_ uint32, r *record, k sortKey) error {
			if r.state != reserved || r.flags&(ownDeadline|untimed) != flag || k.minor != 0 || k.major%grain != 0 {
				return fmt.Errorf("state %d flags %b at key %v", r.state, r.flags, k)
			}
			return nil
		}
	}
	if err := c.index(&c.sh.defaultTimed, "default-timed", visit(0)); err != nil {
		return err
	}
	if err := c.index(&c.sh.ownTimed, "own-timed", visit(ownDeadline)); err != nil {
		return err
	}
	forever, endless, tasks, assigned := 0, 0, 0, 0
	for _, q := range c.sh.queues {
		if q != nil {
			assigned += q.reservedTasks
		}
	}
	for job := range c.seen {
		r := c.sh.slab.at(job)
		forever += oneIf(r.state == reserved && r.flags&untimed != 0)
		endless += oneIf(r.state == reserved && r.flags&untimed != 0 && r.flags&task == 0)
		tasks += oneIf(r.state == reserved && r.flags&task != 0)
	}
	if endless != c.sh.untimedJobs || tasks != assigned {
		return fmt.Errorf("%d jobs have no time-out, and %d tasks are reserved, %d and %d are counted", endless, tasks, c.sh.untimedJobs, assigned)
	}
	if n := c.sh.defaultTimed.jobs + c.sh.ownTimed.jobs + forever; n != c.states[reserved] {
		return fmt.Errorf("%d jobs have a deadline or need none, %d are reserved", n, c.states[reserved])
	}
	return nil
}

// parked checks that the index of parked jobs holds exactly the jobs in that state.
func (c *checker) parked() error {
	perQueue := make(map[uint32]int)
	if err := c.index(&c.sh.parked, "parked", func(job uint32, r *record, k sortKey) error {
		if r.state != parked || k.minor != 0 || k.major%grain != 0 {
			return fmt.Errorf("state %d at key %v", r.state, k)
		}
		perQueue[r.container]++
		if q := c.sh.queues[r.container]; int(r.parkedIndex()) >= len(q.parked) || q.parked[r.parkedIndex()] != job {
			return fmt.Errorf("is not at %d of the %d that its queue knows", r.parkedIndex(), len(q.parked))
		}
		return c.stand(job, "parked")
	}); err != nil {
		return err
	}
	for id, q := range c.sh.queues {
		if q != nil && len(q.parked) != perQueue[uint32(id)] {
			return fmt.Errorf("queue %q counts %d parked jobs, has %d", q.name, len(q.parked), perQueue[uint32(id)])
		}
	}
	if len(c.sh.freedLocks) > 0 {
		return fmt.Errorf("no job was woken for %d freed locks", len(c.sh.freedLocks))
	}
	return nil
}

// pool checks that each bucket is either in an index or spare.
func (c *checker) pool() error {
	p := &c.sh.buckets
	for i, n := p.spare, p.spares; n > 0; i, n = p.at(i).head, n-1 {
		if c.used[i] {
			return fmt.Errorf("bucket %d is spare and used, or twice spare", i)
		}
		c.used[i] = true
	}
	if len(c.used) != int(p.fresh) {
		return fmt.Errorf("%d of %d buckets are used or spare", len(c.used), p.fresh)
	}
	return nil
}

// slab counts the records again and follows the free lists.
func (c *checker) slab() error {
	s := &c.sh.slab
	live, empty := 0, 0
	open := make(map[int32]bool)
	for i, prev := s.open.first, noLink; i != noLink; prev, i = i, s.chunks[i].link.next {
		if s.chunks[i].link.prev != prev || open[i] {
			return fmt.Errorf("slab: the chain of open chunks is broken at %d", i)
		}
		open[i] = true
	}
	for i := range s.chunks {
		p := &s.chunks[i]
		if p.records == nil {
			continue
		}
		n := uint32(0)
		for j := range p.records {
			r := &p.records[j]
			c.states[r.state]++
			n += uint32(oneIf(r.state != free))
		}
		vacant := uint32(0)
		for j := p.free; j != none && vacant <= slabChunk; j = p.records[j].next {
			if p.records[j].state != free {
				return fmt.Errorf("slab: chunk %d has slot %d in use and free", i, j)
			}
			vacant++
		}
		if n != p.live || n+vacant != p.fresh || open[int32(i)] != (n < slabChunk) {
			return fmt.Errorf("slab: chunk %d counts %d live of %d, has %d and %d free, open %v", i, p.live, p.fresh, n, vacant, open[int32(i)])
		}
		live += int(n)
		empty += oneIf(n == 0)
	}
	if live != s.live || empty != s.empty {
		return fmt.Errorf("slab: counts %d live and %d empty chunks, has %d and %d", s.live, s.empty, live, empty)
	}
	return nil
}

// numbered checks the counts of the numbered jobs, and that exactly these jobs have the flag.
func (c *checker) numbered() error {
	var got stateCounts
	for slot := range uint32(len(c.sh.slab.chunks)) << slabBits {
		r := c.sh.slab.find(slot)
		if r == nil || r.state == free {
			continue
		}
		if (r.flags&numbered != 0) != c.sh.s.rules[r.space].Numbered {
			return fmt.Errorf("job %d of space %d has flags %b", slot, r.space, r.flags)
		}
		if r.flags&numbered == 0 {
			continue
		}
		if name, _ := unpack(c.sh.arena.view(r.bytes, int(r.size))); string(name) != strconv.FormatUint(r.seq, 10) {
			return fmt.Errorf("the job of number %d is called %q", r.seq, name)
		}
		got.ready += oneIf(r.state == ready)
		got.urgent += oneIf(r.state == ready && r.priority > 0)
		got.delayed += oneIf(r.state == delayed)
		got.reserved += oneIf(r.state == reserved)
	}
	if got != c.sh.numberedStats {
		return fmt.Errorf("numbered jobs: counts %+v, has %+v", c.sh.numberedStats, got)
	}
	return nil
}

func (c *checker) everyJob() error {
	if len(c.seen) != c.sh.slab.live {
		return fmt.Errorf("%d jobs stand somewhere, %d live", len(c.seen), c.sh.slab.live)
	}
	return nil
}

// names checks that the table has exactly the live jobs, and that it finds each of them.
func (c *checker) names() error {
	if kept := c.states[failed] + c.states[finished]; c.sh.names.count != c.sh.slab.live-c.states[freeing]-kept {
		return fmt.Errorf("names: %d, jobs: %d, of them freeing: %d, kept: %d", c.sh.names.count, c.sh.slab.live, c.states[freeing], kept)
	}
	if err := c.sh.names.check(); err != nil {
		return err
	}
	for job := range c.seen {
		r := c.sh.slab.at(job)
		q := c.sh.queueOf(r)
		name, _ := unpack(c.sh.arena.view(r.bytes, int(r.size)))
		if r.state == freeing || r.state == failed || r.state == finished {
			continue
		}
		if found, ok := c.sh.lookup(c.sh.s.nameHash(q.id, r.space, name), q, r.space, name); !ok || found != job {
			return fmt.Errorf("names: %q of queue %q is found as %d, %v, want %d", name, q.name, found, ok, job)
		}
	}
	return nil
}

// check counts the words of the segments again and compares them with the directory.
func (n *hashIndex) check() error {
	if len(n.dir) != 1<<n.depth {
		return fmt.Errorf("names: depth %d, %d entries", n.depth, len(n.dir))
	}
	total := 0
	for i := 0; i < len(n.dir); {
		s := n.dir[i]
		if s.depth > n.depth {
			return fmt.Errorf("names: a segment of depth %d below depth %d", s.depth, n.depth)
		}
		span := 1 << (n.depth - s.depth)
		for j := i; j < i+span; j++ {
			if i%span != 0 || j >= len(n.dir) || n.dir[j] != s {
				return fmt.Errorf("names: entry %d is not of the segment at %d", j, i)
			}
		}
		count := 0
		for _, w := range s.words {
			if w == 0 {
				continue
			}
			if count++; n.segmentOf(uint32(w>>32)) != s {
				return fmt.Errorf("names: hash %x is in the segment at %d", w>>32, i)
			}
		}
		if count != s.count {
			return fmt.Errorf("names: the segment at %d counts %d, has %d", i, s.count, count)
		}
		total += count
		i += span
	}
	if total != n.count {
		return fmt.Errorf("names: counts %d, has %d", n.count, total)
	}
	return nil
}

// arena checks that the bytes of jobs lie apart and that the numbers kept for each chunk are right.
func (c *checker) arena() error {
	a := &c.sh.arena
	live := make(map[uint32]int)
	refs := make([]uint32, 0, len(c.seen))
	for job := range c.seen {
		r := c.sh.slab.at(job)
		parts := [...][2]uint32{{r.bytes, r.size}, {}, {}}
		if r.flags&numbered != 0 {
			parts[0][1] += countsSize
		}
		if r.flags&task != 0 {
			parts[1] = [2]uint32{c.sh.slab.node(job).log, c.sh.slab.node(job).logSize}
		}
		if h := c.sh.histories[job]; r.flags&hasHistory != 0 {
			parts[1] = [2]uint32{h.bytes, h.size}
		}
		if ref, ok := c.sh.results[job]; ok {
			parts[2] = [2]uint32{ref.bytes, max(ref.size, 1)}
		}
		for _, p := range parts {
			ref, size := p[0], int(p[1])
			if size == 0 {
				continue
			}
			refs = append(refs, ref)
			chunk := &a.chunks[ref>>slotBits]
			live[ref>>slotBits]++
			if slot := ref & (1<<slotBits - 1); chunk.class == ownClass {
				if slot != 0 || size != len(chunk.buf) {
					return fmt.Errorf("arena: job %d has slot %d and %d bytes in its own chunk of %d", job, slot, size, len(chunk.buf))
				}
			} else if slot >= uint32(chunk.fresh) || size > classSize(int(chunk.class)) {
				return fmt.Errorf("arena: job %d has slot %d of %d used, %d bytes in class %d", job, slot, chunk.fresh, size, chunk.class)
			}
		}
	}
	sort.Slice(refs, func(i, j int) bool { return refs[i] < refs[j] })
	for i := 1; i < len(refs); i++ {
		if refs[i] == refs[i-1] {
			return fmt.Errorf("arena: two jobs share reference %x", refs[i])
		}
	}
	bytes, gone, empty := 0, 0, 0
	for i := range a.chunks {
		bytes += len(a.chunks[i].buf)
		gone += oneIf(a.chunks[i].buf == nil)
		empty += oneIf(a.chunks[i].buf != nil && a.chunks[i].live == 0)
		if int(a.chunks[i].live) != live[uint32(i)] {
			return fmt.Errorf("arena: chunk %d counts %d live, has %d", i, a.chunks[i].live, live[uint32(i)])
		}
	}
	if bytes != a.bytes || gone != len(a.spare) || empty != a.empty {
		return fmt.Errorf("arena: counts %d bytes, %d spare and %d empty chunks, has %d, %d and %d", a.bytes, len(a.spare), a.empty, bytes, gone, empty)
	}
	return nil
}
