package gloom

import (
	"errors"

	codec "treadle/codec/gloom"
	"treadle/codec/jsontext"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Errors that close a Gloom connection.
var (
	errNotJSON   = errors.New("a frame is not JSON")
	errNotObject = errors.New("a frame is JSON but no object")
)

// Reasons of the protocol's errors, as JSON.
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

// MaxEcho is the longest invalid payload that the error repeats. Escaped it has up to six times its length. The
// connection is closed either way.
const MaxEcho = 1 << 20

// MaxName is the longest id or type in bytes, as JSON. Each is unescaped, looked up and repeated in replies within one
// turn.
const MaxName = 1 << 20

// conversation speaks the Gloom protocol with one master or slave.
type conversation struct {
	p      *Protocol
	s      *protocol.Session
	master bool

	// The state of a slave.
	joined   []byte    // its queue, nil before the first join
	busy     bool      // it has a job
	reserved bool      // it waits for a job
	job      sched.Run // its job
	wrapped  bool      // the job's workload is not JSON and was pushed as a string

	parsing *parsing // a large frame that is parsed off the event loop, or nil
}

// Consume implements protocol.Conversation: it handles all whole frames of in, and returns their bytes. A large frame
// is parsed off the event loop.
func (g *conversation) Consume(in []byte) (n int, err error) {
	g.s.HandshakeDone = true // Gloom has none: masters and slaves speak first
	for n < len(in) {
		payload, k, err := codec.Next(in[n:], g.p.o.MaxFrame)
		if err != nil {
			g.s.Touch()
			g.s.Out = codec.AppendTooLarge(g.s.Out)
			return n, err
		}
		if k == 0 {
			return n, nil
		}
		var m codec.Message
		if len(payload) <= LargeFrame {
			err = g.p.parse(payload, &m)
		} else if p := g.parsed(in, n, payload); p != nil {
			m, err = p.message, p.err
		} else {
			return n, nil
		}
		n += k
		g.s.Loop.Frames[g.s.Protocol]++
		if err := g.handle(payload, &m, err); err != nil {
			return n, err
		}
		if g.s.Congested() {
			break
		}
	}
	return n, nil
}

// Need implements protocol.Sized.
func (g *conversation) Need(in []byte) int { return max(codec.Need(in), len(in)+1) }

// IdleLimit returns no limit: a master may wait for hours. TCP keep-alive finds dead hosts.
func (g *conversation) IdleLimit() int64 { return 0 }

func (g *conversation) Closed() {}

// handle handles one message, or answers the error of its parser.
func (g *conversation) handle(payload []byte, m *codec.Message, err error) error {
	switch {
	case err == codec.ErrNotObject:
		return errNotObject
	case err != nil:
		if len(payload) <= MaxEcho {
			g.s.Touch()
			g.s.Out = codec.AppendInvalid(g.s.Out, payload)
		}
		return errNotJSON
	case m.Action == nil:
		g.answerError(codec.MissingField, reasonType)
	case g.master:
		g.fromMaster(m)
	default:
		g.fromSlave(m)
	}
	return nil
}

// answerError answers with an error and keeps the connection.
func (g *conversation) answerError(kind string, reason []byte) {
	g.p.errors.Add(1)
	g.sendError(kind, reason)
}

func (g *conversation) sendError(kind string, reason []byte) {
	g.s.Touch()
	g.s.Out = codec.AppendError(g.s.Out, kind, reason)
}

// fromMaster handles a message of a master, which may submit jobs only. A job without a priority has priority 0. A
// death of its slave raises it (package sched, Rules.Deaths).
func (g *conversation) fromMaster(m *codec.Message) {
	switch codec.Action(m) {
	case codec.Submit:
	case codec.Join, codec.Respond:
		g.answerError(codec.InvalidAction, reasonNotSlave)
		return
	default:
		g.answerError(codec.UnknownAction, m.Action)
		return
	}
	priority, isInteger := int64(0), true
	if m.Priority != nil {
		priority, isInteger = jsontext.Integer(m.Priority)
	}
	switch {
	case m.ID == nil:
		g.answerError(codec.MissingField, reasonID)
	case m.Type == nil:
		g.answerError(codec.MissingField, reasonType)
	case !isInteger:
		g.answerError(codec.InvalidType, reasonPriority)
	case m.Body == nil:
		g.answerError(codec.MissingField, reasonBody)
	case len(m.ID) > MaxName:
		g.answerError(codec.InvalidType, reasonID)
	case len(m.Type) > MaxName:
		g.answerError(codec.InvalidType, reasonType)
	default:
		g.submit(m, priority)
	}
}

// submit acknowledges before it refuses a duplicate id, as the reference does.
func (g *conversation) submit(m *codec.Message, priority int64) {
	loop := g.s.Loop
	g.s.Touch()
	g.s.Out = codec.AppendSubmitted(g.s.Out, m.ID)
	loop.Scratch = appendWorkload(loop.Scratch[:0], m)
	name, isText := jsontext.Text(nil, m.ID)
	space := TextSpace
	if !isText {
		space, name = ValueSpace, m.ID
	}
	err := g.p.host.Refusing()
	if err != protocol.ErrMaxMemory { // a full disk does not concern Gloom: its jobs live in memory
		err = g.p.sched.Submit(loop.Now, &sched.Submission{
			Space: space, Queue: queueOf(m.Type), Name: name, Workload: loop.Scratch,
			Priority: priority, Await: g.s.Peer(),
		}, loop.Sink)
	}
	switch {
	case err == sched.ErrDuplicate:
		g.answerError(codec.IDExists, m.ID)
	case err != nil:
		g.p.host.Refused(g.p.Name(), protocol.ReasonOf(err))
		g.answerError(codec.JobFailed, m.ID)
	}
}

// queueOf returns the queue of a type. A string is a function; any other value has its own queue.
func queueOf(typ []byte) []byte {
	if text, ok := jsontext.Text(nil, typ); ok {
		return protocol.Queue(text)
	}
	return protocol.ValueQueue(typ)
}

// fromSlave handles a message of a slave, which may join types and respond to its job.
func (g *conversation) fromSlave(m *codec.Message) {
	switch codec.Action(m) {
	case codec.Join:
		if m.Type == nil {
			g.answerError(codec.MissingField, reasonJobType)
			return
		}
		if len(m.Type) > MaxName {
			g.answerError(codec.InvalidType, reasonJobType)
			return
		}
		if string(m.Type) == codec.Leaving {
			g.leave()
			return
		}
		g.join(queueOf(m.Type))
	case codec.Respond:
		switch {
		case !g.busy:
			g.answerError(codec.InvalidState, reasonNotProcessing)
		case m.Body == nil:
			g.answerError(codec.MissingField, reasonBody)
		default:
			g.respond(m.Body)
		}
	case codec.Submit:
		g.answerError(codec.InvalidAction, reasonNotMaster)
	default:
		g.answerError(codec.UnknownType, m.Action)
	}
}

func (g *conversation) sendOK() {
	g.s.Touch()
	g.s.Out = codec.AppendOK(g.s.Out)
}

// leave takes the slave's type. The slave keeps its job.
func (g *conversation) leave() {
	if g.joined != nil {
		g.p.sched.Unwatch(g.s.Peer(), g.joined)
		g.joined = nil
	}
	g.sendOK()
}

// join makes a queue the slave's only one, from its next job on.
func (g *conversation) join(queue []byte) {
	loop := g.s.Loop
	s, p := g.p.sched, g.s.Peer()
	if g.joined != nil && string(g.joined) != string(queue) {
		s.Unwatch(p, g.joined)
	}
	g.joined = append([]byte(nil), queue...)
	g.sendOK()
	if err := s.Watch(loop.Now, p, queue, false, loop.Sink); err != nil {
		g.s.End(err)
		return
	}
	g.reserve()
}

// reserve asks for a job, unless the slave has one or waits for one: it may be on its way from another loop.
func (g *conversation) reserve() {
	if !g.busy && !g.reserved {
		g.reserved = true
		loop := g.s.Loop
		_ = g.p.sched.Reserve(loop.Now, g.s.Peer(), 0, loop.Sink) // one slot is never too many
	}
}

// respond ends the slave's job. It acknowledges the response even when the slave no longer holds the job, because its
// time-out has passed or its function was dropped.
func (g *conversation) respond(body []byte) {
	loop := g.s.Loop
	g.sendOK()
	g.busy = false
	data := body
	if g.wrapped {
		if text, ok := jsontext.Text(nil, body); ok {
			data = text
		}
	}
	if fromResult := loop.Spaces[g.job.Space].FromResult; fromResult != nil && !isGloom(g.job.Space) {
		loop.Scratch = fromResult(loop.Scratch[:0], data)
		data = loop.Scratch
	}
	if err := g.p.sched.Finish(loop.Now, g.s.Peer(), g.job, data, loop.Sink); err != nil {
		g.s.LogLate("respond", func() (string, string) { return g.p.sched.NameOf(g.job) })
	}
	g.reserve()
}

// Deliver implements protocol.Conversation.
func (g *conversation) Deliver(d *sched.Delivery) {
	switch d.Effect {
	case sched.Assign, sched.Broadcast:
		g.push(&d.Job)
	case sched.Result:
		id, _, _ := splitWorkload(d.Job.Workload)
		g.s.Out = codec.AppendResponse(g.s.Out, id, d.Data)
	case sched.Failed, sched.Removed:
		id, _, _ := splitWorkload(d.Job.Workload)
		g.sendError(codec.JobFailed, id)
	}
}

// push hands a job to the slave. The id of another protocol's job is its name.
func (g *conversation) push(j *sched.Job) {
	g.s.Assigned = true
	g.busy, g.reserved, g.job, g.wrapped = true, false, j.Run(), false
	if isGloom(j.Space) {
		id, typ, body := splitWorkload(j.Workload)
		g.s.Out = codec.AppendJob(g.s.Out, id, typ, body)
		return
	}
	loop := g.s.Loop
	id := jsontext.AppendText(loop.Scratch[:0], j.Name)
	function, _ := protocol.Function(j.Queue)
	all := jsontext.AppendText(id, function)
	typ := all[len(id):]
	if asJSON := loop.Spaces[j.Space].AsJSON; asJSON != nil {
		all = asJSON(all, j)
	} else {
		all, g.wrapped = jsontext.AppendValue(all, j.Workload)
	}
	body := all[len(id)+len(typ):]
	loop.Scratch = all
	g.s.Out = codec.AppendJob(g.s.Out, all[:len(id)], all[len(id):len(id)+len(typ)], body)
}
