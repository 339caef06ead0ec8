package gloom

// ParseLax is Parse for payloads with raw control characters in strings, as clients without a JSON library write them.
// Each is read as its escape. The fields of m are then views into a copy with the escapes, of at most limit bytes; the
// error of a longer one is ErrInvalid. Nothing is allocated for a payload that Parse accepts.
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

// eachControl calls found with the index of each raw control character inside a string.
func eachControl(payload []byte, found func(i int)) {
	inside := false
	for i := 0; i < len(payload); i++ {
		switch c := payload[i]; {
		case c == '"':
			inside = !inside
		case !inside:
		case c == '\\':
			i++ // Parse checks the escape
		case c < ' ':
			found(i)
		}
	}
}

// escapedLen returns the length of a control character's escape, as appendEscaped writes it.
func escapedLen(c byte) int {
	switch c {
	case '\b', '\f', '\n', '\r', '\t':
		return len(`\n`)
	}
	return len(`\u0000`)
}
