package sched

import (
	"errors"
	"time"
)

// runDueCron submits the jobs of entries whose time has come.
func (sh *shard) runDueCron(now Time, stepLimit int, sink Sink) {
	t := &sh.cron
	for sh.mu.steps < stepLimit && len(t.due) > 0 && t.due[0].next <= now.Wall {
		sh.countSteps(1)
		sh.runCronTime(now, t.due[0], sink)
	}
	if now.Wall < t.seen-cronCorrection {
		t.checked = 0
	}
	t.seen = now.Wall
	for ; sh.mu.steps < stepLimit && t.checked < len(t.entries); t.checked++ {
		sh.countSteps(1)
		if c := t.entries[t.checked]; c != nil && c.known && c.correct(now) {
			sh.planCron(c)
			sh.saveCron(c)
		}
	}
}

// correct takes back what was noted by a clock that was wrong. It returns false when there is nothing to take back.
func (c *cron) correct(now Time) bool {
	if c.Handled <= now.Wall+cronCorrection {
		return false
	}
	c.Handled = now.Wall
	return true
}

// runCronTime meets the time of an entry that has come. If several times have come, the entry runs once. With Overlap,
// the times of the last minute follow one by one: cronLate bounds them. All times that were missed and left out count
// as one.
func (sh *shard) runCronTime(now Time, c *cron, sink Sink) {
	at, outcome := c.next, CronRan
	if recent := now.Wall - cronLate; at < recent {
		outcome = CronLate
		if last := c.after(recent - 1); last <= now.Wall { // this time is not missed, the times before it are
			at, outcome = last, CronRan
			c.Counts[CronMissed]++
		} else if c.SkipMissed {
			outcome = CronMissed
		}
	}
	sh.beginAtomic()
	defer sh.endAtomic()
	c.Handled = now.Wall
	if c.Overlap && outcome == CronRan {
		c.Handled = at
	}
	if outcome == CronMissed {
		c.note(now, outcome, "")
	} else {
		sh.submitCron(now, c, at, outcome, sink)
	}
	sh.planCron(c)
	sh.saveCron(c)
}

// submitCron submits a job of an entry for a time and notes the outcome.
func (sh *shard) submitCron(now Time, c *cron, at int64, outcome CronOutcome, sink Sink) {
	j := Submission{Space: c.Space, Queue: []byte(c.Queue), Name: []byte(c.Name), Workload: c.Workload, Priority: c.Priority}
	if c.Overlap {
		j.Name = time.UnixMilli(at).UTC().AppendFormat(append(j.Name, '@'), time.RFC3339)
	}
	if q := sh.byName[c.Queue]; q != nil {
		if _, ok := sh.lookup(sh.s.nameHash(q.id, c.Space, j.Name), q, c.Space, j.Name); ok {
			c.note(now, CronOverlaps, "")
			return
		}
	}
	ignored, err := sh.counters.Ignored, sh.s.checkCapacity()
	if err == nil {
		err = sh.submitLocked(now, &j, sink)
	}
	switch {
	case err != nil:
		c.note(now, CronRefused, err.Error())
	case sh.counters.Ignored > ignored:
		c.note(now, CronOverlaps, "a job of this name was done within unique-for")
	default:
		c.note(now, outcome, "")
	}
}

func (c *cron) note(now Time, outcome CronOutcome, text string) {
	c.Last = CronRun{outcome, now.Wall, text}
	c.Counts[outcome]++
}

// SetCron adds an entry, or changes the entry with its queue and name. The times of a new schedule begin now.
func (s *Scheduler) SetCron(now Time, e *CronEntry) error { return s.setCron(now, e, nil) }

// MoveCron replaces the entry of the same name in another queue. The new entry has the state of the old one, as with
// SetCron.
func (s *Scheduler) MoveCron(now Time, queue string, e *CronEntry) error {
	var state CronState
	known := func(known bool) func(*shard, *cron) {
		return func(sh *shard, c *cron) {
			s.cronEntries.Add(int64(oneIf(known) - oneIf(c.known)))
			c.known, state = known, c.CronState
			sh.planCron(c)
		}
	}
	// The old entry submits nothing more before the new one does.
	if err := s.withCron(now, queue, e.Name, nil, known(false)); err != nil {
		return err
	}
	if err := s.setCron(now, e, &state); err != nil {
		return errors.Join(err, s.withCron(now, queue, e.Name, nil, known(true)))
	}
	return s.RemoveCron(queue, e.Name)
}

