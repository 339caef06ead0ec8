package sched

import "fmt"

// leases checks that the lease watches have exactly the jobs of the leases, and the counts of them.
func (c *checker) leases() error {
	lasting, saved := 0, make(map[*queue]int)
	for _, w := range c.sh.watches {
		if w == nil || !w.leased() {
			continue
		}
		if w.queue.leaseWatch != w || !w.ended {
			return fmt.Errorf("queue %q does not know watch %d of its leased jobs", w.queue.name, w.id)
		}
		for _, h := range w.held {
			l, r := c.sh.s.leases.get(h.number), c.sh.slab.at(h.job)
			if l == nil || l.shard != c.sh.id || l.record != h.job || l.end != 0 || r.flags&(ownDeadline|untimed) != ownDeadline {
				return fmt.Errorf("job %d is held under run %d, its lease is %+v", h.job, h.number, l)
			}
			isTask := r.flags&task != 0
			isSaved := !isTask && c.sh.s.journal != nil && c.sh.s.rules[r.space].Durable
			lasting += oneIf(isTask || isSaved)
			saved[w.queue] += oneIf(isSaved)
			*c.leasedJobs++
		}
	}
	for _, q := range c.sh.queues {
		if q != nil && (q.savedLeases != saved[q] || q.leaseWatch != nil && (len(q.leaseWatch.held) == 0 || c.sh.watches[q.leaseWatch.id] != q.leaseWatch)) {
			return fmt.Errorf("queue %q counts %d saved leases, has %d", q.name, q.savedLeases, saved[q])
		}
	}
	if lasting != c.sh.lastingLeases {
		return fmt.Errorf("%d lasting leases are counted, %d are there", c.sh.lastingLeases, lasting)
	}
	return nil
}

// checkLeases checks that the table has n live leases, and a place for each ended one that may be remembered.
func (s *Scheduler) checkLeases(n int) error {
	for i := range s.leases {
		t := &s.leases[i]
		n -= len(t.live)
		if t.ended != nil && len(t.ended) != maxEndedLeases {
			return fmt.Errorf("%d ended leases have a place", len(t.ended))
		}
	}
	if n != 0 {
		return fmt.Errorf("%d jobs more are leased than there are leases", n)
	}
	return s.checkLeaseNames()
}

// checkLeaseNames checks that the list of a name has exactly the live leases with this name.
func (s *Scheduler) checkLeaseNames() error {
	named := 0
	for i := range s.leases {
		for number, l := range s.leases[i].live {
			if l.number != number {
				return fmt.Errorf("the lease of run %d has the number %d", number, l.number)
			}
			named += oneIf(s.rules[l.name.space].LeaseNames && l.name != leaseName{})
		}
	}
	for i := range s.leaseNames {
		for name, l := range s.leaseNames[i].newest {
			if l.newer != nil {
				return fmt.Errorf("the newest lease of %q has a newer one", name.name)
			}
			for ; l != nil; l = l.older {
				if named--; l.name != name || s.leases.get(l.number) != l || l.older != nil && l.older.newer != l {
					return fmt.Errorf("a lease of %q is in the list of %q", l.name.name, name.name)
				}
			}
		}
	}
	if named != 0 {
		return fmt.Errorf("%d leases with names more than there are in the lists", named)
	}
	return nil
}
