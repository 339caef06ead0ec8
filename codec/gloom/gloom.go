// Package gloom translates between bytes and the frames of the Gloom protocol: a length of 4 bytes, then one JSON
// value. It knows no sockets and no clock.
//
// A frame's payload is read once. One pass checks that it is a valid JSON object and finds the fields of the protocol.
// Their values are returned as raw JSON text, in views into the caller's bytes that are valid until those bytes change.
// They are not decoded, so that ids, types and bodies are sent back as they came. Encoders append to the caller's
// slice. Nothing allocates, except for the growth of that slice and in ParseLax.
package gloom

import "errors"

const (
	// HeaderLen is the bytes of a frame before its payload: the payload's length, big-endian and unsigned.
	HeaderLen = 4

	// maxPayload is the largest payload that the header can announce, in bytes.
	maxPayload = 1<<32 - 1
)

var (
	// ErrTooLarge means that the header announces more bytes than the limit. The connection must be closed, since the
	// start of the next frame is not known.
	ErrTooLarge = errors.New("gloom: frame over the size limit")
	// ErrInvalidJSON means that a payload is not one JSON value in UTF-8, or is nested deeper than jsontext.MaxNesting.
	ErrInvalidJSON = errors.New("gloom: invalid JSON")
	// ErrNotObject means that a payload is a valid JSON value, but no object.
	ErrNotObject = errors.New("gloom: not a JSON object")
)

// Values of the field "error" of an error frame.
const (
	MissingField  = "missing_field"  // a field of the action is missing; the reason names it
	InvalidType   = "invalid_type"   // a priority that is no integer
	InvalidAction = "invalid_action" // a slave's action from a master, or a master's from a slave
	InvalidState  = "invalid_state"  // a response from a slave that has no job
	UnknownAction = "unknown_action" // on the masters' port; the reason is the action
	UnknownType   = "unknown_type"   // on the slaves' port; the reason is the action
	IDExists      = "id_exists"      // the reason is the id
	JobFailed     = "job_failed"     // the reason is the id
	InvalidJSON   = "invalid_json"   // see AppendInvalid
	SizeError     = "size_error"     // see AppendTooLarge
)
