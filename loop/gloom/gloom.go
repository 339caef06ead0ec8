// Package gloom speaks the Gloom protocol, see `treadle help gloom`. Masters submit jobs on one port and slaves do them
// on another, in frames of JSON.
//
// A frame over LargeFrame is parsed off the event loop. MaxName bounds ids and types.
package gloom

import (
	"errors"
	"sync/atomic"

	codec "treadle/codec/gloom"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

const name = "gloom"

// Protocol is the protocol in one server.
type Protocol struct {
	host   protocol.Host
	sched  *sched.Scheduler
	o      Options
	errors atomic.Uint64 // of answerError
}

var _ protocol.LoopServed = (*Protocol)(nil)

// New makes the protocol without opening its addresses.
func New(host protocol.Host, o Options) *Protocol {
	return &Protocol{host: host, sched: host.Sched(), o: o}
}

// Name implements protocol.Protocol.
func (p *Protocol) Name() string { return name }

// Ports implements protocol.LoopServed.
func (p *Protocol) Ports() []protocol.Port {
	return []protocol.Port{
		{Setting: settingMasters, Addresses: p.o.Masters, Start: p.start(true)},
		{Setting: settingSlaves, Addresses: p.o.Slaves, Start: p.start(false)},
	}
}

// start returns the Port.Start of the masters' port or of the slaves'.
func (p *Protocol) start(master bool) func(*protocol.Session) protocol.Conversation {
	return func(s *protocol.Session) protocol.Conversation {
		if s.Role = protocol.RoleClient; !master {
			s.Capabilities, s.Label, s.Role = sched.LongNames, name, protocol.RoleWorker
		}
		return &conversation{p: p, s: s, master: master}
	}
}

// Errors that end a session.
var (
	errNotJSON   = errors.New("a frame is not JSON")
	errNotObject = errors.New("a frame is JSON but no object")
)

// CloseReasons implements protocol.LoopServed.
func (p *Protocol) CloseReasons() []protocol.CloseReason {
	return []protocol.CloseReason{{Err: errNotJSON, Label: "invalid_json"}, {Err: errNotObject, Label: "not_an_object"},
		{Err: codec.ErrTooLarge, Label: "too_large"}}
}

// Samples implements protocol.Protocol.
func (p *Protocol) Samples() []web.Sample {
	return []web.Sample{web.ProtocolErrors(name, "answered_error", p.errors.Load())}
}
