package periodic

import (
	"bytes"
	"testing"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// TestAssignSpaces: a worker sees another protocol's job as each field of its space says.
func TestAssignSpaces(t *testing.T) {
	upper := func(dst []byte, j *sched.Job) []byte { return append(dst, bytes.ToUpper(j.Workload)...) }
	f := func(space protocol.Space, workload string, schedAt int64, timeout int32) {
		t.Helper()
		space.ID = 9
		c := &conversation{p: &Protocol{}, s: &protocol.Session{
			Loop: &protocol.Loop{Spaces: protocol.TableOf(space)}, Out: make([]byte, 0, 1<<10),
		}}
		c.assign(7, &sched.Job{Space: 9, Queue: "f", Name: []byte("n"), Workload: []byte("work"), SchedAt: 5, Timeout: 6})
		var r codec.Response
		if _, err := codec.NextResponse(c.s.Out, codec.Plain, 1<<10, &r); err != nil || r.MsgID != 7 {
			t.Fatalf("%x: %v", c.s.Out, err)
		}
		var j codec.Job
		if _, err := codec.ParseJob(r.Body[2+handleLen:], &j); err != nil {
			t.Fatalf("%x: %v", r.Body, err)
		}
		if string(j.Workload) != workload || j.SchedAt != schedAt || j.Timeout != timeout {
			t.Errorf("the worker gets %q, %d, %d; want %q, %d, %d", j.Workload, j.SchedAt, j.Timeout, workload, schedAt, timeout)
		}
	}
	f(protocol.Space{}, "work", 5, 6)
	f(protocol.Space{AsText: upper}, "WORK", 5, 6)
	f(protocol.Space{NoTimes: true}, "work", 0, 0)
	f(protocol.Space{NoTimes: true, AsText: upper}, "WORK", 0, 0)
}
