//go:build invariants

package sim

import (
	"encoding/binary"
	"math"
	"slices"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
	"treadle/loop"
)

// setting is what the ledger knows of one key of CONFIG_SET.
type setting struct {
	names     []string
	names2026 []string  // names in the CRC framing of 2026
	unset     [2]uint32 // the values shown until a client sets it: in that framing and elsewhere
	values    []uint32  // all values that it has had, the present one last
	disk      int       // index in values of the oldest value that a crash may leave
	choices   []uint32  // values that clients set it to; none: any below 100
}

// newSettings returns the settings of a new server: the protocol's keys with their later names.
func newSettings() []*setting {
	return []*setting{
		timeoutSetting: {names: []string{"timeout"}, names2026: []string{"timeout"}, values: []uint32{600}},
		wornSetting:    {names: []string{"assign-wait"}, names2026: []string{"assign-wait"}, values: []uint32{2}},
		{names: []string{"poll-delay", "poll-interval"}, values: []uint32{300}},
		{names: []string{"revert-delay", "revert-interval"}, values: []uint32{300}},
		{names: []string{"max-patch", "max-batch-size"}, names2026: []string{"max-batch-size"}, values: []uint32{isUnset}, unset: [2]uint32{500, 250}},
		lockTimeoutSetting: {names: []string{"lock-timeout"}, names2026: []string{"lock-timeout"}, values: []uint32{300}, choices: []uint32{1, 10, 300}},
		keepaliveSetting: {names: []string{"keepalive"}, names2026: []string{"keepalive"}, values: []uint32{isUnset},
			unset: [2]uint32{120, 300}, choices: []uint32{15, 300, 300}},
		{names2026: []string{"max-pool-size"}, values: []uint32{2}},
		{names2026: []string{"run-job-aggressive"}, values: []uint32{0}},
	}
}

// isUnset stands for a value that no client has set. A setting that shows the same everywhere needs none.
const isUnset = math.MaxUint32

// namesFor returns the names of a setting for a client.
func (s *setting) namesFor(v2026 bool) []string {
	if v2026 {
		return s.names2026
	}
	return s.names
}

// mayShow reports whether a client may see a value of a setting that has one of several values.
func (s *setting) mayShow(values []uint32, value uint32, v2026 bool) bool {
	def := s.unset[1]
	if v2026 {
		def = s.unset[0]
	}
	return slices.Contains(values, value) || value == def && slices.Contains(values, isUnset)
}

// hasSettings2026 reports whether a framing has the settings of 2026.
func (l *Ledger) hasSettings2026(framing periodic.Framing) bool {
	return framing == periodic.CRC && l.setup.periodicVersion == "2026"
}

// Indexes of settings with a special part in the play.
const (
	timeoutSetting     = iota // changes between turns only, because it acts at once
	wornSetting               // changes by wear only
	anySetting                // the first of the settings that clients change at any time
	lockTimeoutSetting = 5
	keepaliveSetting   = 6
)

func (s *setting) now() uint32 { return s.values[len(s.values)-1] }

// set notes a CONFIG_SET. The ledger calls acknowledged when it is answered.
func (s *setting) set(value uint32) (acknowledged func()) {
	s.values = append(s.values, value)
	i := len(s.values) - 1
	return func() { s.disk = max(s.disk, i) }
}

// configure sends a CONFIG_SET or a CONFIG_GET by one of the key's names.
func (s *Simulator) configure(c *Conn) {
	k := s.ledger.config[anySetting+s.rng.IntN(len(s.ledger.config)-anySetting)]
	names := k.namesFor(s.ledger.hasSettings2026(c.framing()))
	if s.rng.IntN(2) == 0 || len(names) == 0 {
		s.askSetting(c, s.ledger.config[s.rng.IntN(len(s.ledger.config))])
		return
	}
	name := names[s.rng.IntN(len(names))]
	value := s.rng.Uint32N(100)
	if len(k.choices) > 0 {
		value = k.choices[int(value)%len(k.choices)]
	}
	r := &Request{cmd: periodic.ConfigSet}
	r.onArrival = func() { r.acknowledged = k.set(value) }
	c.ask(r, binary.BigEndian.AppendUint32(periodic.AppendStr8String(nil, name), value))
	s.trace.Logf("c%d sets %s to %d", c.id, name, value)
}

// askSetting sends a CONFIG_GET. The answer must be a value that the setting has between then and now.
func (s *Simulator) askSetting(c *Conn, k *setting) {
	names := k.namesFor(s.ledger.hasSettings2026(c.framing()))
	if len(names) == 0 {
		return
	}
	r := &Request{cmd: periodic.ConfigGet, settingRequest: settingRequest{setting: k}}
	r.onArrival = func() { r.from = len(k.values) - 1 }
	c.ask(r, periodic.AppendStr8String(nil, names[s.rng.IntN(len(names))]))
}

// checkSetting checks the answer to a CONFIG_GET.
func (l *Ledger) checkSetting(c *Conn, q *Request, body []byte) {
	k := q.setting
	if len(body) != 5 || body[0] != byte(periodic.Config) || !k.mayShow(k.values[q.from:], binary.BigEndian.Uint32(body[1:]), l.hasSettings2026(c.framing())) {
		l.trace.Failf("c%d asks for %s %s: got %x, want CONFIG and one of %d", c.id, k.names, k.names2026, body, k.values[q.from:])
	}
}

