package journal

import "time"

const (
	// maxCompany is how many acknowledgements share a sync at least without any wait: it costs each of them little then.
	enoughAcks = 64
	// maxCompanyWait is how long a group waits for more at most, however slow the disk is.
	maxCommitDelay = time.Millisecond
	// maxCompanyMisses bounds how rarely it is tried when it was in vain: before one in so many groups, as a power of two.
	maxDelayMisses = 8
)

// company is how many acknowledgements a group should carry. Clients that do one thing after the other come back when
// they are answered: without a wait the first of them would have a group to itself, and all others wait for two syncs. So
// a group waits for those that the last one has answered, and no longer than that one took. When they do not come, the
// next groups go without.
type commitDelay struct {
	acks   int64         // acknowledgements
	wait   time.Duration // for them
	misses int           // waits in vain, in a row
	skip   int           // groups that do not wait
}

// expect notes, at the end of a group, how many it has answered or that wait already, and how long it took.
func (c *commitDelay) expect(clients int64, took time.Duration) {
	c.acks, c.wait = min(clients, enoughAcks), min(took, maxCommitDelay)
}

// awaitCompany waits until the group that gathers is worth its sync. A group that nobody waits for, and one of a client
// that is alone, go at once.
func (j *Journal) delayCommit() {
	c := &j.delay
	if n := j.waiters.Load(); n == 0 || n >= c.acks || !j.touched.Load() {
		return
	}
	if c.skip > 0 {
		c.skip--
		return
	}
	enough := time.NewTimer(c.wait)
	defer enough.Stop()
	for j.waiters.Load() < c.acks {
		select {
		case <-j.wake:
		case <-j.closing:
			return
		case <-j.disk.down:
			return
		case <-enough.C:
			c.misses = min(c.misses+1, maxDelayMisses)
			c.skip = 1<<c.misses - 1
			return
		}
	}
	c.misses = 0
}
