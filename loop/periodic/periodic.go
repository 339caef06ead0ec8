// Package periodic speaks the Periodic protocol, see `treadle help periodic`. Clients submit jobs and
// workers do them on one port, in the plain framing of 2018 or the CRC framing.
//
// A LOAD is submitted job by job, as its bytes come. A DUMP and a long STATUS are encoded off the event loop.
package periodic

import (
	"strings"
	"sync/atomic"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

const name = "periodic"

// Protocol is the protocol in one server.
type Protocol struct {
	host   protocol.Host
	sched  *sched.Scheduler
	o      Options
	limits protocol.Limits
	config config

	unknownCommands, truncated, wrongRole atomic.Uint64
}

var _ interface {
	protocol.LoopServed
	protocol.SettingsRestorer
} = (*Protocol)(nil)

// New makes the protocol without opening its addresses.
func New(host protocol.Host, o Options) *Protocol {
	p := &Protocol{host: host, sched: host.Sched(), o: o, limits: host.Limits()}
	p.config.apply(p.sched)
	return p
}

// Name implements protocol.Protocol.
func (p *Protocol) Name() string { return name }

// Ports implements protocol.LoopServed.
func (p *Protocol) Ports() []protocol.Port {
	stops := p.o.Shutdown == on
	all := []protocol.Port{{Setting: name, Start: p.start(p.o.CRC), StopsServer: stops}}
	for _, a := range p.o.Listen {
		address, version := p.o.cutVersion(a)
		all = append(all, protocol.Port{Setting: name, Addresses: []string{address}, Start: p.start(version), StopsServer: stops})
	}
	return all
}

// start returns a Port.Start that answers peers of the CRC framing with the replies of a version.
func (p *Protocol) start(version string) func(*protocol.Session) protocol.Conversation {
	crc := wireVersions[version]
	return func(s *protocol.Session) protocol.Conversation {
		s.Label = name
		return &conversation{p: p, s: s, crc: crc}
	}
}

// Restore implements protocol.SettingsRestorer.
func (p *Protocol) Restore(key string, value []byte) error {
	if key, ok := strings.CutPrefix(key, configPrefix); ok {
		p.config.restore(key, value)
		p.config.apply(p.sched)
	}
	return nil
}

// CloseReasons implements protocol.LoopServed.
func (p *Protocol) CloseReasons() []protocol.CloseReason {
	return []protocol.CloseReason{
		{Err: codec.ErrMagic, Label: "bad_magic"}, {Err: codec.ErrHelloSize, Label: "too_large"}, {Err: codec.ErrTooLarge, Label: "too_large"},
		{Err: codec.ErrShort, Label: "too_short"}, {Err: codec.ErrChecksum, Label: "bad_checksum"}, {Err: codec.ErrHello, Label: "bad_handshake"},
	}
}

// Samples implements protocol.Protocol.
func (p *Protocol) Samples() []web.Sample {
	return []web.Sample{
		web.ProtocolErrors(name, "unknown_command", p.unknownCommands.Load()),
		web.ProtocolErrors(name, "truncated", p.truncated.Load()),
		web.ProtocolErrors(name, "wrong_role", p.wrongRole.Load()),
	}
}
