package main

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
)

// periodicCRC speaks the Periodic protocol in its CRC framing, with the replies of 2023: a checksum of the payload in
// the header, no handle apart from function and name, and a SUCCESS for CAN_DO and WORK_DONE. What it says and when is
// otherwise as in periodic. The msgid of a WORK_DONE is its slot with a mark, so that the answer is not taken for that
// to a submit.
//
// A checksum costs a client as much as it costs the server, and both share the cores: those of the requests that
// follow a template come out of tables. Assignments are checked in full, as every client does.
type periodicCRC struct {
	submit []byte // a whole SUBMIT_JOB but for its checksum

	submitSum uint32 // of slot 0, job 0, time 0
	slotSums  *crcTable
	idSums    *crcTable
	timeSums  *crcTable

	grabSum    uint32 // of msgid 0
	successSum uint32
	msgIDSums  *crcTable // of payloads that are a msgid and a command
}

const (
	periodicData = 30

	periodicCRCAt        = 8
	periodicCRCHeaderLen = 12
	// periodicCRCShift is how far the header is longer than that of 2018.
	periodicCRCShift = periodicCRCHeaderLen - periodicHeaderLen
	periodicDoneMark = 1 << 31
)

// crcTable holds by how much each byte of a number, last byte first, changes the checksum of the message in which it
// stands. Checksums are linear: the changes add up, with exclusive or.
type crcTable [8][256]uint32

