package gloom

import (
	"encoding/binary"
	"strconv"

	"treadle/codec/jsontext"
)

// header is the room for a frame's length, which end fills in.
const header = "\x00\x00\x00\x00"

// end fills in the length of the frame that ends dst and began at start.
func end(dst []byte, start int) []byte {
	putSize(dst[start:], len(dst)-start-HeaderLen)
	return dst
}

func putSize(header []byte, size int) {
	if size > maxPayload {
		panic("BUG: a payload over maxPayload")
	}
	binary.BigEndian.PutUint32(header, uint32(size))
}

// The functions below append whole frames, header included, and panic over maxPayload. Ids, types, bodies and reasons
// are raw JSON text, which the frame has unchanged.

// AppendOK appends the answer to join and respond.
func AppendOK(dst []byte) []byte {
	return append(dst, "\x00\x00\x00\x0b{\"ok\":true}"...)
}

// AppendSubmitted appends the answer to submit.
func AppendSubmitted(dst, id []byte) []byte {
	start := len(dst)
	dst = append(dst, header+`{"ok":true,"id":`...)
	dst = append(dst, id...)
	return end(append(dst, '}'), start)
}

// AppendJob appends a job for a slave.
func AppendJob(dst, id, typ, body []byte) []byte {
	start := len(dst)
	dst = append(dst, header+`{"action":"job","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"type":`...)
	dst = append(dst, typ...)
	dst = append(dst, `,"body":`...)
	dst = append(dst, body...)
	return end(append(dst, '}'), start)
}

// AppendResponse appends a job's response for its master.
func AppendResponse(dst, id, body []byte) []byte {
	start := len(dst)
	dst = append(dst, header+`{"id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"body":`...)
	dst = append(dst, body...)
	return end(append(dst, '}'), start)
}

// AppendError appends an error frame. name is one of the constants from MissingField to SizeError.
func AppendError(dst []byte, name string, reason []byte) []byte {
	start := len(dst)
	dst = append(appendReason(dst, name), reason...)
	return end(append(dst, '}'), start)
}

// appendReason appends an error frame up to its reason.
func appendReason(dst []byte, name string) []byte {
	dst = append(dst, header+`{"error":"`...)
	dst = append(dst, name...)
	return append(dst, `","reason":`...)
}

// AppendInvalid appends the error frame for a payload that is not valid JSON. The reason is the payload as a string,
// with one \ufffd for each byte that is not UTF-8. It may be six times as long as the payload.
func AppendInvalid(dst, payload []byte) []byte {
	start := len(dst)
	dst = jsontext.AppendFromUTF8(appendReason(dst, InvalidJSON), payload)
	return end(append(dst, '}'), start)
}

// AppendTooLarge appends the error frame for a header over the limit.
func AppendTooLarge(dst []byte) []byte {
	start := len(dst)
	return end(append(appendReason(dst, SizeError), `"length too large"}`...), start)
}

// Leaving is the type that a slave of Treadle joins when it wants no more jobs: a Treadle server hands it none. For
// other servers it is a type without jobs.
const Leaving = `{"treadle":"leaving"}`

// AppendJoin appends a slave's join, on the client's side.
func AppendJoin(dst, typ []byte) []byte {
	start := len(dst)
	dst = append(dst, header+`{"action":"join","type":`...)
	dst = append(dst, typ...)
	return end(append(dst, '}'), start)
}

// AppendSubmit appends a master's submit, on the client's side. It leaves out a priority of 0, the server's default.
func AppendSubmit(dst, id, typ []byte, priority int64, body []byte) []byte {
	start := len(dst)
	dst = append(dst, header+`{"action":"submit","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"type":`...)
	dst = append(dst, typ...)
	if priority != 0 {
		dst = append(dst, `,"priority":`...)
		dst = strconv.AppendInt(dst, priority, 10)
	}
	dst = append(dst, `,"body":`...)
	dst = append(dst, body...)
	return end(append(dst, '}'), start)
}

// AppendRespond appends a slave's response, on the client's side.
func AppendRespond(dst, body []byte) []byte {
	start := len(dst)
	dst = append(dst, header+`{"action":"respond","body":`...)
	dst = append(dst, body...)
	return end(append(dst, '}'), start)
}
