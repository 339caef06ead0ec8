package loop

import (
	"encoding/binary"
	"errors"

	"treadle/codec/gloom"
	"treadle/sched"
)

// The name spaces of jobs that came in by the Gloom protocol: ids are JSON values, a
// string's characters in one, any other value's text in the other, so that 7 and "7"
// are two ids.
const (
	gloomTextSpace  sched.Space = 2
	gloomValueSpace sched.Space = 3
)

// gloomRules are those of Gloom jobs: an id is unique among all masters, a job dies
// with its master, is never timed, and fails with its fourth slave.
var gloomRules = sched.Rules{Global: true, Owned: true, Untimed: true, Deaths: 4}

func isGloom(space sched.Space) bool { return space == gloomTextSpace || space == gloomValueSpace }

// Reasons to close a Gloom connection.
var (
	errNotJSON   = errors.New("a frame is not JSON")
	errNotObject = errors.New("a frame is JSON but no object")
)

// Words of the protocol's errors, as JSON where they are a reason.
var (
	reasonType          = []byte(`"type"`)
	reasonID            = []byte(`"id"`)
	reasonPriority      = []byte(`"priority"`)
	reasonBody          = []byte(`"body"`)
	reasonJobType       = []byte(`"job_type"`)
	reasonNotSlave      = []byte(`"not_a_slave"`)
	reasonNotMaster     = []byte(`"not_a_master"`)
	reasonNotProcessing = []byte(`"not_processing"`)
)

// maxEcho is the longest payload that an error repeats, escaped to up to six times its
// length: what a person may have typed or a program mixed up, not what a hostile peer
// wants copied. The connection is closed either way.
const maxEcho = 1 << 20

// maxGloomName is the longest id or type in bytes, as JSON: each is looked up, repeated in answers, and
// has its escapes resolved, all of it in one turn.
const maxGloomName = 1 << 20

// gloomTalk is a conversation in the Gloom protocol, protocols/gloom.md: one master
// or one slave.
type gloomTalk struct {
	s      *session
	master bool

	joined  []byte    // a slave's queue, nil before its first join
	busy    bool      // a slave was pushed a job
	asked   bool      // for a job that has not come
	job     sched.Run // of that job
	wrapped bool      // its workload was no JSON and was pushed as a string

	parse *gloomParse // nil: no large frame is being parsed
}

func newGloomMaster(s *session) conversation {
	s.protocol = protocolGloom
	return &gloomTalk{s: s, master: true}
}

func newGloomSlave(s *session) conversation {
	s.protocol, s.skills, s.label = protocolGloom, sched.Wide, "gloom"
	return &gloomTalk{s: s}
}

func (g *gloomTalk) consume(in []byte) (n int, err error) {
	if !g.s.settled { // there is no handshake, but both sorts of peers have to speak first
		g.s.settled, g.s.begun = true, 0
	}
	for n < len(in) {
		payload, k, err := gloom.Next(in[n:], g.s.r.server.o.GloomMaxFrame)
		if err != nil {
			g.s.touch()
			g.s.out = gloom.AppendTooLarge(g.s.out)
			return n, err
		}
		if k == 0 {
			return n, nil
		}
		var m gloom.Message
		if len(payload) <= largeFrame {
			err = g.s.r.server.parseGloom(payload, &m)
		} else if p := g.parsed(in, n, payload); p != nil {
			m, err = p.message, p.err
		} else {
			return n, nil
		}
		n += k
		g.s.r.frames++
		if err := g.handle(payload, &m, err); err != nil {
			return n, err
		}
		if g.s.congested() {
			break
		}
	}
	return n, nil
}

func (g *gloomTalk) need(in []byte) int { return max(gloom.Need(in), len(in)+1) }

// idleLimit is none: a master that has spoken may wait for hours. TCP keep-alive finds dead hosts.
func (g *gloomTalk) idleLimit() int64 { return 0 }

func (g *gloomTalk) closed() {}

