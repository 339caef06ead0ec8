package loop

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"slices"

	"treadle/loop/disbatch/hub"
	"treadle/loop/dwork"
	"treadle/loop/gloom"
	"treadle/loop/journal"
	"treadle/loop/kts46"
	"treadle/loop/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// newProtocols makes the protocols, in the order in which they listen, close and show metrics. A new
// protocol is added here and to spaces.
func newProtocols(s *Server) ([]protocol.Protocol, error) {
	o := &s.o
	disbatch, err := hub.New(host{s}, o.disbatch())
	if err != nil {
		return nil, &OptionError{Setting: "disbatch", Err: err}
	}
	kts := kts46.New(host{s}, o.Kts46.options(s))
	return []protocol.Protocol{
		periodic.New(host{s}, o.periodic(kts.Projects)),
		gloom.New(host{s}, gloom.Options{Masters: o.GloomMasters, Slaves: o.GloomSlaves, MaxFrame: o.GloomMaxFrame, Strict: o.GloomJSON == GloomStrict}),
		dwork.New(host{s}, o.dwork()),
		kts,
		disbatch, // last: its Close waits for tasks, and the others must not serve meanwhile
	}, nil
}

// spaces is the table of all name spaces of jobs.
var spaces = protocol.TableOf(slices.Concat(
	periodic.Spaces(),
	gloom.Spaces(),
	dwork.Spaces(),
	hub.Spaces(),
	kts46.Spaces(),
)...)

// rules returns the rules of each name space, and how many milliseconds after its time-out a
// job is released.
func (o *Options) rules() (rules [sched.MaxSpaces]sched.Rules, grace int64) {
	return spaces.Rules(), o.PeriodicGrace.Milliseconds()
}

// protocolsWith ranges over the protocols that implement T.
func protocolsWith[T any](s *Server) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, p := range s.protocols {
			if t, ok := p.(T); ok && !yield(t) {
				return
			}
		}
	}
}

// host implements protocol.Host for a Server.
type host struct{ *Server }

// Sched implements protocol.Host.
func (h host) Sched() *sched.Scheduler { return h.sched }

// Now implements protocol.Host.
func (h host) Now() sched.Time { return h.now() }

// Log implements protocol.Host.
func (h host) Log() *slog.Logger { return h.o.Log }

// LogLimited implements protocol.Host.
func (h host) LogLimited(level slog.Level, message string, args ...any) {
	if h.logLimit.allow(h.now().Mono) {
		h.o.Log.Log(context.Background(), level, message, args...)
	}
}

// Refused implements protocol.Host.
func (h host) Refused(why protocol.Reason) { h.counters.refusals[why].Add(1) }

// Full implements protocol.Host.
func (h host) Full() bool { return h.diskFull() }

// RoomFor implements protocol.Host.
func (h host) RoomFor(bytes int) bool { return h.diskHasRoom(bytes) }

// Durable implements protocol.Host.
func (h host) Durable(queue []byte) (group uint64, wait bool) { return h.durable(queue) }

// DurableAll implements protocol.Host.
func (h host) DurableAll() (group uint64, wait bool) { return h.durableAll() }

// Committed implements protocol.Host.
func (h host) Committed() uint64 { return h.journal.journal.Committed() }

// Flush implements protocol.Host.
func (h host) Flush(acknowledgements int) { h.journal.flush(acknowledgements) }

// FlushLater implements protocol.Host.
func (h host) FlushLater() { h.journal.flushLater() }

// Await implements protocol.Host.
func (h host) Await(group uint64) error { return h.await(group) }

// PutSetting implements protocol.Host.
func (h host) PutSetting(key string, value []byte) {
	if h.journal != nil {
		h.journal.journal.PutSetting(key, value)
		h.journal.dirty.Store(true)
	}
}

// PutDocument implements protocol.Host.
func (h host) PutDocument(d *protocol.Document) {
	if h.journal != nil {
		h.journal.journal.PutDocument(journalDocument(d))
		h.journal.dirty.Store(true)
	}
}

// DropDocument implements protocol.Host.
func (h host) DropDocument(d *protocol.Document) {
	if h.journal != nil {
		h.journal.journal.DeleteDocument(journalDocument(d))
		h.journal.dirty.Store(true)
	}
}

func journalDocument(d *protocol.Document) *journal.Document {
	return &journal.Document{Kind: journal.Kind(d.Kind), Project: d.Project, Name: d.Name, Value: d.Value}
}

// NewSink implements protocol.Host.
func (h host) NewSink() protocol.Sink { return &mailSink{h.Server, make([]bool, h.o.Loops)} }

// NewLocalPeer implements protocol.Host.
func (h host) NewLocalPeer(deliver func(*sched.Delivery)) *sched.Peer {
	id := uint64(ownLoop)<<loopShift | uint64(len(h.localPeers))
	h.localPeers = append(h.localPeers, deliver)
	return h.sched.NewPeer(sched.SessionID(id))
}

// Fail implements protocol.Host.
func (h host) Fail(err error) { h.fail(err) }

// MostUnsent implements protocol.Host.
func (h host) MostUnsent() int { return h.mostUnsent() }

// Listen implements protocol.Host.
func (h host) Listen(protocol, setting, address string) (net.Listener, error) {
	l, err := h.listenOn(setting, address)
	if err != nil {
		return nil, err
	}
	id := h.conns.id(protocol)
	h.conns.reserveShare(id)
	return &countedListener{l, h.Server, id}, nil
}

// Quit implements protocol.Host.
func (h host) Quit() { h.quit() }
