// Package lines is the protocol of the page "Adding a protocol": a line of text for each
// request and each answer.
//
//	put QUEUE NAME TEXT   submits a job: "ok", and when it is done "result NAME TEXT"
//	work QUEUE            serves a queue: "ok"
//	next                  asks for a job: "job QUEUE NAME TEXT", when there is one
//	done TEXT             finishes it: "ok"
//
// Anything else is answered "error REASON".
package lines

import (
	"bytes"
	"errors"

	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// space is the name space of jobs that were put.
const space sched.Space = 15

// maxLine bounds a line in bytes.
const maxLine = 64 << 10

var (
	errTooLong = errors.New("a line is too long")
	errRequest = errors.New("no such request")
	errNoJob   = errors.New("no job to finish")
)

// Protocol is the protocol in one server.
type Protocol struct {
	host      protocol.Host
	addresses []string
}

// New makes the protocol without opening its addresses.
func New(host protocol.Host, addresses []string) *Protocol {
	return &Protocol{host, addresses}
}

// Spaces returns the name space of the protocol's jobs. A job is removed when its client leaves.
func Spaces() []protocol.Space {
	return []protocol.Space{{ID: space, Rules: sched.Rules{Owned: true, Untimed: true}}}
}

// Name implements protocol.Protocol.
func (p *Protocol) Name() string { return "lines" }

// Ports implements protocol.LoopServed.
func (p *Protocol) Ports() []protocol.Port {
	return []protocol.Port{{Setting: "lines", Addresses: p.addresses, Start: func(s *protocol.Session) protocol.Conversation {
		s.Label = "lines"
		return &conversation{host: p.host, s: s}
	}}}
}

// CloseReasons implements protocol.LoopServed.
func (p *Protocol) CloseReasons() []protocol.CloseReason {
	return []protocol.CloseReason{{Err: errTooLong, Label: "too_large"}}
}

// Samples implements protocol.Protocol.
func (p *Protocol) Samples() []web.Sample { return nil }

// conversation is the protocol spoken with one client.
type conversation struct {
	host protocol.Host
	s    *protocol.Session
	job  *sched.Run // the client's job, or nil
}

// Consume implements protocol.Conversation.
func (c *conversation) Consume(in []byte) (n int, err error) {
	for !c.s.FlushLarge() {
		line, _, ok := bytes.Cut(in[n:], []byte("\n"))
		if len(line) > maxLine {
			return n, errTooLong
		}
		if !ok {
			break
		}
		n += len(line) + 1
		c.s.HandshakeDone = true
		c.s.Loop.Frames[c.s.ProtocolID]++
		c.request(line)
	}
	return n, nil
}

// request handles and answers one line.
func (c *conversation) request(line []byte) {
	word, rest, _ := bytes.Cut(line, []byte(" "))
	var err error
	loop, s := c.s.Loop, c.host.Sched()
	switch string(word) {
	case "put":
		queue, rest, _ := bytes.Cut(rest, []byte(" "))
		name, text, _ := bytes.Cut(rest, []byte(" "))
		err = s.Submit(loop.Now, &sched.Submission{
			Space: space, Queue: protocol.Queue(queue), Name: name, Workload: text, Await: c.s.Peer(),
		}, loop.Sink)
	case "work":
		err = s.Watch(loop.Now, c.s.Peer(), protocol.Queue(rest), false, loop.Sink)
	case "next":
		if err = s.Reserve(loop.Now, c.s.Peer(), 0, loop.Sink); err == nil {
			return // Deliver answers
		}
	case "done":
		err = c.finish(rest)
	default:
		err = errRequest
	}
	c.s.OpenOut()
	if err != nil {
		c.tell("error", []byte(err.Error()))
		return
	}
	c.tell("ok")
}

func (c *conversation) finish(result []byte) error {
	if c.job == nil {
		return errNoJob
	}
	run := *c.job
	c.job = nil
	return c.host.Sched().Finish(c.s.Loop.Now, c.s.Peer(), run, c.s.Loop.Result(run.Space, result), c.s.Loop.Sink)
}

// Deliver implements protocol.Conversation. It may run during another session's request.
func (c *conversation) Deliver(d *sched.Delivery) {
	switch d.Effect {
	case sched.Assign, sched.Broadcast:
		run := d.Job.Run()
		c.job, c.s.Assigned = &run, true
		text := d.Job.Workload
		if asText := c.s.Loop.Spaces[d.Job.Space].AsText; asText != nil {
			text = asText(nil, &d.Job)
		}
		c.tell("job", []byte(d.Job.Queue), d.Job.Name, text)
	case sched.Result:
		c.tell("result", d.Job.Name, d.Data)
	case sched.Failed, sched.Removed:
		c.tell("failed", d.Job.Name)
	}
}

func (c *conversation) tell(word string, parts ...[]byte) {
	c.s.Out = append(c.s.Out, word...)
	for _, p := range parts {
		c.s.Out = append(append(c.s.Out, ' '), p...)
	}
	c.s.Out = append(c.s.Out, '\n')
}

// Need implements protocol.Sized.
func (c *conversation) Need(in []byte) int { return len(in) + 1 }

// IdleLimit implements protocol.Conversation. Clients may be silent for ever.
func (c *conversation) IdleLimit() int64 { return 0 }

// Closed implements protocol.Conversation.
func (c *conversation) Closed() {}
