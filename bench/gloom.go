package main

import (
	"encoding/binary"
	"errors"
	"net"
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

	gloomSubmitHead = `{"action":"submit","id":"` + jobPrefix
	gloomSubmitBody = `","type":"` + queueName + `","body":`
	gloomJoin       = `{"action":"join","type":"` + queueName + `"}`
	gloomRespond    = `{"action":"respond","body":"` + jobPrefix

	gloomOK         = `{"ok":true}`
	gloomAckHead    = `{"ok":true,"id":"` + jobPrefix
	gloomJobHead    = `{"action":"job","id":"` + jobPrefix
	gloomAnswerHead = `{"id":"` + jobPrefix
	gloomAnswerBody = `","body":"` + jobPrefix
	gloomEnd        = `"}`
)

// Lengths of the payloads that a server sends, which tell them apart, and where their variable parts begin.
const (
	gloomAckLen    = len(gloomAckHead) + jobDigits + len(gloomEnd)
	gloomJobBodyAt = len(gloomJobHead) + jobDigits + len(gloomSubmitBody)
	gloomJobLen    = gloomJobBodyAt + workloadLen + 1
	gloomBodyAt    = len(gloomAnswerHead) + jobDigits + len(gloomAnswerBody)
	gloomAnswerLen = gloomBodyAt + jobDigits + len(gloomEnd)
)

func newGloom() *gloom {
	payload := make([]byte, 0, 256)
	payload = append(payload, gloomSubmitHead...)
	payload = append(payload, make([]byte, jobDigits)...)
	payload = append(payload, gloomSubmitBody...)
	payload = append(payload, textFiller[:]...)
	return &gloom{submit: appendGloom(nil, string(append(payload, '}')))}
}

// appendGloom appends one frame.
func appendGloom(dst []byte, payload string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...)
}

func (g *gloom) traits() traits {
	return traits{confirms: true, pushes: true, answers: true, text: true}
}

// greet does nothing: there is no greeting, and a slave's join is already its request for a job.
func (g *gloom) greet(net.Conn, role) error { return nil }

func (g *gloom) appendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, g.submit...)
	payload := dst[start+gloomHeaderLen:]
	putHex(payload[len(gloomSubmitHead):len(gloomSubmitHead)+jobDigits], id)
	putTextWorkload(payload[len(gloomSubmitHead)+jobDigits+len(gloomSubmitBody):], id, sent)
	return dst
}

// appendGrab is the join.
func (g *gloom) appendGrab(dst []byte, _ uint32) []byte { return appendGloom(dst, gloomJoin) }

func (g *gloom) appendSleep(dst []byte) []byte { return dst }

// appendDone is the respond; the handle is the digits of the job's id.
func (g *gloom) appendDone(dst []byte, e *event) []byte {
	size := len(gloomRespond) + len(e.handle) + len(gloomEnd)
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	dst = append(dst, gloomRespond...)
	dst = append(dst, e.handle...)
	return append(dst, gloomEnd...)
}

func (g *gloom) next(in []byte, e *event) (int, error) {
	if len(in) < gloomHeaderLen {
		return 0, nil
	}
	size := binary.BigEndian.Uint32(in)
	if size > gloomMaxMessage {
		return 0, unexpected("gloom", in)
	}
	end := gloomHeaderLen + int(size)
	if len(in) < end {
		return 0, nil
	}
	payload, ok := in[gloomHeaderLen:end], false
	switch len(payload) {
	case len(gloomOK):
		e.kind, ok = finished, string(payload) == gloomOK
	case gloomAckLen:
		e.kind = submitted
		ok = parseGloomID(payload, gloomAckHead, gloomEnd, &e.id)
	case gloomJobLen:
		e.kind = assigned
		ok = parseGloomJob(payload, e)
	case gloomAnswerLen:
		e.kind = answered
		ok = parseGloomAnswer(payload, e)
	}
	if !ok {
		return 0, unexpected("gloom", payload)
	}
	return end, nil
}

// parseGloomID reads the digits of an id between head and tail.
func parseGloomID(text []byte, head, tail string, id *uint64) (ok bool) {
	at := len(head) + jobDigits
	if string(text[:len(head)]) != head || string(text[at:]) != tail {
		return false
	}
	*id, ok = parseHex(text[len(head):at])
	return ok
}

// parseGloomJob reads a job. Its body must name the same job as its id.
func parseGloomJob(payload []byte, e *event) bool {
	last := gloomJobLen - 1
	e.workload = payload[gloomJobBodyAt:last]
	e.handle = payload[len(gloomJobHead) : len(gloomJobHead)+jobDigits]
	return parseGloomID(payload[:gloomJobBodyAt], gloomJobHead, gloomSubmitBody, &e.id) && payload[last] == '}' &&
		string(e.handle) == string(e.workload[textIDAt:textIDAt+jobDigits])
}

// parseGloomAnswer reads a response, which must be the one to this job.
func parseGloomAnswer(payload []byte, e *event) bool {
	digits := payload[len(gloomAnswerHead) : len(gloomAnswerHead)+jobDigits]
	return parseGloomID(payload[:gloomBodyAt], gloomAnswerHead, gloomAnswerBody, &e.id) &&
		string(payload[gloomBodyAt:gloomBodyAt+jobDigits]) == string(digits) &&
		string(payload[gloomBodyAt+jobDigits:]) == gloomEnd
}

// pending has no words in Gloom: a Periodic connection to the same server asks in its place.
func (g *gloom) pending(net.Conn) (int, error) {
	return 0, errors.New("gloom has no way to ask for the jobs left")
}
