package faktory

import (
	"fmt"
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
			p.FollowRestored(&sched.Job{Space: Space, Queue: "default", Name: []byte("unique-1"), Workload: stored, SchedAt: due / 1000, Due: due}, false)
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
