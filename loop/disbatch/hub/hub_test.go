package hub

import (
	"testing"

	"treadle/loop/protocol"
	"treadle/sched"
)

// host is a server without peers.
type host struct {
	protocol.Host
	s *sched.Scheduler
}

func (h host) Sched() *sched.Scheduler { return h.s }

func (h host) Now() sched.Time { return sched.Time{Wall: 1, Mono: 1} }

func (h host) NewSink() protocol.Sink { return sink{} }

func (h host) NewInsider(func(*sched.Delivery)) *sched.Peer { return h.s.NewPeer(1) }

type sink struct{}

func (sink) Deliver(*sched.Delivery) {}

func (sink) Wake() {}

// TestWithdrawnTaskIsNotTold: what a node has withdrawn does not end for it a second time.
func TestWithdrawnTaskIsNotTold(t *testing.T) {
	rules := protocol.TableOf(Spaces()...).Rules()
	h, err := New(host{s: sched.New(sched.Options{Shards: 1, Rules: rules})}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = h.Submit("work", "a", []byte("{}"), func(_ []byte, err error) { t.Errorf("the node is told of its end: %v", err) })
	if err != nil || !h.Withdraw("work", "a") || h.Withdraw("work", "a") {
		t.Errorf("it is not withdrawn once: %v", err)
	}
	h.put(&sched.Delivery{Tag: h.last, Effect: sched.Removed})
	if !h.Turn() || len(h.waiting) > 0 {
		t.Error("it is remembered")
	}
}
