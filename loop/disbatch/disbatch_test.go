package disbatch

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

func (h host) NewLocalPeer(func(*sched.Delivery)) *sched.Peer { return h.s.NewPeer(1) }

type sink struct{}

func (sink) Deliver(*sched.Delivery) {}

func (sink) Wake() {}

// TestWithdrawnTask: a task that the node has withdrawn has no result.
func TestWithdrawnTask(t *testing.T) {
	rules := protocol.TableOf(Spaces()...).Rules()
	h, err := New(host{s: sched.New(sched.Options{Shards: 1, Rules: rules})}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = h.Submit("work", "a", []byte("{}"), func(_ []byte, err error) { t.Errorf("the node gets a result: %v", err) })
	if err != nil || !h.Withdraw("work", "a") || h.Withdraw("work", "a") {
		t.Errorf("want one withdrawal: %v", err)
	}
	h.deliver(&sched.Delivery{Tag: h.lastTag, Effect: sched.Removed})
	if !h.Turn() || len(h.callbacks) > 0 {
		t.Error("the callback is still there")
	}
}
