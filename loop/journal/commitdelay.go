package journal

import "time"

const (
	// enoughAcks is the number of acknowledgements for which a group never waits: shared by so
	// many, a sync is cheap.
	enoughAcks = 64
	// maxCommitDelay bounds the wait, however slow the disk is.
	maxCommitDelay = time.Millisecond
	// maxDelayMisses bounds the back-off after waits in vain: at most one group in 2^maxDelayMisses
	// waits.
	maxDelayMisses = 8
)

// commitDelay decides how long a group waits for more acknowledgements (group commit). A
// synchronous client sends its next request when it is answered. Without the wait the first
// client's request would get a sync alone, and all others would wait for two syncs. So a group
// waits for as many acknowledgements as the last group carried, and at most as long as that group
// took. When the acknowledgements do not come, the next groups do not wait.
type commitDelay struct {
	acks   int64         // acknowledgements to wait for
	wait   time.Duration // the longest wait
	misses int           // consecutive waits in vain
	skip   int           // groups that will not wait
}

// expect records, at the end of a group, how many acknowledgements it carried or are already
// waiting, and how long it took.
func (c *commitDelay) expect(clients int64, took time.Duration) {
	c.acks, c.wait = min(clients, enoughAcks), min(took, maxCommitDelay)
}

// delayCommit waits until the group has enough acknowledgements. A group without any, or with those
// of a single client, is committed at once.
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
