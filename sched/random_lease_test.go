package sched

import "fmt"

// requestTag is the tag of the requests of TestRandomVerbs.
const requestTag = 77

// request has a request lease some of the jobs of two queues that it reserves. The others are on their way when it
// ends.
func (x *randomSched) request(queue []byte) {
	x.lastID++
	p := x.s.NewRequestPeer(x.lastID, "")
	for _, q := range []string{string(queue), randomQueues[x.n("second", len(randomQueues))]} {
		_ = x.s.Watch(x.now, p, []byte(q), false, &x.rec)
	}
	before := len(x.rec.all)
	got, _, _ := x.s.TryReserveUpTo(x.now, p, requestTag, 1+x.n("up to", 4), &x.rec)
	var runs []Run
	for _, d := range x.rec.all[before:] {
		if d.to == p.id && d.tag == requestTag {
			if got--; d.effect == Assign && x.n("lease", 4) > 0 {
				runs = append(runs, d.job.run)
			}
		}
	}
	if got != 0 {
		x.t.Fatalf("%d jobs more are said to be handed out", got)
	}
	x.tokens = append(x.tokens, x.s.Grant(x.now, p, runs, LeaseTerms{Worker: "w", Secret: 7, For: int64(x.n("for", 4000))})...)
	x.s.Disconnect(x.now, p, &x.rec)
}

// token is a verb with a token, mostly one of the last.
func (x *randomSched) token() {
	if len(x.tokens) == 0 {
		return
	}
	t := x.tokens[len(x.tokens)-1-x.n("token", min(len(x.tokens), 6))]
	switch x.n("verb", 5) {
	case 0:
		_ = x.s.FinishLeased(x.now, t, []byte("done"), &x.rec)
	case 1:
		_ = x.s.FailLeased(x.now, t, []byte("no"), int64(x.n("delay", 1500))-500, &x.rec)
	case 2:
		_ = x.s.ReleaseLeased(x.now, t, &x.rec)
	case 3:
		_, _ = x.s.ExtendLease(x.now, t, int64(x.n("for", 4000)))
	case 4:
		_, _ = x.s.PublishLeased(t, make([]byte, 300), &x.rec)
	}
}

// durableLeases returns the leases that the journal must have.
func durableLeases(s *Scheduler) (all []string) {
	for i := range s.shards {
		for _, w := range s.shards[i].watches {
			if w == nil || !w.leased() {
				continue
			}
			for _, h := range w.held {
				if r := s.shards[i].slab.at(h.job); testRules[r.space].Durable {
					all = append(all, fmt.Sprint("lease ", r.seq, s.shards[i].savedLease(r)))
				}
			}
		}
	}
	return all
}
