package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"treadle/bench/load"
)

// faktory speaks the Faktory protocol, to Faktory and to a Treadle.
//
// A worker sends ACK of its job and the next FETCH in one write. With many requests in flight a connection has that
// many FETCH outstanding, and the server reads a command after the reply to the last one: so the last ACKs of a run
// wait behind a FETCH, see Traits.Unfinished. A FETCH that finds no job for two seconds is repeated.
type faktory struct{ submit []byte }

const (
	faktoryHead  = `PUSH {"jid":"` + load.JobPrefix
	faktoryMid   = `","queue":"` + load.QueueName + `","jobtype":"` + load.QueueName + `","created_at":"2026-01-01T00:00:00Z","args":[`
	faktoryTail  = "],\"retry\":25}\r\n"
	faktoryFetch = "FETCH " + load.QueueName + "\r\n"
	faktoryOK    = "+OK\r\n"
	faktoryNone  = "$-1\r\n"

	faktoryTextAt = len(faktoryHead) + load.JobDigits + len(faktoryMid)
)

var (
	faktoryJID  = []byte(`"jid":"` + load.JobPrefix)
	faktoryArgs = []byte(`"args":[`)
)

func newFaktory() *faktory {
	return &faktory{submit: []byte(faktoryHead + strings.Repeat("0", load.JobDigits) + faktoryMid + string(load.TextWorkload()) + faktoryTail)}
}

func (f *faktory) Traits() load.Traits {
	return load.Traits{Unfinished: 1, AmbiguousAcks: true, Parse: load.ParseText}
}

func (f *faktory) Greet(conn net.Conn, _ load.Role) error {
	return load.Ask(conn, "faktory", "HELLO {\"v\":2}\r\n", "+HI {\"v\":2}\r\n"+faktoryOK)
}

func (f *faktory) AppendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, f.submit...)
	job := dst[start:]
	load.PutHex(job[len(faktoryHead):len(faktoryHead)+load.JobDigits], id)
	load.PutText(job[faktoryTextAt:faktoryTextAt+load.WorkloadLen], id, sent)
	return dst
}

func (f *faktory) AppendGrab(dst []byte, _ uint32) []byte { return append(dst, faktoryFetch...) }

// AppendDone appends the ACK; the handle is the digits of the job's id.
func (f *faktory) AppendDone(dst []byte, e *load.Event) []byte {
	dst = append(dst, `ACK {"jid":"`+load.JobPrefix...)
	return append(append(dst, e.Handle...), "\"}\r\n"...)
}

// Next reads a reply line, and the job that follows the line of a FETCH. An error of the server is none of the replies.
func (f *faktory) Next(in []byte, e *load.Event) (int, error) {
	end := bytes.IndexByte(in, '\n') + 1
	if end == 0 {
		return 0, nil
	}
	switch line := string(in[:end]); {
	case line == faktoryOK:
		e.Kind = load.Finished
		return end, nil
	case line == faktoryNone:
		e.Kind = load.Empty
		return end, nil
	case line[0] != '$':
		return 0, load.Unexpected("faktory", in)
	}
	size, err := strconv.ParseUint(string(bytes.TrimSpace(in[1:end])), 10, 20)
	if err != nil {
		return 0, load.Unexpected("faktory", in)
	}
	job := end
	if end += int(size) + 2; len(in) < end {
		return 0, nil
	}
	e.Kind = load.Assigned
	data := in[job : end-2]
	id, args := bytes.Index(data, faktoryJID), bytes.Index(data, faktoryArgs)
	if id += len(faktoryJID); id < len(faktoryJID) || args < 0 || len(data) < id+load.JobDigits || len(data) < args+len(faktoryArgs)+load.WorkloadLen {
		return 0, load.Unexpected("faktory", data)
	}
	args += len(faktoryArgs)
	e.Handle, e.Workload = data[id:id+load.JobDigits], data[args:args+load.WorkloadLen]
	return end, nil
}

// Pending adds the ready and the reserved jobs of INFO.
func (f *faktory) Pending(conn net.Conn) (jobs int, err error) {
	err = askLines(conn, "INFO\r\n", func(line string) (more bool, err error) {
		var info struct {
			Faktory struct {
				Enqueued int `json:"total_enqueued"`
				Sets     map[string]int
			}
		}
		if strings.HasPrefix(line, "$") {
			return true, nil
		}
		err = json.Unmarshal([]byte(line), &info)
		jobs = info.Faktory.Enqueued + info.Faktory.Sets["working"]
		return false, err
	})
	return jobs, err
}

// Faktory keeps its jobs in a Redis that it starts, with a configuration that has no choice of durability: a PUSH is
// answered before it is on disk, and Redis writes everything to a file after 30 seconds with five changes. Here that
// Redis is told to write nothing, beside a Treadle in memory, or to sync every change before it answers, beside a
// Treadle that syncs.
var (
	redisInMemory = []string{`CONFIG SET save ""`}
	redisSynced   = []string{`CONFIG SET save ""`, "CONFIG SET appendfsync always", "CONFIG SET appendonly yes"}
)

// faktoryProgram is Faktory, whose Redis gets the commands when it runs.
func faktoryProgram(commands []string) program {
	return program{
		name: "faktory", versionFlag: "-v", needs: "redis-server", protocol: newFaktory(),
		arguments: "-b 127.0.0.1:{port0} -w 127.0.0.1:{port1} -d {directory} -c {directory} -l error",
		prepare: func(ctx context.Context, s *Server) error {
			for _, command := range commands {
				if err := s.askRedis(func(conn net.Conn) error { return load.Ask(conn, "redis", command+"\r\n", "+OK\r\n") }); err != nil {
					return err
				}
			}
			return s.awaitRedis(ctx)
		},
	}
}

// awaitRedis returns when Faktory's Redis has begun its file of changes, if it has one.
func (s *Server) awaitRedis(ctx context.Context) error {
	for begun := false; ; {
		err := s.askRedis(func(conn net.Conn) error {
			return askLines(conn, "INFO persistence\r\n", func(line string) (more bool, err error) {
				state, found := strings.CutPrefix(line, "aof_rewrite_in_progress:")
				begun = state == "0"
				return !found, nil
			})
		})
		if begun || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// askRedis connects to Faktory's Redis for one question.
func (s *Server) askRedis(ask func(conn net.Conn) error) error {
	conn, err := net.Dial("unix", filepath.Join(s.directory, "redis.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	return errors.Join(conn.SetDeadline(time.Now().Add(load.DialLimit)), ask(conn))
}
