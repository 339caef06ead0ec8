package jsontext

// EscapeControls returns a copy of text with each raw control character inside a string written as its escape, as
// clients without a JSON library leave them out. It returns nil if the text has no such character, or when the copy
// would be longer than limit bytes. The rest of text is not checked.
func EscapeControls(text []byte, limit int) []byte {
	size := len(text)
	eachControl(text, func(i int) { size += escapedLen(text[i]) - 1 })
	if size == len(text) || size > limit {
		return nil
	}
	escaped, from := make([]byte, 0, size), 0
	eachControl(text, func(i int) {
		escaped = appendEscaped(append(escaped, text[from:i]...), text[i])
		from = i + 1
	})
	return append(escaped, text[from:]...)
}

// eachControl calls found with the index of each raw control character inside a string.
func eachControl(text []byte, found func(i int)) {
	inside := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inside = !inside
		case !inside:
		case c == '\\':
			i++ // its reader checks the escape
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
