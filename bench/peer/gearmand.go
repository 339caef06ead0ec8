package peer

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"strconv"
	"strings"

	"treadle/bench/load"
)

// gearman speaks the binary Gearman protocol: magic, type, size, arguments separated by zero bytes. Jobs are submitted
// in the background with a unique id. Workers take them with GRAB_JOB_UNIQ; its reply has that id, as a Periodic
// assignment has the name.
//
// An empty queue answers a grab with NO_JOB. A worker without an outstanding grab sends PRE_SLEEP and waits for NOOP.
// WORK_COMPLETE has no reply and goes with the next GRAB_JOB_UNIQ in one write.
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
	gearmanSubmitJobBg   = 18
	gearmanGrabJobUniq   = 30
	gearmanJobAssignUniq = 31
)

const (
	gearmanHeaderLen  = 12
	gearmanNameAt     = gearmanHeaderLen + len(load.QueueName) + 1
	gearmanWorkloadAt = gearmanNameAt + load.JobNameLen + 1
)

// gearmanEnd ends each argument but the last.
var gearmanEnd = []byte{0}

func newGearman() *gearman {
	args := slices.Concat([]byte(load.QueueName), gearmanEnd, make([]byte, load.JobNameLen), gearmanEnd, load.Workload(load.WorkloadLen))
	return &gearman{submit: appendGearman(nil, gearmanSubmitJobBg, args)}
}

func appendGearman(dst []byte, kind uint32, args []byte) []byte {
	dst = append(dst, "\x00REQ"...)
	dst = binary.BigEndian.AppendUint32(dst, kind)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(args)))
	return append(dst, args...)
}

func (g *gearman) Traits() load.Traits {
	return load.Traits{Sleep: appendGearman(nil, gearmanPreSleep, nil), Parse: load.Sized(load.WorkloadLen)}
}

// Greet ends with an echo: CAN_DO has no reply, and a connection that only idles must have been accepted.
func (g *gearman) Greet(conn net.Conn, as load.Role) error {
	var request []byte
	if as == load.Working {
		request = appendGearman(request, gearmanCanDo, []byte(load.QueueName))
	}
	request = appendGearman(request, gearmanEchoReq, []byte("hi"))
	return load.Ask(conn, "gearman", string(request), "\x00RES\x00\x00\x00\x11\x00\x00\x00\x02hi")
}

func (g *gearman) AppendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, g.submit...)
	load.PutJobName(dst[start+gearmanNameAt:], id)
	load.PutWorkload(dst[start+gearmanWorkloadAt:], id, sent)
	return dst
}

func (g *gearman) AppendGrab(dst []byte, _ uint32) []byte {
	return appendGearman(dst, gearmanGrabJobUniq, nil)
}

// AppendDone quotes the handle, whose closing zero byte is part of the view, and sends an empty result.
func (g *gearman) AppendDone(dst []byte, e *load.Event) []byte {
	return appendGearman(dst, gearmanWorkComplete, e.Handle)
}

// Next reads a packet: "\0RES", its type and its length in four bytes each, and its arguments, separated by zero bytes.
func (g *gearman) Next(in []byte, e *load.Event) (int, error) {
	end, err := frameLength("gearman", in, "\x00RES", gearmanHeaderLen, 8, maxMessage)
	if end == 0 {
		return 0, err
	}
	switch binary.BigEndian.Uint32(in[4:]) {
	case gearmanJobCreated:
		e.Kind = load.Submitted
	case gearmanJobAssignUniq:
		args := in[gearmanHeaderLen:end]
		handle, rest, _ := bytes.Cut(args, gearmanEnd)
		_, rest, _ = bytes.Cut(rest, gearmanEnd) // function
		_, workload, ok := bytes.Cut(rest, gearmanEnd)
		if !ok {
			return 0, load.Unexpected("gearman", in[:end])
		}
		e.Kind, e.Handle, e.Workload = load.Assigned, args[:len(handle)+1], workload
	case gearmanNoJob:
		e.Kind = load.Empty
	case gearmanNoop:
		e.Kind = load.Woken
	default:
		return 0, load.Unexpected("gearman", in[:end])
	}
	return end, nil
}

// Pending reads the total column of the text command `status`, which counts the running jobs too.
func (g *gearman) Pending(conn net.Conn) (jobs int, err error) {
	err = askLines(conn, "status\n", func(line string) (more bool, err error) {
		columns := strings.Split(line, "\t")
		if len(columns) == 4 && columns[0] == load.QueueName {
			jobs, err = strconv.Atoi(columns[1])
		}
		return line != ".", err
	})
	return jobs, err
}