// handle does what a message asks for, or says what is wrong with it.
func (g *gloomTalk) handle(payload []byte, m *gloom.Message, err error) error {
	switch {
	case err == gloom.ErrNotObject:
		return errNotObject
	case err != nil:
		if len(payload) <= maxEcho {
			g.s.touch()
			g.s.out = gloom.AppendInvalid(g.s.out, payload)
		}
		return errNotJSON
	case m.Action == nil:
		g.refuse(gloom.MissingField, reasonType)
	case g.master:
		g.fromMaster(m)
	default:
		g.fromSlave(m)
	}
	return nil
}

// parseGloom parses a payload by the rules of --gloom-json. It may run beside the loop.
func (s *Server) parseGloom(payload []byte, m *gloom.Message) error {
	if s.o.GloomJSON == GloomStrict {
		return gloom.Parse(payload, m)
	}
	return gloom.ParseLax(payload, s.o.GloomMaxFrame, m)
}

// refuse answers with an error; the connection stays.
func (g *gloomTalk) refuse(kind string, reason []byte) {
	g.s.r.server.counters.gloomErrors.Add(1)
	g.fail(kind, reason)
}

func (g *gloomTalk) fail(kind string, reason []byte) {
	g.s.touch()
	g.s.out = gloom.AppendError(g.s.out, kind, reason)
}

func (g *gloomTalk) fromMaster(m *gloom.Message) {
	switch gloom.Action(m) {
	case gloom.Submit:
	case gloom.Join, gloom.Respond:
		g.refuse(gloom.InvalidAction, reasonNotSlave)
		return
	default:
		g.refuse(gloom.UnknownAction, m.Action)
		return
	}
	priority, isInteger := int64(0), true
	if m.Priority != nil {
		priority, isInteger = gloom.Priority(m.Priority)
	}
	switch {
	case m.ID == nil:
		g.refuse(gloom.MissingField, reasonID)
	case m.Type == nil:
		g.refuse(gloom.MissingField, reasonType)
	case !isInteger:
		g.refuse(gloom.InvalidType, reasonPriority)
	case m.Body == nil:
		g.refuse(gloom.MissingField, reasonBody)
	case len(m.ID) > maxGloomName:
		g.refuse(gloom.InvalidType, reasonID)
	case len(m.Type) > maxGloomName:
		g.refuse(gloom.InvalidType, reasonType)
	default:
		g.submit(m, priority)
	}
}

// submit acknowledges, and only then says that an id is taken, as the reference does.
func (g *gloomTalk) submit(m *gloom.Message, priority int64) {
	r := g.s.r
	g.s.touch()
	g.s.out = gloom.AppendSubmitted(g.s.out, m.ID)
	r.scratch = appendGloomJob(r.scratch[:0], m)
	name, isText := gloom.Text(nil, m.ID)
	space := gloomTextSpace
	if !isText {
		space, name = gloomValueSpace, m.ID
	}
	_, err := r.server.sched.Submit(r.now, &sched.Submission{
		Space: space, Queue: gloomQueue(m.Type), Name: name, Workload: r.scratch,
		Priority: priority, Await: g.s.party(),
	}, r)
	switch {
	case err == sched.ErrDuplicate:
		g.refuse(gloom.IDExists, m.ID)
	case err != nil:
		r.server.counters.refusals[reasonOf(err)].Add(1)
		g.refuse(gloom.JobFailed, m.ID)
	}
}

// gloomQueue is the queue of a type: that of the Periodic function of the same
// characters for a string, one of its own for any other value.
func gloomQueue(typ []byte) []byte {
	if text, ok := gloom.Text(nil, typ); ok {
		return queueOf(text)
	}
	return append([]byte{queueEscape, valueQueue}, typ...)
}

func (g *gloomTalk) fromSlave(m *gloom.Message) {
	switch gloom.Action(m) {
	case gloom.Join:
		if m.Type == nil {
			g.refuse(gloom.MissingField, reasonJobType)
			return
		}
		if len(m.Type) > maxGloomName {
			g.refuse(gloom.InvalidType, reasonJobType)
			return
		}
		g.join(gloomQueue(m.Type))
	case gloom.Respond:
		switch {
		case !g.busy:
			g.refuse(gloom.InvalidState, reasonNotProcessing)
		case m.Body == nil:
			g.refuse(gloom.MissingField, reasonBody)
		default:
			g.respond(m.Body)
		}
	case gloom.Submit:
		g.refuse(gloom.InvalidAction, reasonNotMaster)
	default:
		g.refuse(gloom.UnknownType, m.Action)
	}
}

