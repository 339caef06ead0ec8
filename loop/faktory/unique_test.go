package faktory

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	codec "treadle/codec/faktory"
	"treadle/loop/protocol"
	"treadle/sched"
)

// restartHost is a host of nothing but a clock.
type restartHost struct {
	protocol.Host
	wall int64
}

func (h *restartHost) Now() sched.Time { return sched.Time{Wall: h.wall} }

// TestUniqueAfterRestart: a start counts the time of a unique job as its PUSH did, from the PUSH or from at, although
// the job is due at another time, for a retry or since the clock was set back.
func TestUniqueAfterRestart(t *testing.T) {
	const unique, pushed = 600_000, int64(1_700_000_000_000)
	text := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
	for _, c := range []struct {
		name, at, enqueued string
		counts             int64 // Unix milliseconds from which the time counts
	}{
		{"pushed", "", text(pushed), pushed},
		{"scheduled", fmt.Sprintf(`,"at":%q`, text(pushed+30_000)), "", pushed + 30_000},
		{"scheduled in the past", fmt.Sprintf(`,"at":%q`, text(pushed-30_000)), text(pushed), pushed},
	} {
		var job codec.Job
		if err := codec.ParseJob([]byte(`{"jid":"unique-1","jobtype":"T","args":[1],"custom":{"unique_for":600}`+c.at+`}`), nil, &job); err != nil {
			t.Fatal(err)
		}
		stored := job.AppendStored(nil, text(pushed), c.enqueued)
		for _, due := range []int64{0, pushed - 3_600_000, pushed + 3_600_000} {
			host := &restartHost{wall: pushed}
			p := &Protocol{host: host}
			p.JobRestored(&sched.Job{Space: Space, Queue: "default", Name: []byte("unique-1"), Workload: stored, SchedAt: due / 1000, Due: due}, false)
			for _, x := range []struct {
				now  int64
				want error
			}{{c.counts + unique - 1, errNotUnique}, {c.counts + unique, nil}} {
				if err := p.unique.take(lockOf(&job, []byte("default"), []byte("unique-2"), x.now), x.now); err != x.want {
					t.Errorf("%s, due %d: a PUSH after %d ms is answered %v, want %v", c.name, due, x.now-pushed, err, x.want)
				}
			}
		}
	}
}

// TestUniqueOfOneJID: a job keeps its lock until it is done although its jid is pushed again with other args. The
// scheduler then refuses the second job's name, so the jobSubmitter renames the lock, or gives it up.
func TestUniqueOfOneJID(t *testing.T) {
	const now = 1_700_000_000_000
	for _, c := range []struct {
		name string
		// push does what the jobSubmitter of the second job does. end ends the first job.
		push         func(u *uniqueLocks, second *uniqueLock, end func())
		secondIsHeld bool
	}{
		{"renamed", func(u *uniqueLocks, second *uniqueLock, end func()) { u.rename(second, "again"); end() }, true},
		{"refused", func(u *uniqueLocks, second *uniqueLock, end func()) { u.release(second); end() }, false},
		{"refused after a new name", func(u *uniqueLocks, second *uniqueLock, end func()) {
			u.rename(second, "again")
			u.release(second)
			end()
		}, false},
		{"the first one ends before", func(u *uniqueLocks, second *uniqueLock, end func()) { end(); u.rename(second, "again") }, true},
	} {
		var u uniqueLocks
		parse := func(arg int) (j codec.Job, text []byte) {
			text = []byte(`{"jid":"unique-1","jobtype":"T","args":[` + strconv.Itoa(arg) + `],"custom":{"unique_for":600}}`)
			if err := codec.ParseJob(text, nil, &j); err != nil {
				t.Fatal(err)
			}
			return j, text
		}
		lock := func(arg int, name string) *uniqueLock {
			j, _ := parse(arg)
			return lockOf(&j, []byte("q"), []byte(name), now)
		}
		result := func(arg int, name string) {
			_, text := parse(arg)
			u.update(&sched.Job{Space: Space, Queue: "q", Name: []byte(name), Workload: text}, sched.Result)
		}
		second := lock(2, "unique-1")
		for _, l := range []*uniqueLock{lock(1, "unique-1"), second} {
			if err := u.take(l, now); err != nil {
				t.Fatal(err)
			}
		}
		c.push(&u, second, func() { result(1, "unique-1") })
		if err := u.take(lock(1, "other"), now); err != nil {
			t.Errorf("%s: the lock of the first job, which is done: %v", c.name, err)
		}
		if err := u.take(lock(2, "other"), now); (err != nil) != c.secondIsHeld {
			t.Errorf("%s: the lock of the second job: %v", c.name, err)
		}
		result(1, "other")
		result(2, map[bool]string{true: "again", false: "other"}[c.secondIsHeld])
		if len(u.next)+len(u.byKey)+len(u.byJob) > 0 {
			t.Errorf("%s: locks are left: %v", c.name, u.byJob)
		}
	}
}
