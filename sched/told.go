package sched

import "bytes"

// telling is the end of a job of which very many, or with very much, are still to be told: the job is
// gone, and its name is free. A delivery to a peer that has left meanwhile finds no session.
type telling struct {
	out Delivery
	ref JobRef
	all []await
}

// toldBatches bounds, in batches, the cost of what is told of a job's end at once: 64 MiB, or short
// results to all that may await them. What is more the Ticks tell.
const toldBatches = 64

// tellAll tells those who await a job of its end.
func (sh *shard) tellAll(job uint32, r *record, q *queue, e Effect, data []byte, sink Sink) {
	all := sh.awaits[job]
	delete(sh.awaits, job)
	size := len(data)
	if sh.s.rules[r.space].Owned {
		size += int(r.size)
	}
	each := 1 + size>>costShift
	n := min(max(toldBatches*sh.s.batch/each, 1), len(all))
	sh.op(n * each)
	for _, a := range all[:n] {
		sh.tell(a, job, r, q, e, data, sink)
	}
	if n == len(all) {
		return
	}
	t := telling{out: Delivery{Effect: e, Data: bytes.Clone(data)}, ref: sh.ref(job, r), all: all[n:]}
	if sh.s.rules[r.space].Owned {
		sh.view(job, r, q, &t.out.Job)
		t.out.Job.Name, t.out.Job.Workload = bytes.Clone(t.out.Job.Name), bytes.Clone(t.out.Job.Workload)
	}
	sh.told = append(sh.told, t)
	sh.s.alarmMono(0)
}

// tellMore tells a part of those who are still to be told.
func (sh *shard) tellMore(until int, sink Sink) {
	for sh.mu.ops < until && len(sh.told) > 0 {
		t := &sh.told[0]
		a := t.all[0]
		sh.op(1 + (len(t.out.Data)+len(t.out.Job.Workload))>>costShift)
		a.peer.settle(t.ref)
		t.out.To, t.out.Tag = a.peer.id, a.tag
		sink.Deliver(&t.out)
		if t.all = t.all[1:]; len(t.all) > 0 {
			continue
		}
		*t = telling{}
		if sh.told = sh.told[1:]; len(sh.told) == 0 {
			sh.told = nil
		}
	}
}
