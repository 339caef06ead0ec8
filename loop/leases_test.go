//go:build invariants

package loop

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/loop/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// TestLeaseOverKill: a lease that is committed is there after a kill, and its token finishes the job. One that expires
// is told of, with the name of its worker, also when no connection ever came.
func TestLeaseOverKill(t *testing.T) {
	t.Parallel()
	log, mem := &logBuffer{}, vfs.NewCrashableMem()
	start := func(now sched.Time) *Offline {
		o, err := NewOfflineIn(Options{Loops: 1, Log: log.log()}, Environment{Disk: mem, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	o := start(sched.Time{Wall: 1_700_000_000_000, Mono: 1000})
	queue, sink := protocol.Queue([]byte("f")), host{o.server}.NewSink()
	var runs []sched.Run
	id := sched.SessionID(uint64(localLoop)<<loopShift | uint64(len(o.server.localPeers)))
	o.server.localPeers = append(o.server.localPeers, func(d *sched.Delivery) { runs = append(runs, d.Job.Run()) })
	p := o.server.sched.NewRequestPeer(id, "http")
	if err := o.server.sched.Watch(o.Now(), p, queue, false, sink); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"done", "late"} {
		j := sched.Submission{Space: periodic.Space, Queue: queue, Name: []byte(name)}
		if err := o.server.sched.Submit(o.Now(), &j, sink); err != nil {
			t.Fatal(err)
		}
	}
	if n, _, err := o.server.sched.TryReserveUpTo(o.Now(), p, 1, 5, sink); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	tokens := o.server.sched.Grant(o.Now(), p, runs, sched.LeaseTerms{Worker: "mailer", Secret: 5, For: 60_000})
	o.Commit()
	mem = mem.CrashClone(vfs.CrashCloneCfg{})
	now := o.Now()
	o.Abandon()

	o = start(now)
	defer o.Abandon()
	sink = host{o.server}.NewSink()
	if err := o.server.sched.FinishLeased(o.Now(), tokens[0], nil, sink); err != nil {
		t.Error(err)
	}
	if err := o.server.sched.ViewLeased(tokens[1], func(j *sched.Job, worker string, until int64) {
		if string(j.Name) != "late" || worker != "mailer" || until != now.Wall+60_000 {
			t.Errorf("%s of %s until %d", j.Name, worker, until)
		}
	}); err != nil {
		t.Error(err)
	}
	o.Advance(2 * time.Minute)
	o.server.logOverdue()
	if err := o.server.sched.FinishLeased(o.Now(), tokens[1], nil, sink); err != sched.ErrLeaseExpired {
		t.Error(err)
	}
	if lines := log.lines("a lease has expired"); len(lines) != 1 || !strings.Contains(lines[0], "job=late worker=mailer") {
		t.Errorf("the log says %q", lines)
	}
}
