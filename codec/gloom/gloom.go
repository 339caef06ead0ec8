// Package gloom translates between bytes and the frames of the Gloom protocol: a length of 4 bytes, then one JSON value.
// It knows no sockets and no clock.
//
// A frame's payload is read once, from front to back: the same pass checks that it is one valid JSON object and finds
// the fields that the protocol names. Their values are handed out as raw JSON text, views into the caller's bytes that
// are valid until those bytes change, and nothing inside them is decoded: ids, types and bodies go back as they came.
// Encoders append to the caller's slice. Nothing here allocates, but for the growth of that slice.
package gloom

import "errors"

const (
	// HeaderLen is the bytes of a frame before its payload: the payload's length, big-endian and unsigned.
	HeaderLen = 4

	// MaxPayload is the largest payload that the header can announce, in bytes.
	MaxPayload = 1<<32 - 1

	// MaxNesting is how many arrays and objects may stand inside each other, the outermost counted. Clients' JSON
	// readers recurse, and fail not far above it; encoding/json has the same limit.
	MaxNesting = 10000
)

var (
	// ErrTooLarge means that the header announces more bytes than the limit. It is final: where the next frame would
	// begin is not known, so the connection must be closed.
	ErrTooLarge = errors.New("gloom: frame over the size limit")
	// ErrInvalid means that a payload is not one JSON value in UTF-8, or is nested deeper than MaxNesting.
	ErrInvalid = errors.New("gloom: invalid JSON")
	// ErrNotObject means that a payload is a valid JSON value, but no object.
	ErrNotObject = errors.New("gloom: not a JSON object")
)

// Values of the field "error" of an error frame.
const (
	MissingField  = "missing_field"  // a field that the action needs is not there; the reason names it
	InvalidType   = "invalid_type"   // a priority that is no integer
	InvalidAction = "invalid_action" // a slave's action from a master, or the other way round
	InvalidState  = "invalid_state"  // a response from a slave that has no job
	UnknownAction = "unknown_action" // on the masters' port; the reason is the action
	UnknownType   = "unknown_type"   // the same on the slaves' port
	IDExists      = "id_exists"      // the reason is the id
	JobFailed     = "job_failed"     // the reason is the id
	InvalidJSON   = "invalid_json"   // see AppendInvalid
	SizeError     = "size_error"     // see AppendTooLarge
)
