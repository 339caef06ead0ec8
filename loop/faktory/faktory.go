// Package faktory speaks the Faktory work protocol, see `treadle help faktory`. Producers push jobs and workers fetch
// them on one port, in lines with JSON.
//
// A fetched job is leased: its worker may report it on any connection, also after the server was started again.
// Replies come in the order of the commands, those to a PUSH after the journal has committed it. A line over
// largeLine, and a command that looks at all jobs, is handled off the event loop.
package faktory

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"strconv"
	"sync/atomic"

	codec "treadle/codec/faktory"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

const name = "faktory"

// Protocol is the protocol in one server.
type Protocol struct {
	host     protocol.Host
	sched    *sched.Scheduler
	o        Options
	limits   protocol.Limits
	password string
	workers  workers
	paused   pausedQueues
	unique   uniqueLocks
	tracks   tracks

	connections atomic.Int64
	commands    atomic.Uint64
	errors      atomic.Uint64 // of wrong commands and jobs
}

var _ interface {
	protocol.LoopServed
	protocol.SettingsRestorer
	protocol.JobHook
} = (*Protocol)(nil)

// New makes the protocol without opening its addresses.
func New(host protocol.Host, o Options) (*Protocol, error) {
	password, err := o.password()
	if err != nil {
		return nil, err
	}
	return &Protocol{host: host, sched: host.Sched(), o: o, limits: host.Limits(), password: password}, nil
}

// Name implements protocol.Protocol.
func (p *Protocol) Name() string { return name }

// Ports implements protocol.LoopServed.
func (p *Protocol) Ports() []protocol.Port {
	return []protocol.Port{{Setting: name, Addresses: p.o.Listen, Start: p.start}}
}

// Iterations of the hash of a password. The server says how many, so that each connection costs little and a recorded
// hash is not found by trying all short passwords.
const (
	minIterations  = 4000
	moreIterations = 4096
)

// start is the Port.Start.
func (p *Protocol) start(s *protocol.Session) protocol.Conversation {
	s.Capabilities, s.Label = sched.LongNames, name
	c := &conversation{p: p, s: s}
	var b [18]byte
	_, _ = rand.Read(b[:]) // never fails
	c.secret = binary.LittleEndian.Uint64(b[:])
	if p.password != "" {
		c.salt = strconv.FormatUint(binary.LittleEndian.Uint64(b[8:]), 16)
		c.iterations = minIterations + int(binary.LittleEndian.Uint16(b[16:]))%moreIterations
	}
	p.connections.Add(1)
	s.OpenOut()
	s.Out = codec.AppendHi(s.Out, c.salt, c.iterations)
	return c
}

// Restore implements protocol.SettingsRestorer.
func (p *Protocol) Restore(key string, value []byte) error {
	p.paused.restore(key, value)
	return nil
}

// Errors that end a session.
var (
	errPassword = errors.New("the password is wrong")
	errNoBeat   = errors.New("no BEAT of the worker within a minute")
)

// CloseReasons implements protocol.LoopServed.
func (p *Protocol) CloseReasons() []protocol.CloseReason {
	return []protocol.CloseReason{
		{Err: codec.ErrTooLong, Label: "too_large"}, {Err: codec.ErrHello, Label: "bad_handshake"}, {Err: errPassword, Label: "bad_password"},
		{Err: errNoBeat, Label: "no_heartbeat"},
	}
}

// Samples implements protocol.Protocol.
func (p *Protocol) Samples() []web.Sample {
	return []web.Sample{web.ProtocolErrors(name, "answered_error", p.errors.Load())}
}
