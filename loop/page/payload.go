package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"unicode/utf8"
)

// maxIndent bounds the levels of JSON that are indented. Deeper ones stay on a line: a payload may be as deep as it is
// long.
const maxIndent = 24

// payload is the first part of a workload or a result, in one of its forms.
type payload struct {
	Part  string // names it in addresses, as workload
	Title string
	Size  int
	Cut   int // so many bytes are shown; 0: all
	Form  string
	Forms []chartSpan
	Text  template.HTML
	Empty bool
	Raw   string // the address of all its bytes; empty: they are not served
	Why   string // why it is not shown; empty: it is
}

// formNames are the forms as links have them.
var formNames = map[string]string{"json": "JSON", "text": "Text", "hex": "Hex"}

// newPayload returns the first bytes of a payload of so many bytes. form is the value of the parameter that chooses the
// form; by default it is JSON, text or hex, the first that the bytes are.
func newPayload(part, parameter, form, self string, first []byte, size int, cut bool, hidden *secrecy) *payload {
	p := &payload{Part: part, Size: size, Empty: size == 0}
	isJSON := looksJSON(first, cut)
	switch {
	case p.Empty:
		return p
	case hidden.hide || hidden.keys != nil && (!isJSON || !beginsJSON(first)):
		p.Why = "It is not shown: --web-payload hides it."
		return p
	case hidden.keys != nil:
		first, form = hidden.redact(first), ""
	}
	if cut {
		p.Cut = len(first)
	}
	forms := []string{"text", "hex"}
	if hidden.keys != nil {
		forms = []string{"json"} // the others show what is left out, or hide it for no reason
	} else if isJSON {
		forms = []string{"json", "text", "hex"}
	} else if !utf8.Valid(first) && !cut || cut && !utf8.Valid(trimRune(first)) {
		forms = []string{"hex", "text"}
	}
	p.Form = forms[0]
	for _, f := range forms {
		if f == form {
			p.Form = f
		}
	}
	for i, f := range forms {
		value := f
		if i == 0 {
			value = ""
		}
		p.Forms = append(p.Forms, chartSpan{Name: f, Text: formNames[f], URL: withQuery(self, parameter, value), Here: f == p.Form})
	}
	var b strings.Builder
	switch p.Form {
	case "json":
		writeEscaped(&b, string(indentJSON(first)), true)
	case "hex":
		template.HTMLEscape(writer{&b}, hexDump(first))
	default:
		writeEscaped(&b, string(first), true)
	}
	p.Text = template.HTML(b.String()) //nolint:gosec // escaped
	return p
}

// trimRune returns text without a character that is cut at its end.
func trimRune(text []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if c := text[len(text)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(text[len(text)-n:]) {
				return text[:len(text)-n]
			}
			break
		}
	}
	return text
}

// looksJSON reports whether text is JSON; of text that is cut, whether it begins as an object or an array.
func looksJSON(text []byte, cut bool) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return false
	}
	return cut || json.Valid(text)
}

// indentJSON writes JSON with a line for each member, and every value byte for byte: numbers keep their digits. The
// text may be cut.
func indentJSON(text []byte) []byte {
	var b bytes.Buffer
	depth, quoted, escaped := 0, false, false
	line := func() {
		b.WriteByte('\n')
		for range depth {
			b.WriteString("  ")
		}
	}
	for i, c := range text {
		switch {
		case quoted:
			b.WriteByte(c)
			switch {
			case escaped:
				escaped = false
			case c == '\\':
				escaped = true
			case c == '"':
				quoted = false
			}
		case c == '"':
			quoted = true
			b.WriteByte(c)
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case c == '{' || c == '[':
			b.WriteByte(c)
			depth++
			if depth <= maxIndent && !closes(text[i+1:]) {
				line()
			}
		case c == '}' || c == ']':
			depth--
			if depth < maxIndent && !opens(b.Bytes()) {
				line()
			}
			b.WriteByte(c)
		case c == ',' && depth <= maxIndent:
			b.WriteByte(c)
			line()
		case c == ':':
			b.WriteString(": ")
		default:
			b.WriteByte(c)
		}
	}
	return b.Bytes()
}

// closes reports whether the next token of JSON is the end of an object or array.
func closes(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && (text[0] == '}' || text[0] == ']')
}

// opens reports whether text ends with the begin of an object or array.
func opens(text []byte) bool {
	return len(text) > 0 && (text[len(text)-1] == '{' || text[len(text)-1] == '[')
}

// hexDump writes bytes in hex, 16 a line, with their characters.
func hexDump(text []byte) []byte {
	var b bytes.Buffer
	for at := 0; at < len(text); at += 16 {
		line := text[at:min(at+16, len(text))]
		fmt.Fprintf(&b, "%06x  % -47x  ", at, line)
		for _, c := range line {
			if c < 0x20 || c > 0x7e {
				c = '.'
			}
			b.WriteByte(c)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}
