package gloom

import "treadle/codec/jsontext"

// ParseLax is Parse for payloads with raw control characters in strings, as clients without a JSON library write them.
// Each is read as its escape. The fields of m are then views into a copy with the escapes, of at most limit bytes; the
// error of a longer one is ErrInvalidJSON. Nothing is allocated for a payload that Parse accepts.
func ParseLax(payload []byte, limit int, m *Message) error {
	err := Parse(payload, m)
	if err != ErrInvalidJSON {
		return err
	}
	escaped := jsontext.EscapeControls(payload, limit)
	if escaped == nil {
		return err
	}
	return Parse(escaped, m)
}
