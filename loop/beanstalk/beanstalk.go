// Package beanstalk speaks the protocol of beanstalkd 1.12, see `treadle help beanstalk`. A tube is a queue.
//
// The replies of a connection come in the order of its requests. A reserve that waits suspends the session, and so does
// a request whose reply must not pass an acknowledgement that waits for the journal. Requests that concern any number
// of jobs or tubes do a part a turn.
package beanstalk

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync/atomic"

	codec "treadle/codec/beanstalk"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

const name = "beanstalk"

// Protocol is the protocol in one server.
type Protocol struct {
	host  protocol.Host
	sched *sched.Scheduler
	o     Options
	id    string // random, of this process
	tubes tubes

	commands                               [codec.Commands]atomic.Uint64 // requests, as the statistics count them
	badFormat, unknownCommand              atomic.Uint64
	expectedCRLF, jobTooBig                atomic.Uint64
	puts                                   atomic.Uint64 // jobs
	connections, producers, workers, waits atomic.Int64
	opened                                 atomic.Uint64 // connections since the start
}

var _ protocol.LoopServed = (*Protocol)(nil)

// New makes the protocol without opening its addresses.
func New(host protocol.Host, o Options) *Protocol {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	p := &Protocol{host: host, sched: host.Sched(), o: o, id: hex.EncodeToString(id[:])}
	p.tubes.init(p.sched)
	p.tubes.use(defaultTube).using.Store(0)
	return p
}

// Name implements protocol.Protocol.
func (p *Protocol) Name() string { return name }

// Ports implements protocol.LoopServed.
func (p *Protocol) Ports() []protocol.Port {
	return []protocol.Port{{Setting: name, Addresses: p.o.Listen, Start: p.start}}
}

// start is the Port.Start. A connection has no handshake, and may be silent for ever: clients keep idle ones.
func (p *Protocol) start(s *protocol.Session) protocol.Conversation {
	s.Capabilities, s.Label, s.HandshakeDone = sched.LongNames|sched.NoGrace|sched.AutoDelete, name, true
	p.connections.Add(1)
	p.opened.Add(1)
	c := &conversation{p: p, s: s, decoder: codec.Decoder{MaxJob: p.o.MaxJob}}
	c.used = p.tubes.use(defaultTube) // never too many: New has made it
	c.watched = []*tube{p.tubes.watch(defaultTube)}
	return c
}

// Errors that end a session.
var (
	errQuit      = errors.New("the peer has quit")
	errMalformed = errors.New("a line without an end, or a job that no server takes")
	errSkipped   = errors.New("a job that is too large stayed unfinished, see --frame-timeout")
)

// CloseReasons implements protocol.LoopServed.
func (p *Protocol) CloseReasons() []protocol.CloseReason {
	return []protocol.CloseReason{{Err: errQuit, Label: "quit"}, {Err: errMalformed, Label: "no_request"}, {Err: errSkipped, Label: "unfinished_job"}}
}

// Samples implements protocol.Protocol.
func (p *Protocol) Samples() []web.Sample {
	return []web.Sample{
		web.ProtocolErrors(name, "bad_format", p.badFormat.Load()),
		web.ProtocolErrors(name, "unknown_command", p.unknownCommand.Load()),
		web.ProtocolErrors(name, "expected_crlf", p.expectedCRLF.Load()),
		web.ProtocolErrors(name, "job_too_big", p.jobTooBig.Load()),
	}
}