// setCron is SetCron. A state that is not nil takes the place of the entry's own.
func (s *Scheduler) setCron(now Time, e *CronEntry, state *CronState) error {
	schedule, err := e.parse()
	if err != nil {
		return err
	}
	if r := &s.rules[e.Space]; !r.Durable && s.journal != nil || r.Global || r.Graph {
		return &CronError{"space", errSpace}
	}
	sh := s.shardOf([]byte(e.Queue))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.cron.byKey[cronKey{e.Queue, e.Name}]
	if (c == nil || !c.known) && s.cronEntries.Add(1) > MaxCronEntries {
		s.cronEntries.Add(-1)
		return cronError("name", "there are %d entries, which is the most", MaxCronEntries)
	}
	if c == nil {
		c = sh.cron.add(cronKey{e.Queue, e.Name})
	}
	c.CronEntry, c.schedule, c.known = *e, schedule, true
	if state != nil {
		c.CronState = *state
	}
	changed := state != nil
	if times := e.Schedule + " " + e.Zone.String(); times != c.Times {
		c.Handled, c.Times, changed = now.Wall, times, true
	}
	if c.correct(now) || changed {
		sh.saveCron(c)
	}
	sh.planCron(c)
	return nil
}

// withCron calls f with an entry, under its shard's lock.
func (s *Scheduler) withCron(now Time, queue, name string, sink Sink, f func(*shard, *cron)) error {
	sh := s.shardOf([]byte(queue))
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	c := sh.cron.byKey[cronKey{queue, name}]
	if c == nil {
		return ErrNotFound
	}
	f(sh, c)
	return nil
}

// RemoveCron removes an entry. Its jobs stay.
func (s *Scheduler) RemoveCron(queue, name string) error {
	return s.withCron(Time{}, queue, name, nil, (*shard).removeCron)
}

// DropOldCron removes the restored states of entries that are no longer configured: no SetCron has named them.
func (s *Scheduler) DropOldCron() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, c := range sh.cron.entries {
			if c != nil && !c.known {
				sh.removeCron(c)
			}
		}
		sh.mu.Unlock()
	}
}

// RunCron submits a job of an entry now, also of a paused one. Its times stay as they are.
func (s *Scheduler) RunCron(now Time, queue, name string, sink Sink) (run CronRun, err error) {
	err = s.withCron(now, queue, name, sink, func(sh *shard, c *cron) {
		sh.beginAtomic()
		defer sh.endAtomic()
		sh.submitCron(now, c, now.Wall, CronRan, sink)
		sh.saveCron(c)
		run = c.Last
	})
	return run, err
}

// PauseCron stops an entry. Times that come until ResumeCron are left out.
func (s *Scheduler) PauseCron(queue, name, by, why string) error {
	if len(by) > maxCronText || len(why) > maxCronText {
		return cronError("why", "a text has at most %d bytes", maxCronText)
	}
	return s.withCron(Time{}, queue, name, nil, func(sh *shard, c *cron) {
		c.Paused, c.By, c.Why = true, by, why
		sh.planCron(c)
		sh.saveCron(c)
	})
}

// ResumeCron ends a pause. The entry's times begin now.
func (s *Scheduler) ResumeCron(now Time, queue, name string) error {
	return s.withCron(now, queue, name, nil, func(sh *shard, c *cron) {
		if !c.Paused {
			return
		}
		c.Paused, c.By, c.Why = false, "", ""
		c.Handled = max(c.Handled, now.Wall)
		c.correct(now)
		sh.planCron(c)
		sh.saveCron(c)
	})
}

// WalkCron calls visit with all entries, in no order. visit must not call the scheduler. Entries that are added or
// removed meanwhile may be left out.
func (s *Scheduler) WalkCron(visit func(*CronStatus)) {
	for i := range s.shards {
		sh := &s.shards[i]
		for from, more := 0, true; more; from += s.batch {
			sh.mu.Lock()
			more = from+s.batch < len(sh.cron.entries)
			for _, c := range sh.cron.entries[min(from, len(sh.cron.entries)):min(from+s.batch, len(sh.cron.entries))] {
				sh.countSteps(1)
				if c != nil && c.known {
					status := CronStatus{CronEntry: c.CronEntry, CronState: c.CronState, Next: c.next}
					if c.next == never {
						status.Next = 0
					}
					visit(&status)
				}
			}
			sh.mu.Unlock()
		}
	}
}
