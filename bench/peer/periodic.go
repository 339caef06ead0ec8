package peer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"sync/atomic"

	"treadle/bench/load"
)

// PeriodicOptions are the ways in which the Periodic protocol is spoken.
type PeriodicOptions struct {
	CRC  bool // the CRC framing, with the replies of 2023
	Text bool // workloads are JSON, which a Gloom slave gets as they are
	Size int  // bytes of a workload; 0: load.WorkloadLen

	// Functions is how many functions there are, Run how many neighbouring jobs are of the same one; 0: one. With many
	// functions a worker serves FunctionsServed of them.
	Functions, Run int

	Untimed bool  // jobs carry no time of submission: how long they wait is not of interest
	DueFrom int64 // jobs are due after this Unix time, in no order; 0: at once
}

// periodic speaks the Periodic protocol, in the framing of 2018 (magic, size, msgid, command) or in the CRC framing, which
// has a checksum of the payload behind the size, no handle apart from function and name, and a SUCCESS for CAN_DO and
// WORK_DONE. It is written out here, apart from codec/periodic, so that the measured server is not checked with its own
// code, and so that one submit is one copy of a template.
//
// A worker keeps one GRAB_JOB a slot outstanding, with the slot as its msgid. After each JOB_ASSIGN it sends WORK_DONE,
// and a new GRAB_JOB under the same msgid, in one write. In the CRC framing the msgid of a WORK_DONE is its slot with a
// mark, so that the answer is not taken for that to a submit.
type periodic struct {
	options  PeriodicOptions
	name     string     // in errors
	header   int        // bytes before the payload
	submit   []byte     // a whole SUBMIT_JOB
	grab     []byte     // a whole GRAB_JOB
	workload int        // where the workload begins in submit
	sums     *checksums // nil: the framing of 2018
	workers  atomic.Int64
}

// FunctionsServed is how many functions a worker serves where there are many.
const FunctionsServed = 10

const (
	// functionPrefix and four digits are a function's name: as long as load.QueueName, so that a frame is as long as with
	// one function, and with its first letter, which stays in the template.
	functionPrefix = "b"
	functionDigits = len(load.QueueName) - len(functionPrefix)
	// functionStride is a prime: neighbouring jobs go to functions of different workers, and all come in turn.
	functionStride = 617
	// delaySpread is how many seconds there are for the jobs of PeriodicOptions.DueFrom to be due in.
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

	periodicMaxMessage = 4 << 20 // far above any message of a run: a wrong size must not look like a wait
	doneMark           = 1 << 31
)

// NewPeriodic returns the protocol with these options.
func NewPeriodic(options PeriodicOptions) load.Protocol { return newPeriodic(options) }

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
	record := append([]byte{byte(len(load.QueueName))}, load.QueueName...)
	record = append(record, byte(load.JobNameLen))
	record = append(record, make([]byte, load.JobNameLen)...)
	record = binary.BigEndian.AppendUint32(record, uint32(len(workload)))
	record = append(record, workload...)
	record = append(record, make([]byte, 8+1)...) // sched_at: at once; version 0: neither count nor timeout
	p.submit, p.grab = p.append(nil, 0, periodicSubmitJob, record), p.append(nil, 0, periodicGrabJob, nil)
	p.workload = p.header + workloadAt
	if options.CRC {
		p.sums = newChecksums(p)
	}
	return p
}

// append appends one request.
func (p *periodic) append(dst []byte, msgID uint32, command byte, args []byte) []byte {
	start := len(dst)
	dst = append(dst, "\x00REQ"...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(argsAt+len(args)))
	if p.options.CRC {
		dst = append(dst, 0, 0, 0, 0)
	}
	dst = binary.BigEndian.AppendUint32(dst, msgID)
	dst = append(append(dst, command), args...)
	if p.options.CRC {
		binary.BigEndian.PutUint32(dst[start+crcAt:], crc32.ChecksumIEEE(dst[start+crcHeaderLen:]))
	}
	return dst
}

func (p *periodic) Traits() load.Traits {
	t := load.Traits{Tagged: true, Confirms: p.options.CRC, AcksGrabs: p.options.CRC}
	switch size := p.options.Size; {
	case p.options.Text:
		t.Parse = load.ParseText
	case size != load.WorkloadLen:
		t.Parse = func(workload []byte) (uint64, int64, bool) { return load.ParseSized(workload, size) }
	}
	return t
}

func (p *periodic) Greet(conn net.Conn, as load.Role) error {
	if err := p.hello(conn, as); err != nil || as != load.Working {
		return err
	}
	return p.canDo(conn, p.servedBy(int(p.workers.Add(1)-1))...)
}

