package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// secrecy is what pages may show of workloads and results.
type secrecy struct {
	hide bool
	keys map[string]bool // of JSON objects whose values are left out, in small letters; none: all is shown
}

// redactPrefix begins the value of Options.Payload that names keys.
const redactPrefix = "redact="

// parseSecrecy reads Options.Payload.
func parseSecrecy(text string) (s secrecy, ok bool) {
	switch names, redacts := strings.CutPrefix(text, redactPrefix); {
	case text == "" || text == "show":
		return s, true
	case text == "hide":
		return secrecy{hide: true}, true
	case redacts && names != "":
		s.keys = make(map[string]bool)
		for key := range strings.SplitSeq(names, ",") {
			s.keys[strings.ToLower(strings.TrimSpace(key))] = true
		}
		return s, !s.keys[""]
	}
	return s, false
}

// showsAll reports whether everything may be shown.
func (s *secrecy) showsAll() bool { return !s.hide && s.keys == nil }

// beginsJSON reports whether a text is JSON, or the begin of it.
func beginsJSON(text []byte) bool {
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); err != nil {
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		}
	}
}

// redacted takes the place of a value that is left out.
const redacted = `"***"`

// redact returns JSON, which may be cut, without the values of the keys.
func (s *secrecy) redact(text []byte) []byte {
	var b bytes.Buffer
	for at := 0; at < len(text); {
		if text[at] != '"' {
			b.WriteByte(text[at])
			at++
			continue
		}
		end := endOfString(text, at)
		b.Write(text[at:end])
		colon := end + blanks(text[end:])
		if colon < len(text) && text[colon] == ':' && s.isSecret(text[at:end]) {
			b.WriteString(": " + redacted)
			at = endOfValue(text, colon+1)
			continue
		}
		at = end
	}
	return b.Bytes()
}

// isSecret reports whether a key, as JSON has it, is one of the keys.
func (s *secrecy) isSecret(quoted []byte) bool {
	var key string
	return json.Unmarshal(quoted, &key) == nil && s.keys[strings.ToLower(key)]
}

// blanks returns the length of the white space at the begin of JSON.
func blanks(text []byte) int { return len(text) - len(bytes.TrimLeft(text, " \t\r\n")) }

// endOfString returns where the string that begins at a place ends.
func endOfString(text []byte, at int) int {
	for i := at + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// endOfValue returns where the value that begins behind a place ends.
func endOfValue(text []byte, at int) int {
	at += blanks(text[at:])
	for depth := 0; at < len(text); {
		switch c := text[at]; {
		case c == '"':
			if at = endOfString(text, at); depth == 0 {
				return at
			}
			continue
		case c == '{' || c == '[':
			depth++
		case (c == '}' || c == ']') && depth == 0, c == ',' && depth == 0:
			return at
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
		at++
	}
	return len(text)
}
