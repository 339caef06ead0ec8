package gloom

import "treadle/codec/jsontext"

// Reply is one decoded payload of a server. OK means that it has "ok":true; the other fields are as in Message. Reason
// belongs to Error. Action is "job" in a job for a slave.
type Reply struct {
	OK     bool
	ID     []byte
	Type   []byte
	Body   []byte
	Error  []byte
	Reason []byte
	Action []byte
}

// ParseReply is Parse for what a server sends, on the client's side.
func ParseReply(payload []byte, r *Reply) error {
	*r = Reply{}
	var o jsontext.Object
	if !o.Open(payload) {
		return classify(payload)
	}
	var ok []byte
	for o.Next() {
		f := r.field(o.Key, &ok)
		if f == nil && mayBeWord(o.Key) {
			var word [wordRoom]byte
			f = r.field(jsontext.AppendUnescaped(word[:0], o.Key), &ok)
		}
		if f != nil && *f == nil {
			*f = o.Value
		}
	}
	if !o.Valid() {
		return ErrInvalidJSON
	}
	r.OK = string(ok) == "true"
	return nil
}

// field returns the field of that name, or nil; ok is that of the value behind OK.
func (r *Reply) field(name []byte, ok *[]byte) *[]byte {
	switch string(name) {
	case "ok":
		return ok
	case "id":
		return &r.ID
	case "type":
		return &r.Type
	case "body":
		return &r.Body
	case "error":
		return &r.Error
	case "reason":
		return &r.Reason
	case "action":
		return &r.Action
	}
	return nil
}
