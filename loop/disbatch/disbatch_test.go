package disbatch

import (
	"testing"

	"treadle/loop/protocol"
	"treadle/sched"
)

// host is a server without peers.
type host struct {
	protocol.Host
	s        *sched.Scheduler
	refusing error
	refused  *protocol.Reason
}

func (h host) Sched() *sched.Scheduler { return h.s }

func (h host) Now() sched.Time { return sched.Time{Wall: 1, Mono: 1} }

func (h host) CheckCapacity() error { return h.refusing }

func (h host) CountRefusal(name string, why protocol.Reason) {
	if name != "disbatch" {
		panic("BUG: no protocol is called " + name)
	}
	*h.refused = why
}

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

// TestRefused: a server without memory for new jobs refuses a task's. A full disk does not, as its jobs are not on it.
func TestRefused(t *testing.T) {
	rules := protocol.TableOf(Spaces()...).Rules()
	for refusing, want := range map[error]protocol.Reason{protocol.ErrMaxMemory: protocol.ReasonMaxMemory, protocol.ErrDisk: 0, nil: 0} {
		var why protocol.Reason
		h, err := New(host{s: sched.New(sched.Options{Shards: 1, Rules: rules}), refusing: refusing, refused: &why}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = h.Submit("work", "a", []byte("{}"), func([]byte, error) {})
		if refused := err != nil; refused != (want != 0) || why != want {
			t.Errorf("%v: %v, counted as %v", refusing, err, why)
		}
	}
}