func (g *gloomTalk) ok() {
	g.s.touch()
	g.s.out = gloom.AppendOK(g.s.out)
}

// join makes the slave one of a type, from its next job on.
func (g *gloomTalk) join(queue []byte) {
	r := g.s.r
	s, p := r.server.sched, g.s.party()
	if g.joined != nil && string(g.joined) != string(queue) {
		s.Unwatch(p, g.joined)
	}
	g.joined = append([]byte(nil), queue...)
	g.ok()
	if err := s.Watch(r.now, p, queue, false, r); err != nil {
		g.s.end(err)
		return
	}
	g.next()
}

// next asks for a job, unless the slave has one or has asked: one may be on its way from
// another loop.
func (g *gloomTalk) next() {
	if !g.busy && !g.asked {
		g.asked = true
		r := g.s.r
		_ = r.server.sched.Reserve(r.now, g.s.party(), 0, r) // one slot is never too many
	}
}

// respond ends the job. One that is the slave's no more, because its time was over
// or its function was dropped, is acknowledged all the same.
func (g *gloomTalk) respond(body []byte) {
	r := g.s.r
	g.ok()
	g.busy = false
	data := body
	if g.wrapped {
		if text, ok := gloom.Text(nil, body); ok {
			data = text
		}
	}
	if err := r.server.sched.Finish(r.now, g.s.party(), g.job, data, r); err != nil {
		g.s.tooLate("respond", func() (string, string) { return r.server.sched.NameOf(g.job) })
	}
	g.next()
}

// deliver implements conversation.
func (g *gloomTalk) deliver(d *sched.Delivery) {
	switch d.Effect {
	case sched.Assign, sched.Broadcast:
		g.push(&d.Job)
	case sched.Result:
		id, _, _ := splitGloomJob(d.Job.Workload)
		g.s.out = gloom.AppendResponse(g.s.out, id, d.Data)
	case sched.Failed, sched.Removed:
		id, _, _ := splitGloomJob(d.Job.Workload)
		g.fail(gloom.JobFailed, id)
	}
}

// push hands a job to the slave. A Periodic job's id is its name; its workload is
// the body if it is JSON.
func (g *gloomTalk) push(j *sched.Job) {
	g.s.given = true
	g.busy, g.asked, g.job, g.wrapped = true, false, j.Run(), false
	if isGloom(j.Space) {
		id, typ, body := splitGloomJob(j.Workload)
		g.s.out = gloom.AppendJob(g.s.out, id, typ, body)
		return
	}
	r := g.s.r
	id := gloom.AppendText(r.scratch[:0], j.Name)
	function, _ := functionOf(j.Queue)
	all := gloom.AppendText(id, function)
	typ := all[len(id):]
	if j.Space == dworkSpace {
		all = appendTaskJSON(all, j.Name, j.Workload)
	} else {
		all, g.wrapped = appendBody(all, j.Workload)
	}
	body := all[len(id)+len(typ):]
	r.scratch = all
	g.s.out = gloom.AppendJob(g.s.out, all[:len(id)], all[len(id):len(id)+len(typ)], body)
}

// appendBody makes JSON of a workload, without outer white space, and says whether it was
// none before and is a string now.
func appendBody(dst, workload []byte) ([]byte, bool) { return gloom.AppendValue(dst, workload) }

// A Gloom job's workload is its id, its type and its body, all as they were received.
func appendGloomJob(dst []byte, m *gloom.Message) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(m.ID)))
	dst = append(dst, m.ID...)
	dst = binary.AppendUvarint(dst, uint64(len(m.Type)))
	dst = append(dst, m.Type...)
	return append(dst, m.Body...)
}

func splitGloomJob(workload []byte) (id, typ, body []byte) {
	part := func() []byte {
		size, n := binary.Uvarint(workload)
		p := workload[n : n+int(size)]
		workload = workload[n+int(size):]
		return p
	}
	id, typ = part(), part()
	return id, typ, workload
}
