package peer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"treadle/bench/load"
)

// PeriodicOptions choose a variant of the Periodic protocol.
type PeriodicOptions struct {
	CRC  bool // the CRC framing, with the replies of 2023
	Text bool // workloads are JSON, which a Gloom slave gets unchanged
	Size int  // bytes of a workload; 0: load.WorkloadLen

	// Functions is the number of functions, Run the number of neighbouring jobs of the same function; 0: one. With many
	// functions a worker serves FunctionsServed of them.
	Functions, Run int

	// Keys is the number of keys of the jobs, a key being the part of a name before a colon; 0: none.
	Keys int

	// Parse reads the id and the time of a workload that another program wrote; nil: those of AppendSubmit.
	Parse func(workload []byte) (id uint64, sent int64, ok bool)

	Untimed bool  // jobs carry no time of submission: nobody measures their wait
	DueFrom int64 // jobs are due after this Unix time, in no order; 0: at once
}

// periodic speaks the Periodic protocol, in the framing of 2018 (magic, size, msgid, command) or in the CRC framing.
// The CRC framing has a checksum of the payload behind the size, no handle apart from function and name, and a SUCCESS
// for CAN_DO and WORK_DONE. This is not codec/periodic, for two reasons: the measured server is not checked with its
// own code, and a submit is one copy of a template.
//
// A worker keeps one GRAB_JOB a slot outstanding, with the slot as its msgid. After each JOB_ASSIGN it sends WORK_DONE,
// and a new GRAB_JOB under the same msgid, in one write. In the CRC framing the msgid of a WORK_DONE is its slot with a
// mark, which tells its answer from the answer to a submit.
type periodic struct {
	options   PeriodicOptions
	name      string   // name in errors
	header    int      // bytes before the payload
	submit    []byte   // a whole SUBMIT_JOB
	workload  int      // offset of the workload in submit
	functions []string // names; nil: load.QueueName alone
	workers   atomic.Int64
}

// FunctionsServed is the number of functions that a worker serves when there are many.
const FunctionsServed = 10

const (
	// functionPrefix and four digits are a function's name, as long as load.QueueName: a frame is as long as with one
	// function.
	functionPrefix = "b"
	functionDigits = len(load.QueueName) - len(functionPrefix)
	// functionStride is a prime: neighbouring jobs go to functions of different workers, and all come in turn.
	functionStride = 617
	// delaySpread is the period in seconds in which the jobs of PeriodicOptions.DueFrom are due.
	delaySpread = 30 * 24 * 3600
)

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
	periodicData      = 30
)

// Lengths of the framings, and offsets behind the header.
const (
	plainHeaderLen = 8
	crcAt          = 8
	crcHeaderLen   = 12
	msgIDLen       = 4
	argsAt         = msgIDLen + 1
	nameAt         = argsAt + 1 + len(load.QueueName) + 1
	workloadAt     = nameAt + load.JobNameLen + 4

	doneMark = 1 << 31
)

// NewPeriodic returns the protocol with these options.
func NewPeriodic(options PeriodicOptions) load.Protocol { return newPeriodic(options) }

// newPeriodic returns the protocol with the requests of its workloads encoded in advance.
func newPeriodic(options PeriodicOptions) *periodic {
	p := &periodic{options: options, name: "periodic", header: plainHeaderLen}
	if options.CRC {
		p.name, p.header = "periodic crc", crcHeaderLen
	}
	if p.options.Size == 0 {
		p.options.Size = load.WorkloadLen
	}
	workload := load.Workload(p.options.Size)
	if options.Text {
		workload = load.TextWorkload()
	}
	for i := range options.Functions {
		p.functions = append(p.functions, fmt.Sprintf("%s%0*d", functionPrefix, functionDigits, i))
	}
	record := append(shortString(load.QueueName), shortString(strings.Repeat(" ", load.JobNameLen))...)
	record = binary.BigEndian.AppendUint32(record, uint32(len(workload)))
	record = append(record, workload...)
	record = append(record, make([]byte, 8+1)...) // sched_at: at once; version 0: neither count nor timeout
	p.submit = p.append(nil, 0, periodicSubmitJob, record)
	p.workload = p.header + workloadAt
	return p
}

// shortString returns a string behind its length in one byte.
func shortString(s string) []byte { return append([]byte{byte(len(s))}, s...) }

