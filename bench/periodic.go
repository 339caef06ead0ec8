package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
)

// periodic speaks the Periodic protocol in its 2018 framing: magic, size, msgid, command. It is written out here,
// apart from codec/periodic, so that the measured server is not checked with its own code, and so that one submit is
// one copy of a template.
//
// A worker keeps one GRAB_JOB a slot outstanding, with the slot as its msgid. After each JOB_ASSIGN it sends WORK_DONE,
// which has no reply, and a new GRAB_JOB under the same msgid, in one write.
type periodic struct {
	submit []byte // a whole SUBMIT_JOB
	grab   []byte // a whole GRAB_JOB
	text   bool   // workloads are JSON
	size   int    // bytes of a workload
}

// The commands of the Periodic protocol that occur here.
const (
	periodicGrabJob   = 1
	periodicWorkDone  = 3
	periodicJobAssign = 5
	periodicCanDo     = 7
	periodicPing      = 9
	periodicPong      = 10
	periodicSubmitJob = 13
	periodicStatus    = 14
	periodicSuccess   = 16
)

// Offsets into the SUBMIT_JOB template; the msgid has the same place in every request.
const (
	periodicHeaderLen      = 8
	periodicMsgIDAt        = periodicHeaderLen
	periodicArgsAt         = periodicMsgIDAt + 5
	periodicNameAt         = periodicArgsAt + 1 + len(queueName) + 1
	periodicWorkloadAt     = periodicNameAt + jobNameLen + 4
	periodicMaxMessage     = 4 << 20 // far above any message of a run: a wrong size must not look like a wait
	periodicMinimalPayload = 5
)

func newPeriodic() *periodic { return newPeriodicOf(workloadLen) }

// newPeriodicOf submits workloads of the given size.
func newPeriodicOf(size int) *periodic {
	return &periodic{
		submit: appendPeriodic(nil, periodicSubmitJob, appendRecord(nil, workloadOf(size))),
		grab:   appendPeriodic(nil, periodicGrabJob, nil),
		size:   size,
	}
}

// newPeriodicText submits workloads that a Gloom slave gets as they are.
func newPeriodicText() *periodic {
	p := newPeriodic()
	p.submit, p.text = appendPeriodic(nil, periodicSubmitJob, appendRecord(nil, textFiller[:])), true
	return p
}

// appendRecord appends a Job record with a name of zero bytes.
func appendRecord(dst, workload []byte) []byte {
	dst = append(dst, byte(len(queueName)))
	dst = append(dst, queueName...)
	dst = append(dst, byte(jobNameLen))
	dst = append(dst, make([]byte, jobNameLen)...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(workload)))
	dst = append(dst, workload...)
	dst = append(dst, make([]byte, 8)...) // sched_at: at once
	return append(dst, 0)                 // version 0: neither count nor timeout
}

// appendPeriodic appends one request with msgid 0.
func appendPeriodic(dst []byte, command byte, args []byte) []byte {
	dst = append(dst, "\x00REQ"...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(periodicMinimalPayload+len(args)))
	dst = append(dst, 0, 0, 0, 0, command)
	return append(dst, args...)
}

func (p *periodic) traits() traits { return traits{tagged: true, text: p.text, size: p.size} }

func (p *periodic) greet(conn net.Conn, as role) error {
	if err := periodicHello(conn, as); err != nil || as != working {
		return err
	}
	return canDo(conn, queueName)
}

// periodicHello says what the connection is.
func periodicHello(conn net.Conn, as role) error {
	hello := []byte("\x00REQ\x00\x00\x00\x01\x01")
	if as == working {
		hello[len(hello)-1] = 2
	}
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	reply := make([]byte, periodicHeaderLen+4) // the connection id, raw
	return readReply(conn, reply, []byte("\x00RES\x00\x00\x00\x04"), "periodic")
}

// canDo makes a worker serve the functions. CAN_DO has no reply; the answer to a PING behind it says that it was taken.
func canDo(conn net.Conn, functions ...string) error {
	var request []byte
	for _, function := range functions {
		request = appendPeriodic(request, periodicCanDo, append([]byte{byte(len(function))}, function...))
	}
	if _, err := conn.Write(appendPeriodic(request, periodicPing, nil)); err != nil {
		return err
	}
	pong := []byte("\x00RES\x00\x00\x00\x05\x00\x00\x00\x00\x0a")
	return readReply(conn, make([]byte, len(pong)), pong, "periodic")
}

func (p *periodic) appendSubmit(dst []byte, slot uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, p.submit...)
	request := dst[start:]
	binary.BigEndian.PutUint32(request[periodicMsgIDAt:], slot)
	putJobName(request[periodicNameAt:], id)
	if p.text {
		putTextWorkload(request[periodicWorkloadAt:], id, sent)
	} else {
		putSizedWorkload(request[periodicWorkloadAt:periodicWorkloadAt+p.size], id, sent)
	}
	return dst
}

