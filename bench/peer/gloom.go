package peer

import (
	"encoding/binary"
	"errors"
	"net"

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
	gloomHeaderLen  = 4
	gloomMaxMessage = 1 << 20 // far above any message of a run: a wrong size must not look like a wait

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
func NewGloom() load.Protocol { return newGloom() }

func newGloom() *gloom {
	payload := make([]byte, 0, 256)
	payload = append(payload, gloomSubmitHead...)
	payload = append(payload, make([]byte, load.JobDigits)...)
	payload = append(payload, gloomSubmitBody...)
	payload = append(payload, load.TextWorkload()...)
	return &gloom{submit: appendGloom(nil, string(append(payload, '}')))}
}

// appendGloom appends one frame.
func appendGloom(dst []byte, payload string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...)
}

func (g *gloom) Traits() load.Traits {
	return load.Traits{Confirms: true, Pushes: true, Answers: true, Parse: load.ParseText}
}

// greet does nothing: there is no greeting, and a slave's join is already its request for a job.
func (g *gloom) Greet(net.Conn, load.Role) error { return nil }

func (g *gloom) AppendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, g.submit...)
	payload := dst[start+gloomHeaderLen:]
	load.PutHex(payload[len(gloomSubmitHead):len(gloomSubmitHead)+load.JobDigits], id)
	load.PutText(payload[len(gloomSubmitHead)+load.JobDigits+len(gloomSubmitBody):], id, sent)
	return dst
}

// appendGrab is the join.
func (g *gloom) AppendGrab(dst []byte, _ uint32) []byte { return appendGloom(dst, gloomJoin) }

// appendDone is the respond; the handle is the digits of the job's id.
func (g *gloom) AppendDone(dst []byte, e *load.Event) []byte {
	size := len(gloomRespond) + len(e.Handle) + len(gloomEnd)
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	dst = append(dst, gloomRespond...)
	dst = append(dst, e.Handle...)
	return append(dst, gloomEnd...)
}

func (g *gloom) Next(in []byte, e *load.Event) (int, error) {
	if len(in) < gloomHeaderLen {
		return 0, nil
	}
	size := binary.BigEndian.Uint32(in)
	if size > gloomMaxMessage {
		return 0, load.Unexpected("gloom", in)
	}
	end := gloomHeaderLen + int(size)
	if len(in) < end {
		return 0, nil
	}
	payload, ok := in[gloomHeaderLen:end], false
	switch len(payload) {
	case len(gloomOK):
		e.Kind, ok = load.Finished, string(payload) == gloomOK
	case gloomAckLen:
		e.Kind = load.Submitted
		ok = parseGloomID(payload, gloomAckHead, gloomEnd, &e.ID)
	case gloomJobLen:
		e.Kind = load.Assigned
		ok = parseGloomJob(payload, e)
	case gloomAnswerLen:
		e.Kind = load.Answered
		ok = parseGloomAnswer(payload, e)
	}
	if !ok {
		return 0, load.Unexpected("gloom", payload)
	}
	return end, nil
}

// parseGloomID reads the digits of an id between head and tail.
func parseGloomID(text []byte, head, tail string, id *uint64) (ok bool) {
	at := len(head) + load.JobDigits
	if string(text[:len(head)]) != head || string(text[at:]) != tail {
		return false
	}
	*id, ok = load.ParseHex(text[len(head):at])
	return ok
}

// parseGloomJob reads a job. Its body must name the same job as its id.
func parseGloomJob(payload []byte, e *load.Event) bool {
	last := gloomJobLen - 1
	e.Workload = payload[gloomJobBodyAt:last]
	e.Handle = payload[len(gloomJobHead) : len(gloomJobHead)+load.JobDigits]
	return parseGloomID(payload[:gloomJobBodyAt], gloomJobHead, gloomSubmitBody, &e.ID) && payload[last] == '}' &&
		string(e.Handle) == string(e.Workload[load.TextIDAt:load.TextIDAt+load.JobDigits])
}

// parseGloomAnswer reads a response, which must be the one to this job.
func parseGloomAnswer(payload []byte, e *load.Event) bool {
	digits := payload[len(gloomAnswerHead) : len(gloomAnswerHead)+load.JobDigits]
	return parseGloomID(payload[:gloomBodyAt], gloomAnswerHead, gloomAnswerBody, &e.ID) &&
		string(payload[gloomBodyAt:gloomBodyAt+load.JobDigits]) == string(digits) &&
		string(payload[gloomBodyAt+load.JobDigits:]) == gloomEnd
}

// pending has no words in Gloom: a Periodic connection to the same server asks in its place.
func (g *gloom) Pending(net.Conn) (int, error) {
	return 0, errors.New("gloom has no way to ask for the jobs left")
}
