package kts46

import (
	"bytes"
	"encoding/json"
	"errors"
)

// errNotJSON means that a request is not JSON.
var errNotJSON = errors.New("the request is not JSON")

// Request is one JSON-RPC 1.0 request.
type Request struct {
	Method string            // empty if the request has none
	Params []json.RawMessage // none when they are not an array
	// ID is the text of the id, or nil when it is missing or null. A request without one is answered with an empty
	// body.
	ID json.RawMessage
	// Null: the request is the word null.
	Null bool
}

// Param returns a parameter's text, nil when it is missing.
func (r *Request) Param(i int) json.RawMessage {
	if i < len(r.Params) {
		return r.Params[i]
	}
	return nil
}

// ParseRequest reads a request. JSON that is not an object is a request without a method.
func ParseRequest(body []byte) (r Request, err error) {
	if !json.Valid(body) {
		return r, errNotJSON
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return r, nil
	}
	r.Null = members == nil
	_ = json.Unmarshal(members["method"], &r.Method) // a method that is not a string counts as missing
	_ = json.Unmarshal(members["params"], &r.Params)
	if id := members["id"]; len(id) > 0 && string(id) != "null" {
		r.ID = id
	}
	return r, nil
}

// Error is an error of version 2.
type Error struct {
	Type         string `json:"type"`
	TaskType     string `json:"taskType,omitempty"`
	ArgumentName string `json:"argumentName,omitempty"`
}

func (e *Error) Error() string { return e.Type }

// AppendResult appends the answer to a successful request.
func AppendResult(dst []byte, id json.RawMessage, result any) []byte {
	return appendReply(dst, result, nil, id)
}

// AppendError appends the answer to a failed request. why is an *Error or a string.
func AppendError(dst []byte, id json.RawMessage, why any) []byte {
	return appendReply(dst, nil, why, id)
}

// appendReply appends a reply of version 2. It panics on a result that JSON cannot represent.
func appendReply(dst []byte, result, why any, id json.RawMessage) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(struct {
		Result any             `json:"result"`
		Error  any             `json:"error"`
		ID     json.RawMessage `json:"id"`
	}{result, why, id}); err != nil {
		panic("BUG: an answer is no JSON: " + err.Error())
	}
	return append(dst, bytes.TrimRight(b.Bytes(), "\n")...)
}
