package cluster

import (
	"slices"
	"testing"
	"time"
)

// TestFasterVoter: a node with a slow disk gives way to the voter with the fastest disk, if that one is much faster.
func TestFasterVoter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		writes int
		took   time.Duration
		others map[string]time.Duration // averages
		want   string
	}{
		"fast":                     {100, time.Millisecond, map[string]time.Duration{"b": time.Microsecond}, ""},
		"slow":                     {8, slowSync, map[string]time.Duration{"b": 25 * time.Millisecond, "c": time.Second}, "b"},
		"the fastest":              {8, time.Second, map[string]time.Duration{"b": 2 * time.Millisecond, "c": time.Millisecond}, "c"},
		"few writes":               {7, time.Second, map[string]time.Duration{"b": time.Millisecond}, ""},
		"all are slow":             {8, slowSync, map[string]time.Duration{"b": 26 * time.Millisecond, "c": 90 * time.Millisecond}, ""},
		"nothing is known":         {8, time.Second, map[string]time.Duration{"b": 0}, ""},
		"another is no voter":      {8, time.Second, map[string]time.Duration{"learner": time.Millisecond}, ""},
		"only one of two has news": {8, time.Second, map[string]time.Duration{"c": time.Millisecond}, "c"},
	} {
		d := diskSpeed{others: make(map[string]measuredSync)}
		for range test.writes {
			d.add(test.took)
		}
		d.endInterval()
		for id, average := range test.others {
			d.record(id, average)
		}
		if got, _ := d.faster([]string{"b", "c"}); got != test.want {
			t.Errorf("%s: %q is to lead, want %q", name, got, test.want)
		}
	}
}

// TestLeaderWithSlowDisk: a leader whose disk has become slow hands over to the node with the fastest disk, with all
// jobs, and keeps the lead as long as no other disk is known to be faster.
func TestLeaderWithSlowDisk(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	at, lead := c.leader()
	n := c.nodes[at]
	j := openJournal(t, n, lead)
	put(t, j, 0, "one", "two")
	if writes := n.disk.count.Load(); writes == 0 {
		t.Error("no write was measured")
	}
	slow := func() {
		for range 10 * minSyncs {
			n.disk.add(2 * slowSync)
		}
	}
	slow()
	n.judgeDisk() // knows nothing of the others
	next := c.nodes[(at+1)%3]
	n.disk.record(next.o.ID, time.Millisecond)
	n.disk.record(c.nodes[(at+2)%3].o.ID, 2*time.Millisecond)
	select {
	case <-lead.Lost():
		t.Fatal("the leader has handed over although no other disk was known to be faster")
	default:
	}
	slow()
	n.judgeDisk()
	select {
	case <-lead.Lost():
	default:
		t.Fatal("the Leadership goes on")
	}
	_ = j.Close() // which can write nothing more
	lead.ReleaseStore()
	now, lead := c.leader()
	if c.nodes[now] != next {
		t.Errorf("node %s leads, want %s", c.nodes[now].o.ID, next.o.ID)
	}
	lead.ReleaseStore()
	if got, want := jobs(t, next, next.ownStatus().Commit), []string{"one", "two"}; !slices.Equal(got, want) {
		t.Errorf("the jobs are %q, want %q", got, want)
	}
}
