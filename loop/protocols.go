package loop

import (
	"treadle/loop/gloom"
	"treadle/loop/protocol"
	"treadle/sched"
)

// A protocol is added here: to the list of protocols, and its name spaces to their table.

// newProtocols makes the protocols that the settings ask for, in the order in which they listen.
func newProtocols(s *Server) []protocol.Protocol {
	o := &s.o
	return []protocol.Protocol{
		&periodicProtocol{s},
		gloom.New(host{s}, gloom.Options{Masters: o.GloomMasters, Slaves: o.GloomSlaves, MaxFrame: o.GloomMaxFrame, Strict: o.GloomJSON == GloomStrict}),
	}
}

// spaces is the table of all name spaces of jobs.
var spaces = protocol.TableOf(append(gloom.Spaces(),
	protocol.Space{ID: periodicSpace, Rules: sched.Rules{Durable: true}},
	protocol.Space{ID: dworkSpace, Rules: dworkRules, Bare: true, Text: appendTaskJSON, JSON: appendTaskJSON},
	protocol.Space{ID: ktsSpace, Rules: ktsRules},
	protocol.Space{ID: disbatchSpace, Rules: disbatchRules},
)...)

// host is the server as its protocols see it. It implements protocol.Host.
type host struct{ *Server }

// Sched implements protocol.Host.
func (h host) Sched() *sched.Scheduler { return h.sched }

// Refused implements protocol.Host.
func (h host) Refused(err error) { h.counters.refusals[reasonOf(err)].Add(1) }
