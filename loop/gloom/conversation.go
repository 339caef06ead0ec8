package gloom

import (
	codec "treadle/codec/gloom"
	"treadle/loop/protocol"
	"treadle/sched"
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
	queue    []byte    // its queue, nil before the first join
	busy     bool      // it has a job
	reserved bool      // it waits for a job
	job      sched.Run // its job
	wrapped  bool      // the job's workload is not JSON and was pushed as a string

	offloaded *offloadWork // a large frame that is parsed off the event loop, or nil
}

var _ interface {
	protocol.Conversation
	protocol.Sized
} = (*conversation)(nil)

// Consume implements protocol.Conversation: it handles all whole frames of in, and returns their bytes. A large frame
// is parsed off the event loop.
func (c *conversation) Consume(in []byte) (n int, err error) {
	c.s.HandshakeDone = true // Gloom has none: masters and slaves speak first
	for n < len(in) && !c.s.PauseIfCostly() {
		payload, k, err := codec.Next(in[n:], c.p.o.MaxFrame)
		if err != nil {
			c.s.OpenOut()
			c.s.Out = codec.AppendTooLarge(c.s.Out)
			return n, err
		}
		if k == 0 {
			return n, nil
		}
		var m codec.Message
		if len(payload) <= LargeFrame {
			err = c.p.parse(payload, &m)
		} else if p := c.parsed(in, n, payload); p != nil {
			m, err = p.message, p.err
		} else {
			return n, nil
		}
		n += k
		c.s.Loop.Frames[c.s.ProtocolID]++
		if err := c.handle(payload, &m, err); err != nil {
			return n, err
		}
		if c.s.FlushLarge() {
			break
		}
	}
	return n, nil
}

// Need implements protocol.Sized.
func (c *conversation) Need(in []byte) int { return max(codec.Need(in), len(in)+1) }

// IdleLimit implements protocol.Conversation. There is none: a master may wait for hours. TCP keep-alive finds dead
// hosts.
func (c *conversation) IdleLimit() int64 { return 0 }

// Closed implements protocol.Conversation.
func (c *conversation) Closed() {}

// handle handles one message, or answers the error of its parser.
func (c *conversation) handle(payload []byte, m *codec.Message, err error) error {
	switch {
	case err == codec.ErrNotObject:
		return errNotObject
	case err != nil:
		if len(payload) <= MaxEcho {
			c.s.OpenOut()
			c.s.Out = codec.AppendInvalid(c.s.Out, payload)
		}
		return errNotJSON
	case m.Action == nil:
		c.answerError(codec.MissingField, reasonType)
		return nil
	}
	switch action := codec.Action(m); {
	case c.master && action == codec.Submit:
		c.submit(m)
	case c.master && (action == codec.Join || action == codec.Respond):
		c.answerError(codec.InvalidAction, reasonNotSlave)
	case c.master:
		c.answerError(codec.UnknownAction, m.Action)
	case action == codec.Join:
		c.join(m)
	case action == codec.Respond:
		c.respond(m)
	case action == codec.Submit:
		c.answerError(codec.InvalidAction, reasonNotMaster)
	default:
		c.answerError(codec.UnknownType, m.Action)
	}
	return nil
}

func (c *conversation) replyOK() {
	c.s.OpenOut()
	c.s.Out = codec.AppendOK(c.s.Out)
}

func (c *conversation) replyError(kind string, reason []byte) {
	c.s.OpenOut()
	c.s.Out = codec.AppendError(c.s.Out, kind, reason)
}

// answerError answers a message that is wrong, counts it, and keeps the connection.
func (c *conversation) answerError(kind string, reason []byte) {
	c.p.errors.Add(1)
	c.replyError(kind, reason)
}

// refuse answers a submit that a limit or a policy forbids.
func (c *conversation) refuse(err error, id []byte) {
	c.p.host.CountRefusal(name, protocol.ReasonOf(err))
	c.replyError(codec.JobFailed, id)
}

// Deliver implements protocol.Conversation.
func (c *conversation) Deliver(d *sched.Delivery) {
	switch d.Effect {
	case sched.Assign, sched.Broadcast:
		c.s.Assigned = true
		c.assign(&d.Job)
	case sched.Result:
		id, _, _ := splitWorkload(d.Job.Workload)
		c.s.Out = codec.AppendResponse(c.s.Out, id, d.Data)
	case sched.Failed, sched.Removed:
		id, _, _ := splitWorkload(d.Job.Workload)
		c.replyError(codec.JobFailed, id)
	}
}
