package admin

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"treadle/loop/protocol"
	"treadle/sched"
)

// TestAttention: what needs attention of the server and its queues, the most urgent first, and no kind hides another.
func TestAttention(t *testing.T) {
	table, err := sched.NewPolicies([]sched.PolicyRule{{Pattern: "p*", Values: map[string]string{"paused": "hand-out", "paused-by": "ana", "paused-why": "deploy"}}})
	if err != nil {
		t.Fatal(err)
	}
	spaces := &protocol.Spaces{}
	spaces[3].Rules.Graph = true
	now := sched.Time{Wall: 1_000_000_000}
	second := now.Wall / 1000
	queue := func(name string, ready, workers int, due int64) *sched.QueueStats {
		return &sched.QueueStats{Name: name, Ready: ready, Workers: workers, Oldest: due}
	}
	f := func(h protocol.Health, more int, queues []*sched.QueueStats, want ...string) {
		t.Helper()
		a := newAttention(now, h, spaces, table)
		for _, q := range queues {
			a.addQueue(q)
		}
		all, n := a.list()
		var got []string
		for _, one := range all {
			got = append(got, fmt.Sprint(one.Kind, " ", one.Queue, ": ", one.Text))
		}
		if !slices.Equal(got, want) || n != more {
			t.Errorf("got %q and %d more, want %q and %d", got, n, want, more)
		}
	}
	ok := protocol.Health{Ready: true, Text: "ok"}
	f(ok, 0, []*sched.QueueStats{queue("fine", 5, 1, second-lateAfter), queue("empty", 0, 0, math.MaxInt64), queue("new", 1, 0, second-unservedAfter+1)})
	f(protocol.Health{Text: "stopping"}, 0, nil, "not-ready : stopping")
	f(protocol.Health{Ready: true, Text: "degraded: refusing"}, 0, nil, "degraded : degraded: refusing")
	low := ok
	low.Journal = &protocol.JournalHealth{Free: 300 << 20, MinFree: 256 << 20}
	f(low, 0, nil, "disk : the disk of --data has 300MiB free: below 256MiB new jobs are refused")
	low.Journal.Free = 512 << 20
	f(low, 0, nil)
	soon := ok
	soon.CertsExpire = time.UnixMilli(now.Wall).Add(expiresSoon - time.Second)
	f(soon, 0, nil, "certificate : the certificate of an address with TLS expires at 1970-01-26T13:46:39Z")
	soon.CertsExpire = soon.CertsExpire.Add(time.Second)
	f(soon, 0, nil)

	pausedQueue, failed, graph := queue("p1", 3, 0, second-100), queue("f", 0, 2, math.MaxInt64), queue("dwork", 9, 0, second-50)
	pausedQueue.Paused, failed.Failed, graph.Tally.Submitted[3] = 1, 1, 9
	f(ok, 0, []*sched.QueueStats{pausedQueue, failed, graph, queue("slow", 1, 1, second-200), queue("alone", 2, 0, second-9)},
		"no-worker alone: no worker serves it, 2 jobs ready",
		"old slow: the oldest ready job has waited for 3m20s",
		"failed f: 1 job given up and kept",
		"paused p1: paused by ana: deploy",
	)
	var many []*sched.QueueStats
	for n := range 9 {
		many = append(many, queue(fmt.Sprint("q", n), 10+n%4, 0, second-9))
	}
	f(ok, 4, append(many, queue("slow", 1, 1, second-200)),
		"no-worker q3: no worker serves it, 13 jobs ready", "no-worker q7: no worker serves it, 13 jobs ready",
		"no-worker q2: no worker serves it, 12 jobs ready", "no-worker q6: no worker serves it, 12 jobs ready",
		"no-worker q1: no worker serves it, 11 jobs ready", "old slow: the oldest ready job has waited for 3m20s",
	)
}