// newCRCTable tries out every value of the given number of bytes.
func newCRCTable(bytes int, message func(number uint64) []byte) *crcTable {
	var t crcTable
	base := crc32.ChecksumIEEE(message(0))
	for at := range bytes {
		for value := range t[at] {
			t[at][value] = crc32.ChecksumIEEE(message(uint64(value)<<(8*at))) ^ base
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

func newPeriodicCRC() *periodicCRC {
	p := &periodicCRC{submit: appendPeriodicCRC(nil, 0, periodicSubmitJob, appendRecord(nil, workloadFiller[:]))}
	request := make([]byte, 0, 256)
	submit := func(slot uint32, id uint64, sent int64) []byte {
		request = append(request[:0], p.submit...)
		p.fill(request, slot, id, sent)
		return request[periodicCRCHeaderLen:]
	}
	p.submitSum = crc32.ChecksumIEEE(submit(0, 0, 0))
	p.slotSums = newCRCTable(4, func(n uint64) []byte { return submit(uint32(n), 0, 0) })
	p.idSums = newCRCTable(8, func(n uint64) []byte { return submit(0, n, 0) })
	p.timeSums = newCRCTable(8, func(n uint64) []byte { return submit(0, 0, int64(n)) })
	short := func(command byte, msgID uint64) []byte {
		return append(binary.BigEndian.AppendUint32(request[:0], uint32(msgID)), command)
	}
	p.grabSum = crc32.ChecksumIEEE(short(periodicGrabJob, 0))
	p.successSum = crc32.ChecksumIEEE(short(periodicSuccess, 0))
	p.msgIDSums = newCRCTable(4, func(n uint64) []byte { return short(0, n) })
	return p
}

// fill writes what differs from submit to submit, except the checksum.
func (p *periodicCRC) fill(request []byte, slot uint32, id uint64, sent int64) {
	binary.BigEndian.PutUint32(request[periodicMsgIDAt+periodicCRCShift:], slot)
	putJobName(request[periodicNameAt+periodicCRCShift:], id)
	putWorkload(request[periodicWorkloadAt+periodicCRCShift:], id, sent)
}

// appendPeriodicCRC appends one request.
func appendPeriodicCRC(dst []byte, msgID uint32, command byte, args []byte) []byte {
	start := len(dst)
	dst = append(dst, "\x00REQ"...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(periodicMinimalPayload+len(args)))
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, msgID)
	dst = append(append(dst, command), args...)
	sum := crc32.ChecksumIEEE(dst[start+periodicCRCHeaderLen:])
	binary.BigEndian.PutUint32(dst[start+periodicCRCAt:], sum)
	return dst
}

func (p *periodicCRC) traits() traits { return traits{tagged: true, confirms: true, acksGrabs: true} }

func (p *periodicCRC) greet(conn net.Conn, as role) error {
	hello := "\x00REQ\x00\x00\x00\x01\xa5\x05\xdf\x1b\x01"
	if as == working {
		hello = "\x00REQ\x00\x00\x00\x01\x3c\x0c\x8e\xa1\x02"
	}
	if _, err := io.WriteString(conn, hello); err != nil {
		return err
	}
	reply := make([]byte, periodicCRCHeaderLen+5) // DATA and the connection id
	if err := readReply(conn, reply, []byte("\x00RES\x00\x00\x00\x05"), "periodic crc"); err != nil {
		return err
	}
	payload := reply[periodicCRCHeaderLen:]
	if binary.BigEndian.Uint32(reply[periodicCRCAt:]) != crc32.ChecksumIEEE(payload) || payload[0] != periodicData {
		return unexpected("periodic crc", reply)
	}
	if as != working {
		return nil
	}
	function := append([]byte{byte(len(queueName))}, queueName...)
	if _, err := conn.Write(appendPeriodicCRC(nil, 0, periodicCanDo, function)); err != nil {
		return err
	}
	success := appendPeriodicCRC(nil, 0, periodicSuccess, nil)
	copy(success, "\x00RES")
	return readReply(conn, make([]byte, len(success)), success, "periodic crc")
}

func (p *periodicCRC) appendSubmit(dst []byte, slot uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, p.submit...)
	p.fill(dst[start:], slot, id, sent)
	sum := p.submitSum ^ p.slotSums.of(uint64(slot)) ^ p.idSums.of(id) ^ p.timeSums.of(uint64(sent))
	binary.BigEndian.PutUint32(dst[start+periodicCRCAt:], sum)
	return dst
}

func (p *periodicCRC) appendGrab(dst []byte, slot uint32) []byte {
	dst = append(dst, "\x00REQ\x00\x00\x00\x05"...)
	dst = binary.BigEndian.AppendUint32(dst, p.grabSum^p.msgIDSums.of(uint64(slot)))
	dst = binary.BigEndian.AppendUint32(dst, slot)
	return append(dst, periodicGrabJob)
}

func (p *periodicCRC) appendSleep(dst []byte) []byte { return dst }

func (p *periodicCRC) appendDone(dst []byte, e *event) []byte {
	return appendPeriodicCRC(dst, e.slot|periodicDoneMark, periodicWorkDone, e.handle)
}

func (p *periodicCRC) next(in []byte, e *event) (int, error) {
	if len(in) < periodicCRCHeaderLen {
		return 0, nil
	}
	size := int(binary.BigEndian.Uint32(in[4:]))
	if string(in[:4]) != "\x00RES" || size < periodicMinimalPayload || size > periodicMaxMessage {
		return 0, unexpected("periodic crc", in)
	}
	end := periodicCRCHeaderLen + size
	if len(in) < end {
		return 0, nil
	}
	sum, payload := binary.BigEndian.Uint32(in[periodicCRCAt:]), in[periodicCRCHeaderLen:end]
	msgID, ok := binary.BigEndian.Uint32(payload), false
	switch payload[4] {
	case periodicSuccess:
		e.kind = submitted
		if msgID >= periodicDoneMark {
			e.kind = finished
		}
		ok = size == periodicMinimalPayload && sum == p.successSum^p.msgIDSums.of(uint64(msgID))
	case periodicJobAssign:
		e.kind = assigned
		ok = sum == crc32.ChecksumIEEE(payload) && parseRecord(payload[periodicMinimalPayload:], 0, e)
	}
	if !ok {
		return 0, unexpected("periodic crc", in[:end])
	}
	e.slot = msgID &^ periodicDoneMark
	return end, nil
}

// pending reads the jobs column of STATUS, which is answered as DATA and has a column for locked jobs here.
func (p *periodicCRC) pending(conn net.Conn) (int, error) {
	if err := p.greet(conn, producing); err != nil {
		return 0, err
	}
	if _, err := conn.Write(appendPeriodicCRC(nil, 0, periodicStatus, nil)); err != nil {
		return 0, err
	}
	header := make([]byte, periodicCRCHeaderLen)
	if _, err := io.ReadFull(conn, header); err != nil {
		return 0, err
	}
	size := binary.BigEndian.Uint32(header[4:])
	if size < periodicMinimalPayload || size > periodicMaxMessage {
		return 0, unexpected("periodic crc", header)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(conn, payload); err != nil {
		return 0, err
	}
	if binary.BigEndian.Uint32(header[periodicCRCAt:]) != crc32.ChecksumIEEE(payload) {
		return 0, unexpected("periodic crc", payload)
	}
	return statusJobs(payload[periodicMinimalPayload:], 6, queueName)
}