func (p *periodic) appendGrab(dst []byte, slot uint32) []byte {
	start := len(dst)
	dst = append(dst, p.grab...)
	binary.BigEndian.PutUint32(dst[start+periodicMsgIDAt:], slot)
	return dst
}

func (p *periodic) appendSleep(dst []byte) []byte { return dst }

// appendDone quotes the handle, whose length byte is part of the view, and sends an empty result. The msgid is not
// used by anyone, as there is no reply.
func (p *periodic) appendDone(dst []byte, e *event) []byte {
	return appendPeriodic(dst, periodicWorkDone, e.handle)
}

func (p *periodic) next(in []byte, e *event) (int, error) {
	if len(in) < periodicHeaderLen {
		return 0, nil
	}
	size := int(binary.BigEndian.Uint32(in[4:]))
	if string(in[:4]) != "\x00RES" || size < periodicMinimalPayload || size > periodicMaxMessage {
		return 0, unexpected("periodic", in)
	}
	end := periodicHeaderLen + size
	if len(in) < end {
		return 0, nil
	}
	e.slot = binary.BigEndian.Uint32(in[periodicMsgIDAt:])
	switch in[periodicMsgIDAt+4] {
	case periodicSuccess:
		e.kind = submitted
	case periodicJobAssign:
		e.kind = assigned
		body := in[periodicArgsAt:end]
		handle, ok := skipShort(body, 0)
		if !ok || !parseRecord(body, handle, e) {
			return 0, unexpected("periodic", in[:end])
		}
		e.handle = body[:handle]
	case periodicPong:
		e.kind = ignored
	default:
		return 0, unexpected("periodic", in[:end])
	}
	return end, nil
}

// skipShort returns where a string with one length byte ends that begins at the given place.
func skipShort(in []byte, at int) (end int, ok bool) {
	if at >= len(in) || at+1+int(in[at]) > len(in) {
		return 0, false
	}
	return at + 1 + int(in[at]), true
}

// parseRecord reads the Job record of an assignment. The handle is function and name, as in the CRC framing.
func parseRecord(body []byte, at int, e *event) bool {
	start := at
	for range 2 {
		var ok bool
		if at, ok = skipShort(body, at); !ok {
			return false
		}
	}
	e.handle = body[start:at]
	if at+4 > len(body) {
		return false
	}
	size := int(binary.BigEndian.Uint32(body[at:]))
	at += 4
	if size > len(body)-at {
		return false
	}
	e.workload = body[at : at+size]
	return true
}

// pending reads the jobs column of STATUS, which counts the running ones too.
func (p *periodic) pending(conn net.Conn) (int, error) { return periodicPending(conn, queueName) }

// periodicPending asks for the jobs of all functions whose names begin so.
func periodicPending(conn net.Conn, prefix string) (int, error) {
	if err := periodicHello(conn, producing); err != nil {
		return 0, err
	}
	if _, err := conn.Write(appendPeriodic(nil, periodicStatus, nil)); err != nil {
		return 0, err
	}
	header := make([]byte, periodicHeaderLen)
	if _, err := io.ReadFull(conn, header); err != nil {
		return 0, err
	}
	size := binary.BigEndian.Uint32(header[4:])
	if size < 4 || size > periodicMaxMessage {
		return 0, unexpected("periodic", header)
	}
	text := make([]byte, size) // msgid, then lines of func,workers,jobs,processing,schedat
	if _, err := io.ReadFull(conn, text); err != nil {
		return 0, err
	}
	return statusJobs(text[4:], 5, prefix)
}

// statusJobs adds up the jobs of the functions whose names begin so, in a STATUS text with so many columns.
func statusJobs(text []byte, columns int, prefix string) (jobs int, err error) {
	for line := range bytes.Lines(text) {
		column := bytes.Split(bytes.TrimSpace(line), []byte(","))
		if len(column) != columns || !bytes.HasPrefix(column[0], []byte(prefix)) {
			continue
		}
		n, err := strconv.Atoi(string(column[2]))
		if err != nil {
			return 0, err
		}
		jobs += n
	}
	return jobs, nil
}

// readReply fills reply from conn and compares its beginning with want.
func readReply(conn net.Conn, reply, want []byte, protocol string) error {
	if _, err := io.ReadFull(conn, reply); err != nil {
		return fmt.Errorf("%s: cannot read the answer to the greeting: %w", protocol, err)
	}
	if !bytes.HasPrefix(reply, want) {
		return unexpected(protocol, reply)
	}
	return nil
}
