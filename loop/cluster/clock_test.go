package cluster

import (
	"slices"
	"testing"
	"time"
)

// TestWrongClock: a clock is wrong when a majority of the nodes agree with each other, and none of these with it.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		others   []time.Duration // ahead of this node
		majority int
		want     bool
	}{
		"alone":                             {nil, 1, false},
		"all agree":                         {[]time.Duration{time.Second, -time.Second}, 2, false},
		"behind both":                       {[]time.Duration{time.Hour, time.Hour + time.Second}, 2, true},
		"ahead of both":                     {[]time.Duration{-time.Hour, -time.Hour - time.Second}, 2, true},
		"one other is wrong":                {[]time.Duration{0, time.Hour}, 2, false},
		"no two agree":                      {[]time.Duration{-time.Hour, time.Hour}, 2, false},
		"the other one is away":             {[]time.Duration{time.Hour}, 2, false},
		"three of five agree without it":    {[]time.Duration{0, time.Hour, time.Hour, time.Hour}, 3, true},
		"two of five agree without it":      {[]time.Duration{0, 0, time.Hour, time.Hour}, 3, false},
		"a step to the limit":               {[]time.Duration{time.Minute, time.Minute}, 2, false},
		"a majority on both sides of limit": {[]time.Duration{59 * time.Second, 61 * time.Second}, 2, false},
	} {
		var ids []string
		c := clocks{limit: time.Minute, offsets: make(map[string]clockOffset)}
		for i, d := range test.others {
			id := string(rune('b' + i))
			c.record(id, d)
			ids = append(ids, id)
		}
		c.record("learner", time.Hour)
		c.record("another", time.Hour)
		if got := c.isWrong(test.majority, ids); got != test.want {
			t.Errorf("%s: it is wrong: %v, want %v", name, got, test.want)
		}
	}
}

// TestLeaderWithWrongClock: a leader whose clock has become wrong hands over, does not lead as long as it is, and may
// lead again when the clock is right.
func TestLeaderWithWrongClock(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	wrong, lead := c.leader()
	n := c.nodes[wrong]
	others := slices.DeleteFunc([]string{"a", "b", "c"}, func(id string) bool { return id == n.o.ID })
	for _, id := range others {
		n.clocks.record(id, time.Hour)
	}
	n.judgeClock()
	select {
	case <-lead.Lost():
	default:
		t.Error("the Leadership goes on")
	}
	lead.ReleaseStore()
	at, lead := c.leader()
	if at == wrong {
		t.Fatal("the node with the wrong clock leads again")
	}
	lead.ReleaseStore()
	if err := c.nodes[at].transferTo(soon(t), n.o.ID); err == nil { // Raft elects it, and it hands over again
		at, lead = c.leader()
		if at == wrong {
			t.Error("the node with the wrong clock has a Leadership")
		}
		lead.ReleaseStore()
	}
	for _, id := range others {
		n.clocks.record(id, 0)
	}
	n.judgeClock()
	for end := time.Now().Add(patience); ; time.Sleep(tick) {
		if at, lead = c.leader(); at == wrong {
			lead.ReleaseStore()
			return
		}
		lead.ReleaseStore()
		if time.Now().After(end) {
			t.Fatal("the node does not lead after its clock was set right")
		}
		_ = c.nodes[at].transferTo(soon(t), n.o.ID)
	}
}
