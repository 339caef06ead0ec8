// Package wire encodes what the peers of the simulation send, and decodes the assignments that they read.
package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"treadle/codec/periodic"
)

// PeriodicFrame encodes a request of the Periodic protocol.
func PeriodicFrame(fr periodic.Framing, id uint32, cmd periodic.Command, args []byte) []byte {
	out := append(periodic.AppendMessage(periodic.BeginRequest(nil, fr), id, cmd), args...)
	periodic.End(out, 0, fr)
	return out
}

// GloomFrame encodes a message of the Gloom protocol, which may make no sense.
func GloomFrame(message string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// ParseAssign decodes a JOB_ASSIGN: the handle by which a worker reports the job, and the job, a view of body.
func ParseAssign(fr periodic.Framing, body []byte) (handle []byte, j periodic.Job, err error) {
	record := body[1:]
	if fr == periodic.Plain {
		h, rest, _ := periodic.Str8(record)
		handle, record = periodic.AppendStr8(nil, h), rest
	}
	if _, err := periodic.ParseJob(record, &j); err != nil {
		return nil, j, fmt.Errorf("an assignment of %x: %w", body, err)
	}
	if fr == periodic.CRC {
		handle = periodic.AppendStr8(periodic.AppendStr8(nil, j.Func), j.Name)
	}
	return handle, j, nil
}

// NextBeanstalkReply splits the first answer of beanstalkd's protocol into its words and the bytes behind their line,
// which a job and a list have. n is its size; 0: it is not complete.
func NextBeanstalkReply(in []byte) (words []string, data []byte, n int, err error) {
	line, _, ok := bytes.Cut(in, crlf)
	if !ok {
		return nil, nil, 0, nil
	}
	words, n = strings.Split(string(line), " "), len(line)+len(crlf)
	switch words[0] {
	case "RESERVED", "FOUND", "OK":
	default:
		return words, nil, n, nil
	}
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil || size < 0 {
		return nil, nil, 0, fmt.Errorf("an answer of %q", line)
	}
	if len(in) < n+size+len(crlf) {
		return nil, nil, 0, nil
	}
	data, in = in[n:n+size], in[n+size:]
	if !bytes.HasPrefix(in, crlf) {
		return nil, nil, 0, fmt.Errorf("%q is behind the data of %q", in[:len(crlf)], line)
	}
	return words, data, n + size + len(crlf), nil
}

var crlf = []byte("\r\n")

// Workload is the part of a job's workload that is its submitter's. A job that is Faktory's, or at a worker of its
// protocol, has it as the only argument. The end of the workload may be missing.
func Workload(seen []byte) []byte {
	_, args, ok := bytes.Cut(seen, []byte(`"args":[`))
	if !ok || !bytes.HasPrefix(seen, []byte(`{"retry":`)) {
		return seen
	}
	var arg json.RawMessage
	if json.NewDecoder(bytes.NewReader(args)).Decode(&arg) != nil {
		return args
	}
	return arg
}
