// Package wire encodes what the peers of the simulation send, and decodes the assignments that they read.
package wire

import (
	"encoding/binary"
	"fmt"

	"treadle/codec/periodic"
)

// Frame encodes a request of the Periodic protocol.
func Frame(fr periodic.Framing, id uint32, cmd periodic.Command, args []byte) []byte {
	out := append(periodic.AppendMessage(periodic.BeginRequest(nil, fr), id, cmd), args...)
	periodic.End(out, 0, fr)
	return out
}

// GloomFrame encodes a message of the Gloom protocol, which may make no sense.
func GloomFrame(message string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// Assigned decodes a JOB_ASSIGN: the handle by which a worker reports the job, and the job, a view of body.
func Assigned(fr periodic.Framing, body []byte) (handle []byte, j periodic.Job, err error) {
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
