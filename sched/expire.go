package sched

// Expire ends the peer's await of a job under a tag with Expired. With its last await the job is
// removed, if every submission of it had an await. Nothing happens when the peer does not await the
// job under that tag.
func (s *Scheduler) Expire(now Time, p *Peer, tag uint64, space Space, queueName, name []byte, sink Sink) {
	sh := s.shardOf(queueName)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queueName)]
	if q == nil {
		return
	}
	job, ok := sh.lookup(s.tag(q.id, space, name), q, space, name)
	if !ok {
		return
	}
	r, found := sh.slab.at(job), false
	sh.countSteps(len(sh.awaits[job]))
	sh.keepAwaits(job, r, func(a await) bool {
		if found || a.peer != p || a.tag != tag {
			return true
		}
		found = true
		sh.notify(a, job, r, q, Expired, nil, sink)
		return false
	})
	if found && r.flags&(awaited|awaitedBySubmitter) == awaitedBySubmitter {
		sh.removeNow(now, job, r, q, sink)
	}
}
