package peer

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"

	"treadle/bench/load"
)

// gloom speaks the Gloom protocol: a length, then JSON. It is written out here, apart from codec/gloom, so that the
// measured server is not checked with its own code. Frames are copies of templates, and the parser takes exactly the
// forms that the document gives, in the order of keys that it gives: anything else is malformed.
//
// A slave joins once and has one job at a time. It answers each with the job's id, so that the master sees an answer
// that belongs to another job.
type gloom struct {
	submit []byte // a whole submit
}

const (
	gloomHeaderLen = 4

	gloomSubmitHead = `{"action":"submit","id":"` + load.JobPrefix
	gloomSubmitBody = `","type":"` + load.QueueName + `","body":`
	gloomJoin       = `{"action":"join","type":"` + load.QueueName + `"}`
	gloomRespond    = `{"action":"respond","body":"` + load.JobPrefix

	gloomOK         = `{"ok":true}`
	gloomAckHead    = `{"ok":true,"id":"` + load.JobPrefix
	gloomJobHead    = `{"action":"job","id":"` + load.JobPrefix
	gloomAnswerHead = `{"id":"` + load.JobPrefix
	gloomAnswerBody = `","body":"` + load.JobPrefix
	gloomEnd        = `"}`
)

// Lengths of the payloads that a server sends, which tell them apart, and where their variable parts begin.
const (
	gloomAckLen    = len(gloomAckHead) + load.JobDigits + len(gloomEnd)
	gloomJobBodyAt = len(gloomJobHead) + load.JobDigits + len(gloomSubmitBody)
	gloomJobLen    = gloomJobBodyAt + load.WorkloadLen + 1
	gloomBodyAt    = len(gloomAnswerHead) + load.JobDigits + len(gloomAnswerBody)
	gloomAnswerLen = gloomBodyAt + load.JobDigits + len(gloomEnd)
)

// NewGloom returns the protocol of masters and slaves.
func NewGloom() load.Protocol {
	digits := strings.Repeat("0", load.JobDigits)
	return &gloom{submit: appendGloom(nil, gloomSubmitHead+digits+gloomSubmitBody+string(load.TextWorkload())+"}")}
}

// appendGloom appends one frame, whose payload consists of the parts.
func appendGloom(dst []byte, parts ...string) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, gloomHeaderLen)...)
	for _, part := range parts {
		dst = append(dst, part...)
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-gloomHeaderLen))
	return dst
}

func (g *gloom) Traits() load.Traits {
	return load.Traits{AcksDone: true, PushesJobs: true, Answers: true, Parse: load.ParseText}
}

// Greet does nothing: there is no greeting, and a slave's join is already its request for a job.
func (g *gloom) Greet(net.Conn, load.Role) error { return nil }

func (g *gloom) AppendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, g.submit...)
	payload := dst[start+gloomHeaderLen:]
	load.PutHex(payload[len(gloomSubmitHead):len(gloomSubmitHead)+load.JobDigits], id)
	load.PutText(payload[len(gloomSubmitHead)+load.JobDigits+len(gloomSubmitBody):], id, sent)
	return dst
}

// AppendGrab appends the join.
func (g *gloom) AppendGrab(dst []byte, _ uint32) []byte { return appendGloom(dst, gloomJoin) }

// AppendDone appends the respond; the handle is the digits of the job's id.
func (g *gloom) AppendDone(dst []byte, e *load.Event) []byte {
	return appendGloom(dst, gloomRespond, string(e.Handle), gloomEnd)
}

func (g *gloom) Next(in []byte, e *load.Event) (int, error) {
	end, err := frameLength("gloom", in, "", gloomHeaderLen, 0, maxMessage)
	if end == 0 {
		return 0, err
	}
	if !parseGloom(in[gloomHeaderLen:end], e) {
		return 0, load.Unexpected("gloom", in[gloomHeaderLen:end])
	}
	return end, nil
}

// parseGloom reads one message. The id in an answer's body, or in a job's, must be the id of the message.
func parseGloom(payload []byte, e *load.Event) (ok bool) {
	var head string
	switch len(payload) {
	case len(gloomOK):
		e.Kind = load.Finished
		return string(payload) == gloomOK
	case gloomAckLen:
		e.Kind, head = load.Submitted, gloomAckHead
	case gloomJobLen:
		e.Kind, head = load.Assigned, gloomJobHead
	case gloomAnswerLen:
		e.Kind, head = load.Answered, gloomAnswerHead
	default:
		return false
	}
	digits := payload[len(head) : len(head)+load.JobDigits]
	if e.ID, ok = load.ParseHex(digits); !ok {
		return false
	}
	id := string(digits)
	switch e.Kind {
	case load.Submitted:
		return matches(payload, head, id, gloomEnd)
	case load.Answered:
		return matches(payload, head, id, gloomAnswerBody, id, gloomEnd)
	}
	last := gloomJobLen - 1
	e.Handle, e.Workload = digits, payload[gloomJobBodyAt:last]
	return matches(payload[:gloomJobBodyAt], head, id, gloomSubmitBody) && payload[last] == '}' &&
		string(e.Workload[load.TextIDAt:load.TextIDAt+load.JobDigits]) == id
}

// matches reports whether a text consists of the parts.
func matches(text []byte, parts ...string) bool {
	for _, part := range parts {
		if len(text) < len(part) || string(text[:len(part)]) != part {
			return false
		}
		text = text[len(part):]
	}
	return len(text) == 0
}

// Pending has no words in Gloom: a Periodic connection to the same server asks in its place.
func (g *gloom) Pending(net.Conn) (int, error) {
	return 0, errors.New("gloom has no way to ask for the jobs left")
}
