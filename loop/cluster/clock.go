package cluster

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
)

const (
	// clockPause is the time between two looks at the clocks of the others: clocks drift slowly, and steps are rare.
	clockPause = 10 * time.Second
	// clockStale is how long a look counts.
	clockStale = 3 * clockPause
)

// clocks are the clocks of the other nodes, as far from this one's as they were when it asked. Due times are times of
// the clock, so a leader with a wrong clock would hand jobs out too early or too late.
type clocks struct {
	now   func() time.Time // time.Now
	limit time.Duration    // Options.ClockLimit
	wrong atomic.Bool      // the clock of this node is the wrong one

	mu     sync.Mutex
	others map[string]clockView
}

// clockView is the clock of a node, seen at a time.
type clockView struct {
	ahead time.Duration // of this node's clock
	seen  time.Time
}

// watchClocks asks the other nodes for their time until the node is closed.
func (n *Node) watchClocks() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-n.closing
		cancel()
	}()
	for {
		var asked sync.WaitGroup
		for _, m := range n.nodes() {
			if m.ID == n.o.ID {
				continue
			}
			asked.Go(func() { n.askClock(ctx, Peer{m.ID, m.Address}) })
		}
		asked.Wait()
		n.judgeClock()
		select {
		case <-time.After(clockPause):
		case <-n.closing:
			return
		}
	}
}

// askClock asks one node.
func (n *Node) askClock(ctx context.Context, p Peer) {
	s, err := n.port.askStatus(ctx, p)
	if err == nil && s.Time != 0 { // it has written the answer after the hellos, and has sent it at once
		n.clocks.see(p.ID, time.UnixMicro(s.Time).Sub(n.clocks.now()))
	}
}

// see notes how far ahead a clock is.
func (c *clocks) see(id string, ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others[id] = clockView{ahead, time.Now()}
}

// fresh returns how far the clocks of nodes are ahead of this one, in order; nil: of all others.
func (c *clocks) fresh(ids []string) (all []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, v := range c.others {
		if time.Since(v.seen) < clockStale && (ids == nil || slices.Contains(ids, id)) {
			all = append(all, v.ahead)
		}
	}
	slices.Sort(all)
	return all
}

// ahead returns how far this clock is ahead of the one in the middle of the others, or behind if it is less than 0.
func (c *clocks) ahead() time.Duration {
	all := c.fresh(nil)
	if len(all) == 0 {
		return 0
	}
	return -all[len(all)/2]
}

// isWrong reports whether a majority of the nodes that vote, which are others and this one, agree with each other about
// the time, and none of these with this one.
func (c *clocks) isWrong(majority int, others []string) bool {
	if len(others) == 0 {
		return false
	}
	all := c.fresh(others)
	for i := 0; i+majority <= len(all); i++ {
		agreeing := all[i : i+majority]
		first, last := agreeing[0], agreeing[majority-1]
		if last-first <= c.limit && (first > c.limit || last < -c.limit) {
			return true
		}
	}
	return false
}

// judgeClock has another node lead if the clock of this one is wrong and another can.
func (n *Node) judgeClock() {
	voters := 0
	var others []string
	for _, m := range n.nodes() {
		if m.Learner {
			continue
		}
		if voters++; m.ID != n.o.ID {
			others = append(others, m.ID)
		}
	}
	wrong := n.clocks.isWrong(voters/2+1, others)
	if n.clocks.wrong.Swap(wrong) == wrong {
		return
	}
	if !wrong {
		n.log.Info("the clock of this node is right again, so that it may lead", "node", n.o.ID)
		return
	}
	n.log.Warn("the clock of this node is wrong, so that it does not lead while others can: set it, or raise --cluster-clock",
		"node", n.o.ID, "ahead", n.clocks.ahead().Round(time.Millisecond), "cluster-clock", n.clocks.limit)
	n.call(func() {
		status := n.raft.Status()
		if to := n.successor(&status, ""); status.RaftState == raft.StateLeader && to != 0 {
			n.change(n.endLead)
			n.raft.TransferLeader(to)
		}
	})
}