// hello says what the connection is. The reply is the connection's id.
func (p *periodic) hello(conn net.Conn, as load.Role) error {
	payload := []byte{1}
	if as == load.Working {
		payload[0] = 2
	}
	hello, reply := []byte("\x00REQ\x00\x00\x00\x01"), 4
	if p.options.CRC {
		hello, reply = binary.BigEndian.AppendUint32(hello, crc32.ChecksumIEEE(payload)), 5
	}
	if _, err := conn.Write(append(hello, payload...)); err != nil {
		return err
	}
	id, err := p.read(conn)
	if err == nil && (len(id) != reply || p.options.CRC && id[0] != periodicData) {
		err = load.Unexpected(p.name, id)
	}
	return err
}

// canDo makes a worker serve the functions. CAN_DO has no reply in the framing of 2018: there the answer to a PING behind
// it says that it was taken.
func (p *periodic) canDo(conn net.Conn, functions ...string) error {
	var requests []byte
	for _, function := range functions {
		requests = p.append(requests, 0, periodicCanDo, append([]byte{byte(len(function))}, function...))
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

// read reads one message and returns its payload.
func (p *periodic) read(conn net.Conn) ([]byte, error) {
	header := make([]byte, p.header)
	if _, err := io.ReadFull(conn, header); err != nil {
		return nil, fmt.Errorf("%s: cannot read a reply: %w", p.name, err)
	}
	size := binary.BigEndian.Uint32(header[4:])
	if string(header[:4]) != "\x00RES" || size > periodicMaxMessage {
		return nil, load.Unexpected(p.name, header)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(conn, payload); err != nil {
		return nil, fmt.Errorf("%s: cannot read a reply: %w", p.name, err)
	}
	if p.options.CRC && binary.BigEndian.Uint32(header[crcAt:]) != crc32.ChecksumIEEE(payload) {
		return nil, load.Unexpected(p.name, payload)
	}
	return payload, nil
}

// servedBy names the functions of a worker; the workers are numbered from 0, in the order in which they are greeted, and
// share the functions out among themselves. With one function all of them serve that.
func (p *periodic) servedBy(worker int) []string {
	if p.options.Functions == 0 {
		return []string{load.QueueName}
	}
	served := min(p.options.Functions, FunctionsServed)
	var names []string
	for i := range served {
		names = append(names, fmt.Sprintf("%s%0*d", functionPrefix, functionDigits, (worker*served+i)%p.options.Functions))
	}
	return names
}

func (p *periodic) AppendSubmit(dst []byte, slot uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, p.submit...)
	request := dst[start:]
	p.fill(request, slot, id, sent)
	if s := p.sums; s != nil {
		binary.BigEndian.PutUint32(request[crcAt:], s.submit^s.slots.of(uint64(slot))^s.ids.of(id)^s.times.of(uint64(sent)))
	}
	return dst
}

// fill writes what differs from submit to submit, except the checksum.
func (p *periodic) fill(request []byte, slot uint32, id uint64, sent int64) {
	binary.BigEndian.PutUint32(request[p.header:], slot)
	load.PutJobName(request[p.header+nameAt:], id)
	if p.options.Untimed {
		sent = 0
	}
	if p.options.Text {
		load.PutText(request[p.workload:], id, sent)
	} else {
		load.PutWorkload(request[p.workload:p.workload+p.options.Size], id, sent)
	}
	if p.options.Functions > 0 {
		number := id / uint64(max(1, p.options.Run)) * functionStride % uint64(p.options.Functions)
		name := request[p.header+argsAt+1+len(functionPrefix):]
		for i := functionDigits - 1; i >= 0; i-- {
			name[i] = byte('0' + number%10)
			number /= 10
		}
	}
	if p.options.DueFrom > 0 {
		due := p.options.DueFrom + int64(id*2654435761%delaySpread)
		binary.BigEndian.PutUint64(request[len(request)-9:], uint64(due)) // before the version byte
	}
}

func (p *periodic) AppendGrab(dst []byte, slot uint32) []byte {
	start := len(dst)
	dst = append(dst, p.grab...)
	binary.BigEndian.PutUint32(dst[start+p.header:], slot)
	if s := p.sums; s != nil {
		binary.BigEndian.PutUint32(dst[start+crcAt:], s.grab^s.msgIDs.of(uint64(slot)))
	}
	return dst
}

// AppendDone quotes the handle and sends an empty result.
func (p *periodic) AppendDone(dst []byte, e *load.Event) []byte {
	if p.options.CRC {
		return p.append(dst, e.Slot|doneMark, periodicWorkDone, e.Handle)
	}
	return p.append(dst, 0, periodicWorkDone, e.Handle) // which has no reply
}

func (p *periodic) Next(in []byte, e *load.Event) (int, error) {
	if len(in) < p.header {
		return 0, nil
	}
	size := int(binary.BigEndian.Uint32(in[4:]))
	if string(in[:4]) != "\x00RES" || size < argsAt || size > periodicMaxMessage {
		return 0, load.Unexpected(p.name, in)
	}
	end := p.header + size
	if len(in) < end {
		return 0, nil
	}
	payload, ok := in[p.header:end], true
	e.Slot = binary.BigEndian.Uint32(payload)
	switch payload[msgIDLen] {
	case periodicSuccess:
		e.Kind = load.Submitted
		if p.sums == nil {
			break
		}
		ok = size == argsAt && binary.BigEndian.Uint32(in[crcAt:]) == p.sums.success^p.sums.msgIDs.of(uint64(e.Slot))
		if e.Slot >= doneMark {
			e.Kind, e.Slot = load.Finished, e.Slot&^doneMark
		}
	case periodicJobAssign:
		e.Kind = load.Assigned
		ok = (p.sums == nil || binary.BigEndian.Uint32(in[crcAt:]) == crc32.ChecksumIEEE(payload)) && p.parseAssign(payload[argsAt:], e)
	case periodicPong:
		e.Kind, ok = load.Ignored, p.sums == nil
	default:
		ok = false
	}
	if !ok {
		return 0, load.Unexpected(p.name, in[:end])
	}
	return end, nil
}

// parseAssign reads a Job record, and the handle: that of 2018 stands before it, with its length byte; in the CRC framing
// it is function and name.
func (p *periodic) parseAssign(body []byte, e *load.Event) bool {
	var ends [3]int // of handle, function and name
	at := 0
	for i := range ends {
		if i > 0 || !p.options.CRC {
			if at >= len(body) || at+1+int(body[at]) > len(body) {
				return false
			}
			at += 1 + int(body[at])
		}
		ends[i] = at
	}
	if e.Handle = body[:ends[0]]; p.options.CRC {
		e.Handle = body[:ends[2]]
	}
	if at += 4; at > len(body) || uint64(binary.BigEndian.Uint32(body[at-4:])) > uint64(len(body)-at) {
		return false
	}
	e.Workload = body[at : at+int(binary.BigEndian.Uint32(body[at-4:]))]
	return true
}

// Pending reads the jobs column of STATUS, which counts the running ones too. In the CRC
// framing the text is DATA and has a column for locked jobs.
func (p *periodic) Pending(conn net.Conn) (int, error) {
	if err := p.hello(conn, load.Producing); err != nil {
		return 0, err
	}
	if _, err := conn.Write(p.append(nil, 0, periodicStatus, nil)); err != nil {
		return 0, err
	}
	payload, err := p.read(conn)
	text, columns, prefix := msgIDLen, 5, load.QueueName
	if p.options.CRC {
		text, columns = argsAt, 6
	}
	if p.options.Functions > 0 {
		prefix = functionPrefix
	}
	if err == nil && len(payload) < text {
		err = load.Unexpected(p.name, payload)
	}
	if err != nil {
		return 0, err
	}
	return statusJobs(payload[text:], columns, prefix)
}

// statusJobs adds up the jobs of the functions whose names begin so, in a STATUS text with so many columns: func, workers,
// jobs, processing and others.
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

// checksums are those of requests and replies that follow a template. A checksum costs a client as much as it costs the
// server, and both share the cores; assignments are checked in full, as every client does.
type checksums struct {
	submit            uint32 // of slot 0, job 0, time 0
	slots, ids, times *crcTable

	grab, success uint32    // of msgid 0
	msgIDs        *crcTable // of payloads that are a msgid and a command
}

// crcTable holds by how much each byte of a number, last byte first, changes the checksum of the message in which it
// stands. Checksums are linear: the changes add up, with exclusive or.
type crcTable [8][256]uint32

// newCRCTable tries out every value of the given number of bytes.
func newCRCTable(bytes int, sum func(number uint64) uint32) *crcTable {
	var t crcTable
	for at := range bytes {
		for value := range t[at] {
			t[at][value] = sum(uint64(value)<<(8*at)) ^ sum(0)
		}
	}
	return &t
}

// of is the change that a number makes.
func (t *crcTable) of(number uint64) (sum uint32) {
	for at := 0; number != 0; at++ {
		sum ^= t[at][byte(number)]
		number >>= 8
	}
	return sum
}

func newChecksums(p *periodic) *checksums {
	request := bytes.Clone(p.submit)
	submit := func(slot uint32, id uint64, sent int64) uint32 {
		p.fill(request, slot, id, sent)
		return crc32.ChecksumIEEE(request[crcHeaderLen:])
	}
	short := func(command byte, msgID uint64) uint32 {
		return crc32.ChecksumIEEE(append(binary.BigEndian.AppendUint32(nil, uint32(msgID)), command))
	}
	return &checksums{
		submit: submit(0, 0, 0),
		slots:  newCRCTable(4, func(n uint64) uint32 { return submit(uint32(n), 0, 0) }),
		ids:    newCRCTable(8, func(n uint64) uint32 { return submit(0, n, 0) }),
		times:  newCRCTable(8, func(n uint64) uint32 { return submit(0, 0, int64(n)) }),
		grab:   short(periodicGrabJob, 0), success: short(periodicSuccess, 0),
		msgIDs: newCRCTable(4, func(n uint64) uint32 { return short(0, n) }),
	}
}
