package sched

import (
	"fmt"
	"slices"
)

// The model's part for leases. Its last peer is a request: it knows no back-pressure, and releases its jobs when it
// ends.

// modelLease is a lease, also one that has ended.
type modelLease struct {
	job   *modelJob
	until int64 // Mono
	ended error // of the verbs with its token; nil: it has not ended
}

// leasePeer holds the leased jobs.
var leasePeer = &modelPeer{}

// endLease ends the lease of a job, if it has one.
func (j *modelJob) endLease(why error) {
	if j.lease != nil {
		j.lease.ended, j.lease = why, nil
	}
}

// leased reports whether jobs of a queue are leased.
func (m *model) leased(queue string) bool {
	return slices.ContainsFunc(m.jobs, func(j *modelJob) bool { return j.queue == queue && j.lease != nil })
}

var machineLeases = []int64{0, 1, 1500, 60_000, 2 * MaxLease}

// grant leases a job that runs. Its holder is a peer, or has leased it already.
func (x *machine) grant(o op) error {
	var live []*modelJob
	for _, j := range x.m.jobs {
		if j.state == reserved {
			live = append(live, j)
		}
	}
	if len(live) == 0 {
		return nil
	}
	j := live[o.Which%len(live)]
	peer, ms := o.Peer, machineLeases[o.At]
	if i := slices.Index(x.modelPeers, j.holder); i >= 0 && !o.Flag {
		peer = i
	}
	token := x.s.Grant(x.m.now, x.peers[peer], []Run{{Shard: 99}, j.run}, LeaseTerms{Worker: "w", Secret: 7, For: ms})[1]
	if err := same("granted", token.Number != 0, j.holder == x.modelPeers[peer]); err != nil || token == (Token{}) {
		return err
	}
	j.holder, j.lease = leasePeer, &modelLease{job: j, until: x.m.now.Mono + clampLease(ms)}
	x.leases[token] = j.lease
	x.tokens = append(x.tokens, token)
	return nil
}

// granted is a verb with a token: mostly one that is live.
func (x *machine) granted(o op) error {
	tokens := slices.DeleteFunc(slices.Clone(x.tokens), func(t Token) bool { return !o.Rare && x.leases[t].ended != nil })
	if len(tokens) == 0 {
		return nil
	}
	token, now := tokens[o.Which%len(tokens)], x.m.now
	l, want := x.leases[token], x.leases[token].ended
	if o.Rare && o.Flag {
		token.Secret++
		want = ErrNoLease
	}
	x.m.counted.Stale += uint64(oneIf(want != nil))
	j, err := l.job, error(nil)
	switch o.Verb {
	case "lease-finish":
		if want == nil {
			j.endLease(ErrLeaseDone)
			x.m.finish(j, "r")
		}
		err = x.s.FinishLeased(now, token, []byte("r"), &x.rec)
	case "lease-fail":
		delay := []int64{-1, -1, 0, 700, 1000}[o.At]
		if want == nil {
			j.endLease(ErrLeaseDone)
			x.m.failAfter(j, delay)
		}
		err = x.s.FailLeased(now, token, nil, delay, &x.rec)
	case "lease-release":
		if want == nil {
			j.endLease(ErrLeaseDone)
			x.m.counted.Released++
			j.due(now.Wall)
			x.m.place(j)
		}
		err = x.s.ReleaseLeased(now, token, &x.rec)
	case "lease-extend":
		if want == nil {
			l.until = now.Mono + clampLease(machineLeases[o.At])
		}
		_, err = x.s.ExtendLease(now, token, machineLeases[o.At])
	}
	return same("error", err, want)
}

// failAfter is release of a failed job whose delay, when it is 0 or more, replaces the back-off.
func (m *model) failAfter(j *modelJob, delay int64) {
	if delay < 0 {
		m.release(j, m.now.Wall, 0, true)
		return
	}
	m.counted.Released++
	m.counted.RunsFailed++
	j.waits = slices.DeleteFunc(j.waits, func(w modelWait) bool {
		if w.onFail {
			m.owed = append(m.owed, delivered{to: w.peer.id, tag: w.tag, effect: Failed})
		}
		return w.onFail
	})
	if p := m.policy(j.queue); p != nil && (p.Limited || p.Backoff.First > 0) {
		if j.tries++; p.Limited && j.tries > int(p.Retries) {
			m.giveUp(j, p, false)
			return
		}
	}
	j.due(m.now.Wall + delay)
	m.place(j)
}

// upTo asks for several jobs that are ready, for a peer without slots.
func (x *machine) upTo(o op) {
	if mp := x.modelPeers[o.Peer]; len(mp.slots) == 0 {
		x.m.asker = mp
		for range o.Which {
			mp.slots = append(mp.slots, modelSlot{tag: 3 * machineTags, age: x.m.nextStamp()})
		}
	}
}

// triedUpTo is the rest of a TryReserveUpTo, after its deliveries.
func (x *machine) triedUpTo(o op) error {
	mp := x.modelPeers[o.Peer]
	if len(mp.slots) == 0 || mp.slots[0].tag != 3*machineTags {
		return nil
	}
	got, more, err := x.s.TryReserveUpTo(x.m.now, x.peers[o.Peer], 3*machineTags, o.Which, &x.rec)
	if more || err != nil {
		return fmt.Errorf("more %v, %w", more, err)
	}
	for _, d := range x.rec.take() {
		if d.job.run != (Run{}) {
			x.runs = append(x.runs, d.job.run)
		}
		if err := x.m.step(d); err != nil {
			return fmt.Errorf("delivery %+v: %w", d, err)
		}
	}
	left := len(mp.slots)
	mp.slots = nil
	return same("jobs", got, o.Which-left)
}
