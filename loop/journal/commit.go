package journal

import (
	"fmt"
	"time"
)

// maxUnsynced is how long a change of FlushLater may stay in the log unsynced. Until then a loss of
// power undoes it; a kill of the process undoes nothing that is in the log.
const maxUnsynced = 10 * time.Millisecond

// commitLoop commits groups until the journal is closed or has failed. In mode Always a group
// begins when the previous one is committed and a turn has ended. In the other modes changes first
// gather for an interval.
func (j *Journal) commitLoop() {
	gathering := time.NewTimer(j.options.Interval)
	defer gathering.Stop()
	idle := time.NewTimer(shrinkAfter)
	defer idle.Stop()
	unsynced := time.NewTimer(maxUnsynced)
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
			idle.Reset(shrinkAfter)
		case <-j.disk.down:
			return
		case <-j.closing:
			j.commitAll()
			return
		}
		if j.options.Sync != Always {
			gathering.Reset(j.options.Interval)
			select {
			case <-gathering.C:
			case <-j.disk.down:
				return
			case <-j.closing:
			}
		}
		if j.cutLog.Swap(false) {
			if err := j.log.cut(j.disk.down); err != nil {
				j.disk.trip(err)
			}
		}
		if j.options.Sync == Always {
			j.delayCommit()
			for j.commitGroup() {
				j.endLogForCopy()
				j.delayCommit()
			}
			if j.unsynced.Load() {
				unsynced.Reset(maxUnsynced - time.Since(j.unsyncedSince))
			}
			j.options.Idle()
		} else {
			j.commitGroup()
		}
		j.endLogForCopy()
	}
}

// shrinkAfter is the idle time after which the buffers of large groups are freed.
const shrinkAfter = time.Second

// shrink frees the buffers of large groups: two for each shard, and the batch. Later groups
// allocate them again.
func (j *Journal) shrink() {
	for i := range j.shards {
		j.shards[i].shrink()
		j.drained[i].ops = nil // it shares its memory with the spare buffer
		if cap(j.spareBuffers[i]) > minBuffer {
			j.spareBuffers[i] = nil
		}
	}
	if cap(j.batch) > minBuffer {
		j.batch = nil
	}
}

// commitAll commits until everything is synced or the journal has failed.
func (j *Journal) commitAll() {
	for j.deferSync.Store(false); j.commitGroup(); j.deferSync.Store(false) {
	}
}

// commitGroup drains all shards, writes the group, syncs it and publishes its number. In mode
// Always, when only FlushLater was called, it does not sync: the next group's sync covers both. It
// returns false when there was nothing to do or the journal failed.
func (j *Journal) commitGroup() bool {
	began := time.Now()
	// The order matters. An acknowledgement counted in waiters has its change in this group or an
	// earlier one. A Flush that finds touched unset finds unsynced set, and wakes the committer.
	unsynced := j.unsynced.Swap(true)
	waiters := j.waiters.Swap(0)
	touched := j.touched.Swap(false)
	sync := waiters > 0 || !j.deferSync.Load() || j.options.Sync != Always || unsynced && began.Sub(j.unsyncedSince) >= maxUnsynced
	if j.disk.tripped.Load() || !touched && (!unsynced || !sync) {
		j.unsynced.Store(unsynced)
		return false
	}
	if !unsynced {
		j.unsyncedSince = began
	}
	live, bytes, err := 0, 0, error(nil)
	if touched {
		j.lastDrained++
		if live = j.drain(j.lastDrained + 1); live > 0 {
			bytes, err = j.writeGroup(j.lastDrained)
		}
	}
	if err == nil && sync {
		err = j.sync()
	}
	if err != nil {
		j.disk.trip(err)
		return false
	}
	if live > 0 {
		j.stats.committed(live, bytes, time.Since(began))
	}
	j.inFlight.Store(0)
	j.draining.Store(0)
	if !sync {
		return true
	}
	if !j.disk.unlessTripped(func() { j.committed.Store(j.lastDrained) }) {
		return false
	}
	j.unsynced.Store(false)
	j.options.Committed(j.lastDrained)
	if waiters > 0 {
		j.delay.expect(waiters+j.waiters.Load(), time.Since(began))
	}
	return true
}

// sync makes the written groups durable, except in mode Never.
func (j *Journal) sync() error {
	if j.options.Sync == Never {
		return nil
	}
	if err := j.log.sync(); err != nil {
		return fmt.Errorf("cannot commit: %w", err)
	}
	return j.disk.failure()
}

// drain empties all shard buffers at one moment, and they continue with group next: a job that moves
// to another shard is put there before it is removed here, and no group may have the second change
// without the first. It returns the number of changes.
func (j *Journal) drain(next uint64) int {
	live, bytes := 0, 0
	for i := range j.shards {
		j.shards[i].joined.Lock()
	}
	for i := range j.shards {
		j.shards[i].mu.Lock()
	}
	for i := range j.shards {
		t := j.shards[i].drain(next, j.spareBuffers[i])
		j.drained[i], j.spareBuffers[i] = t, t.ops[:0]
		live, bytes = live+t.live, bytes+len(t.ops)
	}
	for i := range j.shards {
		j.shards[i].mu.Unlock()
		j.shards[i].joined.Unlock()
	}
	j.inFlight.Store(int64(live))
	j.draining.Store(int64(bytes))
	return live
}

// writeGroup writes the drained changes in one batch, or in several if they are large. It returns
// the bytes written.
func (j *Journal) writeGroup(group uint64) (int, error) {
	bytes, count := 0, 0
	var grown int64
	j.batch = startBatch(j.batch)
	for i := range j.drained {
		t := &j.drained[i]
		grown += t.added
		j.last.maxSeq = max(j.last.maxSeq, t.maxSeq)
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

// write writes j.batch, which holds count operations, as the group or a part of it. more reports
// whether another part follows.
func (j *Journal) write(group uint64, count int, grown int64, more bool) error {
	m := meta{
		group: group, previous: j.last.group, epoch: j.epoch, maxSeq: j.last.maxSeq, records: j.last.records + grown,
		more: more, prevSynced: j.options.Sync != Never && !j.log.unsynced(),
	}
	if group == j.last.group {
		m.part, m.prevSynced = j.last.part+1, j.last.prevSynced
	}
	sealBatch(j.batch, &m, count)
	size := len(j.batch)
	if err := j.log.append(j.batch, more, j.disk.down); err != nil {
		return fmt.Errorf("cannot commit: %w", err)
	}
	if err := j.disk.failure(); err != nil {
		return err
	}
	j.last = m
	j.records.Store(m.records)
	if j.files != nil {
		j.logBytes.Add(int64(size))
	}
	if j.sinceSpaceCheck += size; j.sinceSpaceCheck >= spaceCheckBytes {
		j.sinceSpaceCheck = 0
		j.requestSpaceCheck()
	}
	return nil
}