// changeTimeout sets the default time-out of jobs, and commits it.
func (s *Simulator) changeTimeout() {
	s.settle()
	for _, j := range s.ledger.jobs {
		if s.ledger.noteOverdue(j); j.holder != nil && !s.ledger.holds(j.holder, j) { // by the earlier limit
			j.holder, j.orderKnown, j.holderUnknown, j.turn = nil, false, true, s.ledger.turn
			j.failures++
		}
	}
	s.changeSetting(s.ledger.config[timeoutSetting], []uint32{600, 5}[s.rng.IntN(2)])
	s.trace.Logf("jobs may take %d s", s.ledger.config[timeoutSetting].now())
	s.pass(0)
}

// changeSetting changes a setting, and commits it.
func (s *Simulator) changeSetting(k *setting, value uint32) {
	v := s.probe(s.server)
	id, _ := v.set(k, value)
	s.commit()
	if v.answer(id) == nil {
		s.trace.Failf("a CONFIG_SET has no answer, although it is committed")
	}
	v.peer.Close()
}

// checkSettings compares all settings in both framings. After a crash each must have a value that a crash may leave.
func (s *Simulator) checkSettings(crashed bool) {
	possible := make([][]uint32, len(s.ledger.config))
	for i, k := range s.ledger.config {
		if possible[i] = k.values[len(k.values)-1:]; crashed {
			possible[i] = k.values[k.disk:]
		}
	}
	for _, framing := range []periodic.Framing{periodic.Plain, periodic.CRC} {
		v := s.probeIn(s.server, framing)
		for i, k := range s.ledger.config {
			for _, name := range k.namesFor(s.ledger.hasSettings2026(framing)) {
				body := v.ask(periodic.ConfigGet, periodic.AppendStr8String(nil, name))
				if len(body) != 5 || body[0] != byte(periodic.Config) {
					s.trace.Failf("a CONFIG_GET of %s: got %x, want CONFIG and a value", name, body)
				}
				value, was := binary.BigEndian.Uint32(body[1:]), possible[i]
				possible[i] = slices.DeleteFunc(slices.Clone(was), func(v uint32) bool { return !k.mayShow([]uint32{v}, value, s.ledger.hasSettings2026(framing)) })
				if len(possible[i]) == 0 {
					s.trace.Failf("%s: got %d, want one of %d", name, value, was)
				}
			}
		}
		if body := v.ask(periodic.ConfigGet, periodic.AppendStr8String(nil, "no such key")); string(body) != "\x18\x00\x00\x00\x00" {
			s.trace.Failf("a CONFIG_GET of no key: got %x, want CONFIG and 0", body)
		}
		v.peer.Close()
	}
	for i, k := range s.ledger.config {
		if crashed { // several values are left only when they show the same in both framings
			k.values, k.disk = possible[i][:1], 0
		}
	}
}

// probe is a client that the simulation itself uses to look into a server. Nothing else happens between its request and
// the answer, unless that waits for a commit.
type probe struct {
	s         *Simulator
	peer      *loop.OfflinePeer
	framing   periodic.Framing
	next      uint32
	undecoded []byte
}

func (s *Simulator) probe(server *loop.Offline) *probe {
	return s.probeIn(server, []periodic.Framing{periodic.Plain, periodic.CRC}[s.rng.IntN(2)])
}

func (s *Simulator) probeIn(server *loop.Offline, framing periodic.Framing) *probe {
	return s.probeAs(server, framing, periodic.Client)
}

func (s *Simulator) probeAs(server *loop.Offline, framing periodic.Framing, role periodic.Role) *probe {
	v := &probe{s: s, peer: server.Connect("periodic"), framing: framing}
	v.peer.Send(periodic.AppendHello(nil, &periodic.Hello{Framing: v.framing, Role: role}))
	v.peer.Read()
	return v
}

// send sends a request, and returns its message id.
func (v *probe) send(cmd periodic.Command, args []byte) (id uint32) {
	v.next++
	v.peer.Send(wire.PeriodicFrame(v.framing, v.next, cmd, args))
	return v.next
}

// answer returns the answer to a request; nil: none yet.
func (v *probe) answer(id uint32) (body []byte) {
	v.undecoded = append(v.undecoded, v.peer.Read()...)
	var r periodic.Response
	n, err := periodic.NextResponse(v.undecoded, v.framing, periodic.MaxPayload, &r)
	if err != nil || n > 0 && r.MsgID != id {
		v.s.trace.Failf("request %d of a probe: got %x, want its answer: %v", id, v.undecoded, err)
	}
	v.undecoded = v.undecoded[n:]
	return r.Body
}

// ask returns the answer to a request, which must come at once.
func (v *probe) ask(cmd periodic.Command, args []byte) (body []byte) {
	if body = v.answer(v.send(cmd, args)); body == nil {
		v.s.trace.Failf("a %v of a probe has no answer: want one at once", cmd)
	}
	return body
}

// set notes a CONFIG_SET. The ledger calls acknowledged when it is answered.
func (v *probe) set(k *setting, value uint32) (id uint32, acknowledged func()) {
	acknowledged = k.set(value)
	return v.send(periodic.ConfigSet, binary.BigEndian.AppendUint32(periodic.AppendStr8String(nil, k.names[0]), value)), acknowledged
}
