package gloom

import (
	"bytes"
	"math"
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

// Parse checks that payload is one JSON object by the rules of Valid, and sets m to its fields. The first of equal keys
// counts. Keys are compared with their escapes resolved, and unknown keys are ignored. After an error, ErrInvalid or
// ErrNotObject, m must not be used. Nothing is allocated.
func Parse(payload []byte, m *Message) error {
	*m = Message{}
	var o object
	if !o.open(payload) {
		return classify(payload)
	}
	for o.next() {
		f := m.field(o.key)
		if f == nil && mayBeWord(o.key) {
			var word [wordRoom]byte
			f = m.field(appendUnescaped(word[:0], o.key))
		}
		if f != nil && *f == nil {
			*f = o.value
		}
	}
	if !o.ok {
		return ErrInvalid
	}
	return nil
}

// classify returns the error of a payload that does not begin as an object.
func classify(payload []byte) error {
	if Valid(payload) {
		return ErrNotObject
	}
	return ErrInvalid
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
		kind = actionOf(appendUnescaped(word[:0], text))
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

// Priority reads raw, the text of a JSON value, as an integer of any size and clamps it to 64 bits. It returns false for
// a number with a fraction or an exponent, for other values and for nil.
func Priority(raw []byte) (n int64, ok bool) {
	if end := skipInteger(raw, 0); end == 0 || end < len(raw) {
		return 0, false
	}
	negative := raw[0] == '-'
	if negative {
		raw = raw[1:]
	}
	for _, c := range raw { // n counts down, because MinInt64 has no positive counterpart
		digit := int64(c - '0')
		if n < (math.MinInt64+digit)/10 {
			n = math.MinInt64
			break
		}
		n = n*10 - digit
	}
	switch {
	case negative:
		return n, true
	case n == math.MinInt64:
		return math.MaxInt64, true
	}
	return -n, true
}
