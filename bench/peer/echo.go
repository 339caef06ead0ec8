package peer

import (
	"net"
	"os"

	"treadle/bench/load"
)

// The names of the limits. They show the speed of the sockets, or of the disk, without a job server.
const (
	Frames  = "frames" // one event loop that sends back all bytes
	RawDisk = "disk"   // no server: the load generator itself appends to a file and syncs it
)

// limits are the echo, which is this program itself, and the disk.
func limits() []Contender {
	self, _ := os.Executable() // no path to this program is told at the start of its echo
	echo := Command{Path: self, Arguments: []string{"-echo-frames", "127.0.0.1:{port0}"}}
	return []Contender{{Name: Frames, Start: echo.Start}, {Name: RawDisk}}
}

// FramesAJob is the number of requests of a Periodic job: SUBMIT_JOB, GRAB_JOB and WORK_DONE.
const FramesAJob = 3

// echoed is spoken with the echo of frames: a submit is all requests of a Periodic job, and is acknowledged when as
// many bytes have come back.
type echoed struct {
	load.Protocol
	job []byte
}

// NewEchoed returns the protocol of the echo of frames.
func NewEchoed() load.Protocol {
	p := newPeriodic(PeriodicOptions{})
	done := &load.Event{Handle: append(shortString(load.QueueName), make([]byte, load.JobNameLen+1)...)}
	return &echoed{p, p.AppendDone(p.AppendGrab(p.AppendSubmit(nil, 1, 1, 1), 1), done)}
}

func (e *echoed) Traits() load.Traits             { return load.Traits{} }
func (e *echoed) Greet(net.Conn, load.Role) error { return nil }

func (e *echoed) AppendSubmit(dst []byte, _ uint32, _ uint64, _ int64) []byte {
	return append(dst, e.job...)
}

func (e *echoed) Next(in []byte, event *load.Event) (int, error) {
	if len(in) < len(e.job) {
		return 0, nil
	}
	event.Kind = load.Submitted
	return len(e.job), nil
}
