package sched

import "bytes"

// notification is the deferred part of the answers to a job's awaits. The job has ended and its
// name is free. A Delivery to a peer that has left meanwhile finds no session.
type notification struct {
	out     Delivery
	ref     JobRef // the ended job
	waiting []await
}

// notifyBatches bounds, in batches, the cost of the awaits that are answered when a job ends: 64
// MiB, or short results to MaxAwaits peers. The Ticks answer the rest.
const notifyBatches = 64

// notifyAll answers the awaits of a job that ends.
func (sh *shard) notifyAll(job uint32, r *record, q *queue, e Effect, data []byte, sink Sink) {
	all := sh.awaits[job]
	delete(sh.awaits, job)
	size := len(data)
	if e == Failed {
		size += len(sh.history(job, r))
	}
	if sh.s.rules[r.space].Owned {
		size += int(r.size)
	}
	each := 1 + size>>costShift
	n := min(max(notifyBatches*sh.s.batch/each, 1), len(all))
	sh.countSteps(n * each)
	for _, a := range all[:n] {
		sh.notify(a, job, r, q, e, data, sink)
	}
	if n == len(all) {
		return
	}
	t := notification{out: Delivery{Effect: e, Data: bytes.Clone(data)}, ref: sh.ref(job, r), waiting: all[n:]}
	if e == Failed {
		t.out.History = bytes.Clone(sh.history(job, r))
	}
	if sh.s.rules[r.space].Owned {
		sh.view(job, r, q, &t.out.Job)
		t.out.Job.Name, t.out.Job.Workload = bytes.Clone(t.out.Job.Name), bytes.Clone(t.out.Job.Workload)
	}
	sh.notifications = append(sh.notifications, t)
	sh.s.alarmMono(0)
}

// continueNotifications answers a part of the awaits that notifyAll has left.
func (sh *shard) continueNotifications(stepLimit int, sink Sink) {
	for sh.mu.steps < stepLimit && len(sh.notifications) > 0 {
		t := &sh.notifications[0]
		a := t.waiting[0]
		sh.countSteps(1 + (len(t.out.Data)+len(t.out.Job.Workload))>>costShift)
		a.peer.dropAwait(t.ref)
		t.out.To, t.out.Tag = a.peer.id, a.tag
		sink.Deliver(&t.out)
		if t.waiting = t.waiting[1:]; len(t.waiting) == 0 {
			sh.notifications.pop()
		}
	}
}

// TimeOutAwait ends the peer's await of a job under a tag with AwaitTimedOut. If every submission had an await, the
// job is removed with its last await. Nothing happens when the peer does not await the job under this tag.
func (s *Scheduler) TimeOutAwait(now Time, p *Peer, tag uint64, space Space, queueName, name []byte, sink Sink) {
	sh := s.shardOf(queueName)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queueName)]
	if q == nil {
		return
	}
	job, ok := sh.lookup(s.nameHash(q.id, space, name), q, space, name)
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
		sh.notify(a, job, r, q, AwaitTimedOut, nil, sink)
		return false
	})
	if found && r.flags&(awaited|awaitedBySubmitter) == awaitedBySubmitter {
		sh.removeLive(now, job, r, q, Removed, sink)
	}
}
