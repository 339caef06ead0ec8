package journal

import (
	"fmt"
	"time"
)

// soonSynced is how long changes that came with FlushLater stay in a log that is not synced, at most: a loss of power
// undoes them. A kill of the process undoes nothing that is in a log.
const soonSynced = 10 * time.Millisecond

// commitLoop commits groups until the journal is closed or broken. In mode Always
// a group begins when the one before it is committed and a turn has ended; in the
// others it gathers for an interval first.
func (j *Journal) commitLoop() {
	gathering := time.NewTimer(j.options.Interval)
	defer gathering.Stop()
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	unsynced := time.NewTimer(soonSynced)
	defer unsynced.Stop()
	for {
		select {
		case <-idle.C:
			j.shrink()
			continue
		case <-unsynced.C:
			if !j.unsynced.Load() {
				continue
			}
		case <-j.wake:
			idle.Reset(idleAfter)
		case <-j.guard.failed:
			return
		case <-j.closing:
			j.commitAll()
			return
		}
		if j.options.Sync != Always {
			gathering.Reset(j.options.Interval)
			select {
			case <-gathering.C:
			case <-j.guard.failed:
				return
			case <-j.closing:
			}
		}
		if j.cut.Swap(false) {
			if err := j.log.cut(j.guard.failed); err != nil {
				j.guard.trip(err)
			}
		}
		if j.options.Sync == Always {
			j.awaitCompany()
			for j.commitGroup() {
				j.awaitCompany()
			}
			if j.unsynced.Load() {
				unsynced.Reset(soonSynced - time.Since(j.since))
			}
			j.options.Rested()
		} else {
			j.commitGroup()
		}
	}
}

// idleAfter is how long nothing is appended until the buffers of large groups are let go of.
const idleAfter = time.Second

// shrink lets go of the buffers of large groups, two for each shard and that of the batch: groups
// to come make others as they need them. The committer calls it.
func (j *Journal) shrink() {
	for i := range j.shards {
		j.shards[i].shrink()
		j.takings[i].ops = nil // it is the spare
		if cap(j.spares[i]) > minBuffer {
			j.spares[i] = nil
		}
	}
	if cap(j.batch) > minBuffer {
		j.batch = nil
	}
}

// commitAll commits until everything is synced or the journal is broken.
func (j *Journal) commitAll() {
	for j.later.Store(false); j.commitGroup(); j.later.Store(false) {
	}
}

// commitGroup takes what all shards gathered, writes it, makes it durable and says so. In mode
// Always, after FlushLater alone, it only writes: the next group's sync is for both. It returns
// false when there was nothing to do, or when it failed.
func (j *Journal) commitGroup() bool {
	began := time.Now()
	// In this order: whoever is counted here has its change in this taking or in an earlier one, and a Flush that
	// finds nothing touched finds unsynced set, and wakes the committer.
	unsynced := j.unsynced.Swap(true)
	waiters := j.waiters.Swap(0)
	touched := j.touched.Swap(false)
	sync := waiters > 0 || !j.later.Load() || j.options.Sync != Always || unsynced && began.Sub(j.since) >= soonSynced
	if j.guard.broken.Load() || !touched && (!unsynced || !sync) {
		j.unsynced.Store(unsynced)
		return false
	}
	if !unsynced {
		j.since = began
	}
	live, bytes, err := 0, 0, error(nil)
	if touched {
		j.gathered++
		if live = j.take(j.gathered + 1); live > 0 {
			bytes, err = j.writeGroup(j.gathered)
		}
	}
	if err == nil && sync {
		err = j.sync()
	}
	if err != nil {
		j.guard.trip(err)
		return false
	}
	if live > 0 {
		j.figures.committed(live, bytes, time.Since(began))
	}
	j.writing.Store(0)
	j.taken.Store(0)
	if !sync {
		return true
	}
	if !j.guard.whole(func() { j.committed.Store(j.gathered) }) {
		return false
	}
	j.unsynced.Store(false)
	j.options.Committed(j.gathered)
	if waiters > 0 {
		j.company.expect(waiters+j.waiters.Load(), time.Since(began))
	}
	return true
}

// sync makes what is written durable, but in mode Never.
func (j *Journal) sync() error {
	if j.options.Sync == Never {
		return nil
	}
	if err := j.log.sync(); err != nil {
		return fmt.Errorf("cannot commit: %w", err)
	}
	return j.guard.failure()
}

// take empties all gathers, which go on gathering for the group next. It returns
// the number of changes.
func (j *Journal) take(next uint64) int {
	live, bytes := 0, 0
	for i := range j.shards {
		t := j.shards[i].take(next, j.spares[i])
		j.takings[i], j.spares[i] = t, t.ops[:0]
		live, bytes = live+t.live, bytes+len(t.ops)
	}
	j.writing.Store(int64(live))
	j.taken.Store(int64(bytes))
	return live
}

// writeGroup writes what was taken, in one batch unless it is very large. It returns the
// bytes written.
func (j *Journal) writeGroup(group uint64) (int, error) {
	bytes, count := 0, 0
	var grown int64
	j.batch = startBatch(j.batch)
	for i := range j.takings {
		t := &j.takings[i]
		grown += t.grown
		j.last.top = max(j.last.top, t.top)
		for rest := t.ops; len(rest) > 0; {
			if len(j.batch) >= j.options.BatchSize {
				bytes += len(j.batch)
				if err := j.write(group, count, 0, true); err != nil {
					return bytes, err
				}
				j.batch, count = startBatch(j.batch), 0
			}
			n := t.live
			if t.dead == 0 && len(rest) == len(t.ops) && len(j.batch)+len(rest) <= j.options.BatchSize {
				j.batch, rest = append(j.batch, rest...), nil
			} else {
				j.batch, n, rest = appendLive(j.batch, rest, j.options.BatchSize)
			}
			count += n
		}
	}
	bytes += len(j.batch)
	return bytes, j.write(group, count, grown, false)
}

// write writes j.batch, of count operations, as the group or a part of it. More says
// that another part follows.
func (j *Journal) write(group uint64, count int, grown int64, more bool) error {
	m := meta{
		group: group, previous: j.last.group, epoch: j.epoch, top: j.last.top, jobs: j.last.jobs + grown,
		more: more, settled: j.options.Sync != Never && !j.log.dirty,
	}
	if group == j.last.group {
		m.part, m.settled = j.last.part+1, j.last.settled
	}
	sealBatch(j.batch, &m, count)
	size := len(j.batch)
	if err := j.log.append(j.batch, more, j.guard.failed); err != nil {
		return fmt.Errorf("cannot commit: %w", err)
	}
	if err := j.guard.failure(); err != nil {
		return err
	}
	j.last = m
	j.jobs.Store(m.jobs)
	j.unstored.Add(int64(size))
	if j.unwatched += size; j.unwatched >= spaceBytes {
		j.unwatched = 0
		j.lookSoon()
	}
	return nil
}