func (p *periodic) append(dst []byte, msgID uint32, command byte, args []byte) []byte {
	start := len(dst)
	dst = p.appendHeader(dst, argsAt+len(args))
	dst = binary.BigEndian.AppendUint32(dst, msgID)
	dst = append(append(dst, command), args...)
	p.seal(dst[start:])
	return dst
}

// appendHeader appends the header of a request. In the CRC framing seal completes it.
func (p *periodic) appendHeader(dst []byte, size int) []byte {
	dst = append(dst, "\x00REQ"...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	if p.options.CRC {
		dst = append(dst, 0, 0, 0, 0)
	}
	return dst
}

// seal writes the checksum of a whole request, in the CRC framing.
func (p *periodic) seal(request []byte) {
	if p.options.CRC {
		binary.BigEndian.PutUint32(request[crcAt:], crc32.ChecksumIEEE(request[crcHeaderLen:]))
	}
}

func (p *periodic) Traits() load.Traits {
	t := load.Traits{Tagged: true, AcksDone: p.options.CRC, Parse: load.Sized(p.options.Size)}
	switch {
	case p.options.Parse != nil:
		t.Parse = p.options.Parse
	case p.options.Text:
		t.Parse = load.ParseText
	}
	return t
}

func (p *periodic) Greet(conn net.Conn, as load.Role) error {
	if err := p.hello(conn, as); err != nil || as != load.Working {
		return err
	}
	return p.canDo(conn, p.servedBy(int(p.workers.Add(1)-1))...)
}

// hello tells the server the role of the connection. The reply is the connection's id.
func (p *periodic) hello(conn net.Conn, as load.Role) error {
	role, reply := byte(1), msgIDLen
	if as == load.Working {
		role = 2
	}
	if p.options.CRC {
		reply++ // DATA
	}
	hello := append(p.appendHeader(nil, 1), role)
	p.seal(hello)
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	id, err := p.read(conn)
	if err == nil && (len(id) != reply || p.options.CRC && id[0] != periodicData) {
		err = load.Unexpected(p.name, id)
	}
	return err
}

// canDo makes a worker serve the functions. In the framing of 2018 CAN_DO has no reply: the answer to the PING behind
// it shows that the server has read it.
func (p *periodic) canDo(conn net.Conn, functions ...string) error {
	var requests []byte
	for _, function := range functions {
		requests = p.append(requests, 0, periodicCanDo, shortString(function))
	}
	answers, want := len(functions), "\x00\x00\x00\x00\x10" // SUCCESS
	if !p.options.CRC {
		requests, answers, want = p.append(requests, 0, periodicPing, nil), 1, "\x00\x00\x00\x00\x0a" // PONG
	}
	if _, err := conn.Write(requests); err != nil {
		return err
	}
	for range answers {
		answer, err := p.read(conn)
		if err == nil && string(answer) != want {
			err = load.Unexpected(p.name, answer)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// frame returns the payload and the length of the first message of in. A length of 0 without an error: more bytes are
// needed.
func (p *periodic) frame(in []byte) (payload []byte, end int, err error) {
	if end, err = frameLength(p.name, in, "\x00RES", p.header, 4, maxMessage); end == 0 {
		return nil, 0, err
	}
	payload = in[p.header:end]
	if len(payload) < msgIDLen || p.options.CRC && binary.BigEndian.Uint32(in[crcAt:]) != crc32.ChecksumIEEE(payload) {
		return nil, 0, load.Unexpected(p.name, in[:end])
	}
	return payload, end, nil
}

// read reads one frame from a connection during the handshake.
func (p *periodic) read(conn net.Conn) ([]byte, error) {
	var in []byte
	for more := p.header; ; more = int(binary.BigEndian.Uint32(in[4:])) {
		in = append(in, make([]byte, more)...)
		if _, err := io.ReadFull(conn, in[len(in)-more:]); err != nil {
			return nil, fmt.Errorf("%s: cannot read a reply: %w", p.name, err)
		}
		if payload, end, err := p.frame(in); end > 0 || err != nil {
			return payload, err
		}
	}
}

// servedBy returns the functions of a worker. Workers are numbered from 0 in the order of their greetings, and share
// the functions out among themselves. A single function is served by all of them.
func (p *periodic) servedBy(worker int) (names []string) {
	if p.functions == nil {
		return []string{load.QueueName}
	}
	served := min(len(p.functions), FunctionsServed)
	for i := range served {
		names = append(names, p.functions[(worker*served+i)%len(p.functions)])
	}
	return names
}

// AppendSubmit appends a SUBMIT_JOB: the encoded request with the slot as its message id, and the job's name and time
// of sending filled in.
func (p *periodic) AppendSubmit(dst []byte, slot uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, p.submit...)
	request := dst[start:]
	binary.BigEndian.PutUint32(request[p.header:], slot)
	if p.options.Keys > 0 {
		load.PutKeyedName(request[p.header+nameAt:], id, uint64(p.options.Keys))
	} else {
		load.PutJobName(request[p.header+nameAt:], id)
	}
	if p.options.Untimed {
		sent = 0
	}
	if p.options.Text {
		load.PutText(request[p.workload:], id, sent)
	} else {
		load.PutWorkload(request[p.workload:p.workload+p.options.Size], id, sent)
	}
	if total := uint64(len(p.functions)); total > 0 {
		copy(request[p.header+argsAt+1:], p.functions[id/uint64(max(1, p.options.Run))*functionStride%total])
	}
	if p.options.DueFrom > 0 {
		due := p.options.DueFrom + int64(id*2654435761%delaySpread)
		binary.BigEndian.PutUint64(request[len(request)-9:], uint64(due)) // before the version byte
	}
	p.seal(request)
	return dst
}

func (p *periodic) AppendGrab(dst []byte, slot uint32) []byte {
	return p.append(dst, slot, periodicGrabJob, nil)
}

// AppendDone quotes the handle and sends an empty result. In the framing of 2018 it has no reply.
func (p *periodic) AppendDone(dst []byte, e *load.Event) []byte {
	msgID := uint32(0)
	if p.options.CRC {
		msgID = e.Slot | doneMark
	}
	return p.append(dst, msgID, periodicWorkDone, e.Handle)
}

// Next reads a frame: a reply to the request of a slot, or an assigned job.
func (p *periodic) Next(in []byte, e *load.Event) (int, error) {
	payload, end, err := p.frame(in)
	if end == 0 {
		return 0, err
	}
	if len(payload) < argsAt {
		return 0, load.Unexpected(p.name, in[:end])
	}
	ok := true
	e.Slot = binary.BigEndian.Uint32(payload)
	switch payload[msgIDLen] {
	case periodicSuccess:
		e.Kind = load.Submitted
		if p.options.CRC && e.Slot >= doneMark {
			e.Kind, e.Slot = load.Finished, e.Slot&^doneMark
		}
	case periodicJobAssign:
		e.Kind, ok = load.Assigned, p.parseAssign(payload[argsAt:], e)
	case periodicPong:
		e.Kind, ok = load.Ignored, !p.options.CRC
	default:
		ok = false
	}
	if !ok {
		return 0, load.Unexpected(p.name, in[:end])
	}
	return end, nil
}

// parseAssign reads a handle and a Job record. In the CRC framing the handle is the function and the name of the
// record.
func (p *periodic) parseAssign(body []byte, e *load.Event) bool {
	fields, quoted := 3, 1 // handle, function and name; the handle alone is quoted
	if p.options.CRC {
		fields, quoted = 2, 2
	}
	at := 0
	for i := range fields {
		if at >= len(body) || at+1+int(body[at]) > len(body) {
			return false
		}
		if at += 1 + int(body[at]); i+1 == quoted {
			e.Handle = body[:at]
		}
	}
	if at += 4; at > len(body) || uint64(binary.BigEndian.Uint32(body[at-4:])) > uint64(len(body)-at) {
		return false
	}
	e.Workload = body[at : at+int(binary.BigEndian.Uint32(body[at-4:]))]
	return true
}

// Pending reads the jobs column of STATUS, which counts the running jobs too. In the CRC framing the text is DATA and
// has a column for locked jobs.
func (p *periodic) Pending(conn net.Conn) (int, error) {
	if _, err := conn.Write(p.append(nil, 0, periodicStatus, nil)); err != nil {
		return 0, err
	}
	payload, err := p.read(conn)
	if err != nil {
		return 0, err
	}
	text, columns, prefix := msgIDLen, 5, load.QueueName
	if p.options.CRC {
		text, columns = argsAt, 6
	}
	if p.functions != nil {
		prefix = functionPrefix
	}
	return statusJobs(payload[min(text, len(payload)):], columns, prefix)
}

// statusJobs adds up the jobs of the functions whose names have a prefix. The columns of a STATUS text are func,
// workers, jobs, processing and others.
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
