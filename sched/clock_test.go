package sched

import (
	"fmt"
	"testing"
)

// TestRestoreClockSetBack checks that the due time of a job comes once: a job that was due is ready
// after a restart although the clock was set back, whether it was immediate, submitted for a past
// time, or failed. A job that was not due waits.
func TestRestoreClockSetBack(t *testing.T) {
	saved := memJournal{{}}
	o := Options{Shards: 1, Rules: [MaxSpaces]Rules{{Durable: true}}, Journal: saved}
	x := newTestSched(t, o)
	at := func(second int64) func(*Submission) { return func(j *Submission) { j.SchedAt = second } }
	second := x.now.Wall / 1000
	p := x.peer("fails", "later")
	_, _ = x.submit("later", "later")
	x.ok(x.s.Delay(x.now, p, x.reserveJob(p, "later"), 1, 1, &x.rec))
	_, _ = x.submit("fails", "fails", at(second-1))
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "fails"), nil, &x.rec))
	_, _ = x.submit("q", "at once")
	_, _ = x.submit("q", "has come", at(second))
	_, _ = x.submit("q", "is to come", at(second+1))

	x.now.Wall -= 3_600_000
	x.s = New(o)
	for _, seq := range saved.order() {
		j := saved[0][seq]
		x.ok(x.s.Restore(x.now, &j))
	}
	p = x.peer("q", "fails", "later")
	for i := range 4 {
		x.reserve(p, uint64(i))
	}
	x.want(fmt.Sprintf("%d 0 assign fails", p.id), fmt.Sprintf("%d 1 assign at once", p.id), fmt.Sprintf("%d 2 assign has come", p.id))
	x.now.Wall += 3_600_000 + 1000
	x.s.ticks(x.now, &x.rec)
	if got := x.rec.take(); len(got) != 1 {
		t.Errorf("in its time, one job is handed out: %v", got)
	}
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
}

// TestLockClockSetBack checks that a parked job is woken although the clock was set back meanwhile.
func TestLockClockSetBack(t *testing.T) {
	x, p, holder := newLockSched(t, "a")
	x.now.Wall -= 3_600_000
	x.ok(x.s.Finish(x.now, p, holder, nil, &x.rec))
	x.reserveJob(p, "a")
}
