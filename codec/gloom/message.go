package gloom

import (
	"bytes"

	"treadle/codec/jsontext"
)

// Message is one decoded payload of a master or a slave. A field is the raw JSON text of its value without outer white
// space, a view into the payload, or nil when its key is missing. Parse sets every field, so that a Message is reused.
type Message struct {
	Action   []byte
	ID       []byte
	Type     []byte
	Priority []byte
	Body     []byte
}

// Parse checks that payload is one JSON object by the rules of jsontext.Valid, and sets m to its fields. The first of
// equal keys counts. Keys are compared with their escapes resolved, and unknown keys are ignored. After an error,
// ErrInvalidJSON or ErrNotObject, m must not be used. Nothing is allocated.
func Parse(payload []byte, m *Message) error {
	*m = Message{}
	var o jsontext.Object
	if !o.Open(payload) {
		return classify(payload)
	}
	for o.Next() {
		f := m.field(o.Key)
		if f == nil && mayBeWord(o.Key) {
			var word [wordRoom]byte
			f = m.field(jsontext.AppendUnescaped(word[:0], o.Key))
		}
		if f != nil && *f == nil {
			*f = o.Value
		}
	}
	if !o.Valid() {
		return ErrInvalidJSON
	}
	return nil
}

// classify returns the error of a payload that does not begin as an object.
func classify(payload []byte) error {
	if jsontext.Valid(payload) {
		return ErrNotObject
	}
	return ErrInvalidJSON
}

// field returns the field of that name, or nil.
func (m *Message) field(name []byte) *[]byte {
	switch string(name) {
	case "action":
		return &m.Action
	case "id":
		return &m.ID
	case "type":
		return &m.Type
	case "priority":
		return &m.Priority
	case "body":
		return &m.Body
	}
	return nil
}

// wordRoom holds any of the protocol's words, "priority" being the longest, with each character written as \u0000.
const wordRoom = 6 * len("priority")

// mayBeWord reports whether text, the inside of a string, has escapes and may be one of the protocol's words once they
// are resolved.
func mayBeWord(text []byte) bool {
	return len(text) <= wordRoom && bytes.IndexByte(text, '\\') >= 0
}

// ActionKind is what a message asks for.
type ActionKind uint8

// The kinds of action.
const (
	NoAction    ActionKind = iota // the key is missing
	Join                          // a slave's
	Submit                        // a master's
	Respond                       // a slave's
	OtherAction                   // any other JSON value
)

// Action returns the kind of m.Action. Its escapes are resolved.
func Action(m *Message) ActionKind {
	if m.Action == nil {
		return NoAction
	}
	if m.Action[0] != '"' {
		return OtherAction
	}
	text := m.Action[1 : len(m.Action)-1]
	kind := actionOf(text)
	if kind == OtherAction && mayBeWord(text) {
		var word [wordRoom]byte
		kind = actionOf(jsontext.AppendUnescaped(word[:0], text))
	}
	return kind
}

func actionOf(text []byte) ActionKind {
	switch string(text) {
	case "join":
		return Join
	case "submit":
		return Submit
	case "respond":
		return Respond
	}
	return OtherAction
}
