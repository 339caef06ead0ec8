package sched

import (
	"fmt"
	"maps"
	"slices"
)

func (x *machine) tick() error {
	x.m.tick()
	x.alarmed = false
	x.next = x.s.ticks(x.m.now, &x.rec)
	if x.next.Wall <= x.m.now.Wall || x.next.Mono <= x.m.now.Mono || x.next.Wall > x.m.now.Wall+maxSleep {
		return fmt.Errorf("the next Tick is said to be at %v, now %v", x.next, x.m.now)
	}
	return nil
}

// compare compares everything that scheduler and model show, and checks the scheduler's structures.
func (x *machine) compare() error {
	if err := x.s.check(); err != nil {
		return err
	}
	if err := x.compareAlarm(); err != nil {
		return err
	}
	if err := x.compareStats(); err != nil {
		return err
	}
	got, want := make(map[string]QueueStatus), make(map[string]QueueStatus)
	x.s.Status(func(st QueueStatus) {
		st.Spaces, st.Retrying = 0, 0 // see TestFailures
		got[st.Name] = st
	})
	for queue := range x.m.queues {
		want[queue] = x.m.status(queue)
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("status: got %v, want %v", got, want)
	}
	for i, p := range x.peers {
		if err := same("watching", watching(p), len(x.modelPeers[i].watches)); err != nil {
			return err
		}
	}
	if err := x.compareFailed(); err != nil {
		return err
	}
	return x.compareWalk()
}

// compareAlarm checks that the alarm was called for everything that is due before the time that
// Tick last returned. Time-outs are late by less than a grain.
func (x *machine) compareAlarm() error {
	due := x.m.nextTick()
	if !x.alarmed && (due.Wall < x.next.Wall || due.Mono < x.next.Mono-grain) {
		return fmt.Errorf("the next Tick is said to be at %v, something is due at %v and no alarm came", x.next, due)
	}
	return nil
}

func (x *machine) compareStats() error {
	st := x.s.Stats()
	if err := same("counters", st.Counters, x.m.counted); err != nil {
		return err
	}
	gone := 0
	for _, j := range x.m.dropped {
		gone += oneIf(j.state == failed)
	}
	if err := same("jobs", st.Jobs, len(x.m.jobs)+len(x.m.dropped)-gone); err != nil {
		return err
	}
	if err := same("failed jobs", st.Failed, len(x.m.failed)+gone); err != nil {
		return err
	}
	if err := same("queues", st.Queues, len(x.m.queues)); err != nil {
		return err
	}
	return same("queues", x.s.Stats().Queues, len(x.m.queues))
}

// compareWalk sees every job once, in steps of any size.
func (x *machine) compareWalk() error {
	got := make(map[deliveredJob]int)
	step := len(x.runs)%(2*slabChunk) + 1
	c, done := Cursor{}, false
	for !done {
		c, done = x.s.Walk(c, step, func(j *Job) {
			v := copyJob(j)
			if x.m.refs[v.ref] == nil {
				v.ref = JobRef{} // the model learns a reference when it is handed out
			}
			got[v]++
		})
	}
	for _, j := range x.m.jobs {
		if v := j.delivered(); got[v] != 1 {
			return fmt.Errorf("walk: %+v was seen %d times; seen: %+v", v, got[v], got)
		}
	}
	return same("walk", len(got), len(x.m.jobs))
}

// drain ends every lease and every peer, and removes every job. Nothing may be left, nor much memory.
func (x *machine) drain() error {
	for slices.ContainsFunc(x.tokens, func(t Token) bool { return x.leases[t].ended == nil }) {
		if err := x.run(op{Verb: "lease-release"}); err != nil {
			return err
		}
	}
	for i := range x.peers {
		if err := x.run(op{Verb: "forget", Peer: i}); err != nil {
			return err
		}
	}
	for q := range machineQueues {
		if err := x.run(op{Verb: "drop", Queue: q}); err != nil {
			return err
		}
	}
	if err := x.run(op{Verb: "tick"}); err != nil {
		return err
	}
	for i := range x.s.shards {
		sh := &x.s.shards[i]
		if n := sh.slab.live + sh.names.count + len(sh.byName) + len(sh.dropped) + len(sh.awaits); n > 0 {
			return fmt.Errorf("shard %d: %d things are left", i, n)
		}
	}
	return nil
}
