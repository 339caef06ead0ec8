package gloom

// ParseLax is Parse for payloads in whose strings control characters may stand raw, as clients write them that put JSON
// together by hand: each counts as its escape. m is then made of views into a copy that has the escapes, of at most
// limit bytes; a longer one is ErrInvalid. Nothing is allocated for a payload that Parse takes.
func ParseLax(payload []byte, limit int, m *Message) error {
	err := Parse(payload, m)
	if err != ErrInvalid {
		return err
	}
	size := len(payload)
	eachControl(payload, func(i int) { size += escapedLen(payload[i]) - 1 })
	if size == len(payload) || size > limit {
		return err
	}
	escaped, from := make([]byte, 0, size), 0
	eachControl(payload, func(i int) {
		escaped = appendEscaped(append(escaped, payload[from:i]...), payload[i])
		from = i + 1
	})
	return Parse(append(escaped, payload[from:]...), m)
}

// eachControl calls found with the place of each control character that stands raw inside a string.
func eachControl(payload []byte, found func(i int)) {
	inside := false
	for i := 0; i < len(payload); i++ {
		switch c := payload[i]; {
		case c == '"':
			inside = !inside
		case !inside:
		case c == '\\':
			i++ // whatever is escaped, Parse judges
		case c < ' ':
			found(i)
		}
	}
}

// escapedLen is how long appendEscaped writes a control character.
func escapedLen(c byte) int {
	switch c {
	case '\b', '\f', '\n', '\r', '\t':
		return len(`\n`)
	}
	return len(`\u0000`)
}
