package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"strings"
)

// gearman speaks the binary Gearman protocol: magic, type, size, arguments separated by zero bytes. Jobs are
// submitted in the background with a unique id, and workers take them with GRAB_JOB_UNIQ, which hands over that id
// as a Periodic assignment hands over the name.
//
// An empty queue answers a grab with NO_JOB. A worker that has no grab outstanding any more says PRE_SLEEP and waits
// for NOOP. WORK_COMPLETE has no reply and goes with the next GRAB_JOB_UNIQ in one write.
type gearman struct {
	submit []byte
}

// The packet types of the Gearman protocol that occur here.
const (
	gearmanCanDo         = 1
	gearmanPreSleep      = 4
	gearmanNoop          = 6
	gearmanJobCreated    = 8
	gearmanNoJob         = 10
	gearmanWorkComplete  = 13
	gearmanEchoReq       = 16
	gearmanEchoRes       = 17
	gearmanSubmitJobBg   = 18
	gearmanGrabJobUniq   = 30
	gearmanJobAssignUniq = 31
)

const (
	gearmanHeaderLen  = 12
	gearmanNameAt     = gearmanHeaderLen + len(queueName) + 1
	gearmanWorkloadAt = gearmanNameAt + jobNameLen + 1
	gearmanMaxMessage = 1 << 20
)

func newGearman() *gearman {
	args := append([]byte(queueName), 0)
	args = append(args, make([]byte, jobNameLen+1)...)
	args = appendWorkload(args, 0, 0)
	return &gearman{submit: appendGearman(nil, gearmanSubmitJobBg, args)}
}

func appendGearman(dst []byte, kind uint32, args []byte) []byte {
	dst = append(dst, "\x00REQ"...)
	dst = binary.BigEndian.AppendUint32(dst, kind)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(args)))
	return append(dst, args...)
}

func (g *gearman) traits() traits { return traits{polls: true} }

// greet ends with an echo: CAN_DO has no reply, and a connection that only idles must have been accepted.
func (g *gearman) greet(conn net.Conn, as role) error {
	var request []byte
	if as == working {
		request = appendGearman(request, gearmanCanDo, []byte(queueName))
	}
	if _, err := conn.Write(appendGearman(request, gearmanEchoReq, []byte("hi"))); err != nil {
		return err
	}
	want := append([]byte("\x00RES\x00\x00\x00"), gearmanEchoRes, 0, 0, 0, 2, 'h', 'i')
	return readReply(conn, make([]byte, len(want)), want, "gearman")
}

func (g *gearman) appendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, g.submit...)
	putJobName(dst[start+gearmanNameAt:], id)
	putWorkload(dst[start+gearmanWorkloadAt:], id, sent)
	return dst
}

func (g *gearman) appendGrab(dst []byte, _ uint32) []byte {
	return appendGearman(dst, gearmanGrabJobUniq, nil)
}

func (g *gearman) appendSleep(dst []byte) []byte { return appendGearman(dst, gearmanPreSleep, nil) }

// appendDone quotes the handle, whose closing zero byte is part of the view, and sends an empty result.
func (g *gearman) appendDone(dst []byte, e *event) []byte {
	return appendGearman(dst, gearmanWorkComplete, e.handle)
}

func (g *gearman) next(in []byte, e *event) (int, error) {
	if len(in) < gearmanHeaderLen {
		return 0, nil
	}
	size := int(binary.BigEndian.Uint32(in[8:]))
	if string(in[:4]) != "\x00RES" || size > gearmanMaxMessage {
		return 0, unexpected("gearman", in)
	}
	end := gearmanHeaderLen + size
	if len(in) < end {
		return 0, nil
	}
	switch binary.BigEndian.Uint32(in[4:]) {
	case gearmanJobCreated:
		e.kind = submitted
	case gearmanJobAssignUniq:
		args := in[gearmanHeaderLen:end]
		at := 0
		for field := range 3 { // handle, function, unique id
			length := bytes.IndexByte(args[at:], 0)
			if length < 0 {
				return 0, unexpected("gearman", in[:end])
			}
			at += length + 1
			if field == 0 {
				e.handle = args[:at]
			}
		}
		e.kind, e.workload = assigned, args[at:]
	case gearmanNoJob:
		e.kind = empty
	case gearmanNoop:
		e.kind = woken
	default:
		return 0, unexpected("gearman", in[:end])
	}
	return end, nil
}

// pending reads the total column of the text command `status`, which counts the running jobs too.
func (g *gearman) pending(conn net.Conn) (int, error) {
	if _, err := io.WriteString(conn, "status\n"); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(conn)
	jobs := 0
	for lines.Scan() {
		if lines.Text() == "." {
			return jobs, nil
		}
		columns := strings.Split(lines.Text(), "\t")
		if len(columns) == 4 && columns[0] == queueName {
			n, err := strconv.Atoi(columns[1])
			if err != nil {
				return 0, unexpected("gearman", lines.Bytes())
			}
			jobs = n
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, io.ErrUnexpectedEOF
}
