package page

import (
	"encoding/hex"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	codec "treadle/codec/admin"
)

// Bounds of names on pages, in bytes.
const (
	shortName = 80   // in a list
	longName  = 1024 // on the page of what has the name
)

// name writes a name in a list.
func name(text string) template.HTML { return safeText(text, shortName) }

// fullName writes a name on a page of its own.
func fullName(text string) template.HTML { return safeText(text, longName) }

// safeText writes text that others have chosen, without its end when it is longer than most bytes. Bytes that are not
// UTF-8, control characters and what changes the direction of text are shown as escapes; the text cannot change the
// direction of what stands around it.
func safeText(text string, most int) template.HTML {
	if text == "" {
		return `<i class="none">(empty)</i>`
	}
	cut := ""
	if len(text) > most {
		end := most
		for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		cut = `<i class="none" title="` + strconv.Itoa(len(text)) + ` bytes">…</i>`
		text = text[:end]
	}
	var b strings.Builder
	b.WriteString("<bdi>")
	writeEscaped(&b, text, false)
	b.WriteString("</bdi>" + cut)
	return template.HTML(b.String()) //nolint:gosec // writeEscaped has escaped it
}

// writeEscaped writes text as HTML. lines keeps the ends of lines and tabs as they are.
func writeEscaped(b *strings.Builder, text string, lines bool) {
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		part := text[:n]
		text = text[n:]
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(b, `<i class="esc">\x%02x</i>`, part[0])
		case lines && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		case lines && r == '\r' && strings.HasPrefix(text, "\n"): // one end of a line
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(b, `<i class="esc">\x%02x</i>`, r)
		case !unicode.IsGraphic(r) || unicode.Is(unicode.Bidi_Control, r) || unicode.Is(unicode.Zs, r) && r != ' ':
			fmt.Fprintf(b, `<i class="esc">\u%04x</i>`, r)
		default:
			template.HTMLEscape(writer{b}, []byte(part))
		}
	}
}

// writer makes an io.Writer of a strings.Builder.
type writer struct{ *strings.Builder }

// plain writes a name where there can be no HTML, such as a title.
func plain(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '\ufffd'
		}
		return r
	}, text)
	if len(text) > shortName {
		return strings.ToValidUTF8(text[:shortName], "") + "…"
	}
	return text
}

// number writes a whole number with a comma between thousands.
func number(n any) string {
	text := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// countCell writes a number in a table, and a dot for 0.
func countCell(n int) template.HTML {
	if n == 0 {
		return `<i class="zero">0</i>`
	}
	return template.HTML(number(n)) //nolint:gosec // digits and commas
}

// plural writes a number and what it counts.
func plural(n any, one string) string {
	if fmt.Sprint(n) == "1" {
		return "1 " + one
	}
	return number(n) + " " + one + "s"
}

// perSecond writes a rate: with a digit behind the point below 10.
func perSecond(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f < 0.05:
		return "<0.1"
	case f < 9.95:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return number(int64(math.Round(f)))
}

// size writes a number of bytes, in the unit in which it is 1 to 1023.
func size(n any) string {
	bytes, err := strconv.ParseFloat(fmt.Sprint(n), 64)
	if err != nil {
		return fmt.Sprint(n)
	}
	unit := 0
	for bytes >= 1023.5 && unit+1 < len(sizeUnits) {
		bytes /= 1024
		unit++
	}
	if unit > 0 && bytes < 99.95 {
		return strconv.FormatFloat(bytes, 'f', 1, 64) + " " + sizeUnits[unit]
	}
	return strconv.FormatFloat(bytes, 'f', 0, 64) + " " + sizeUnits[unit]
}

var sizeUnits = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// span writes a time in seconds, in its two largest units.
func span(seconds int64) string {
	if seconds < 0 {
		seconds = 0
	}
	units := []struct {
		name string
		of   int64
	}{{"d", 24 * 3600}, {"h", 3600}, {"m", 60}, {"s", 1}}
	for i, u := range units {
		if seconds < u.of && u.of > 1 {
			continue
		}
		text := number(seconds/u.of) + " " + u.name
		if i+1 < len(units) {
			if next := seconds % u.of / units[i+1].of; next > 0 {
				text += " " + strconv.FormatInt(next, 10) + " " + units[i+1].name
			}
		}
		return text
	}
	return "0 s"
}

// ago writes how far a moment in Unix milliseconds is from now, with the moment itself as its title.
func ago(ms int64) template.HTML {
	if ms == 0 {
		return `<i class="none">–</i>`
	}
	away := time.Now().UnixMilli() - ms
	text := span(max(away, 0)/1000) + " ago"
	switch {
	case away < -999:
		text = "in " + span((-away+999)/1000)
	case away < 1000:
		text = "now"
	}
	return moment(ms, text)
}

// shortTime writes a moment in Unix milliseconds in the server's time zone: without the day when that is today.
func shortTime(ms int64) template.HTML {
	if ms == 0 {
		return `<i class="none">–</i>`
	}
	t := time.UnixMilli(ms)
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return moment(ms, t.Format(time.TimeOnly))
	}
	return moment(ms, t.Format(time.DateTime))
}

func moment(ms int64, text string) template.HTML {
	t := time.UnixMilli(ms)
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // no text of others
		t.UTC().Format(time.RFC3339), t.Format("2006-01-02 15:04:05 MST"), text))
}

// clock writes a moment in RFC 3339 as the wall clock of its zone has it.
func clock(text string) template.HTML {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // escaped
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time> <span class="faint">%s</span>`, //nolint:gosec // no text of others
		text, t.Format("Mon 2 Jan 15:04"), t.Format("-07:00")))
}

// mainLine returns the line that says most of an error: the last one of a Python trace, else the first.
func mainLine(text string) string {
	text = strings.TrimSpace(text)
	first, _, _ := strings.Cut(text, "\n")
	if strings.HasPrefix(first, "Traceback (") {
		return text[strings.LastIndexByte(text, '\n')+1:]
	}
	return first
}

// toValidUTF8 returns text with U+FFFD for bytes that are not UTF-8, as the value of a field can have it.
func toValidUTF8(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// isWholeName reports whether a name of the API is a name: those that are not UTF-8 have U+FFFD in some lists.
func isWholeName(name string) bool { return !strings.ContainsRune(name, utf8.RuneError) }

// hexed returns bytes as a form can carry them.
func hexed(text string) string { return hex.EncodeToString([]byte(text)) }

// totalConnections returns the connections of a protocol.
func totalConnections(c codec.ProtocolConnections) int { return c.Clients + c.Workers + c.Others }

// glyphs are the shapes of states and findings, in a square of 12.
var glyphs = map[string]string{
	"ready":     `<circle cx="6" cy="6" r="4" class="f"/>`,
	"running":   `<path d="M3 1.5 10.5 6 3 10.5z" class="f"/>`,
	"delayed":   `<circle cx="6" cy="6" r="4.5"/><path d="M6 3.4V6l1.9 1.5"/>`,
	"locked":    `<rect x="2" y="5.5" width="8" height="5" rx="1" class="f"/><path d="M4 5.5V4a2 2 0 0 1 4 0v1.5"/>`,
	"waiting":   `<path d="M6 1.5 10.5 6 6 10.5 1.5 6z"/>`,
	"failed":    `<path d="m2.5 2.5 7 7m0-7-7 7" class="w"/>`,
	"done":      `<path d="m2 6.5 2.7 2.8L10 3.2" class="w"/>`,
	"expired":   `<path d="M3 1.5h6L3 10.5h6z"/>`,
	"cancelled": `<path d="M2 6h8" class="w"/>`,
	"ok":        `<path d="m2 6.5 2.7 2.8L10 3.2" class="w"/>`,
	"warn":      `<path d="M6 1.3 11.2 10.7H.8z"/><path d="M6 4.8v2.6M6 8.9v.2"/>`,
	"bad":       `<path d="M3.8 1h4.4L11 3.8v4.4L8.2 11H3.8L1 8.2V3.8z"/><path d="M6 3.4v3.2M6 8.4v.2"/>`,
	"paused":    `<path d="M4 2.5v7M8 2.5v7" class="w"/>`,
	"idle":      `<circle cx="6" cy="6" r="4"/>`,

	"leader":      `<path d="M6 1.2 7.5 4.4l3.5.4-2.6 2.3.8 3.5L6 8.8l-3.2 1.8.8-3.5L1 4.8l3.5-.4z" class="f"/>`,
	"follower":    `<circle cx="6" cy="6" r="4"/>`,
	"candidate":   `<path d="M6 1.5 10.5 6 6 10.5 1.5 6z"/>`,
	"learner":     `<path d="M6 1.5v6m-2.8-2.6L6 7.7l2.8-2.8M2 10.5h8"/>`,
	"unreachable": `<path d="m2.5 2.5 7 7m0-7-7 7" class="w"/>`,
}

// tones are the classes of glyphs that have a colour beside their shape.
var tones = map[string]string{
	"running": "run", "failed": "bad", "bad": "bad", "warn": "warn", "paused": "warn", "ok": "ok", "done": "ok", "expired": "warn",
	"leader": "run", "unreachable": "bad",
}

// glyph draws the shape of a state.
func glyph(state string) template.HTML {
	class := "g"
	if tone := tones[state]; tone != "" {
		class += " " + tone
	}
	return template.HTML(`<svg class="` + class + `" viewBox="0 0 12 12" aria-hidden="true">` + glyphs[state] + `</svg>`) //nolint:gosec // from the table
}

// attempt returns the state whose shape an outcome of an attempt has.
func attempt(outcome string) string {
	switch outcome {
	case "done", "expired":
		return outcome
	case "moved":
		return "ready"
	}
	return "failed"
}

// maxLines bounds a text of several lines, in bytes.
const maxLines = 4 << 10

// textBlock writes a text of several lines, as an error of a job may be.
func textBlock(text string) template.HTML {
	var b strings.Builder
	writeEscaped(&b, text[:min(len(text), maxLines)], true)
	return template.HTML(b.String()) //nolint:gosec // escaped
}

// stateLabel writes a state by shape and word.
func stateLabel(word string) template.HTML {
	return `<span class="state">` + glyph(word) + template.HTML(template.HTMLEscapeString(word)) + `</span>` //nolint:gosec // escaped
}

// url returns the address of a page with a query of names and values, one after the other. Values may have any bytes.
func (s *Pages) url(path string, query ...string) string {
	if q := values(query...); len(q) > 0 {
		return s.root + path + "?" + q.Encode()
	}
	return s.root + path
}

// withQuery returns an address with other values of its query. An empty value takes one out.
func withQuery(address string, query ...string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	q := u.Query()
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] == "" {
			q.Del(query[i])
		} else {
			q.Set(query[i], query[i+1])
		}
	}
	u.RawQuery = q.Encode()
	return u.RequestURI()
}

func (s *Pages) templates() *template.Template {
	t := template.New("").Funcs(template.FuncMap{
		"url": s.url, "address": withQuery, "asset": s.assetURL,
		"name": name, "fullName": fullName, "plain": plain, "number": number, "count": countCell, "plural": plural,
		"perSecond": perSecond, "size": size, "span": span, "ago": ago, "at": shortTime, "glyph": glyph, "state": stateLabel,
		"key": fragmentKey, "quote": quote, "attempt": attempt, "lines": textBlock, "protocol": protocolName, "clock": clock, "line": mainLine,
		"valid": toValidUTF8, "whole": isWholeName, "hexed": hexed, "total": totalConnections, "seconds": func(ms int64) int64 { return ms / 1000 },
		"sentence": sentence, "taskState": taskState, "asked": func(verb string) string { return verbs[verb].Ask }, "canWrite": func() bool { return s.write },
	})
	return template.Must(t.ParseFS(files, "files/*.html"))
}

// fragmentKey returns a short name of a part of a page, for what has these names.
func fragmentKey(names ...string) string {
	h := uint64(14695981039346656037) // FNV-1a
	for _, n := range names {
		for i := range len(n) {
			h = (h ^ uint64(n[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	return "k" + strconv.FormatUint(h, 36)
}

// protocolNames are the protocols as people know them, where that is not the name of the metrics.
var protocolNames = map[string]string{
	"periodic": "Periodic", "gloom": "Gloom", "disbatch": "Disbatch", "admin": "HTTP API", "beanstalk": "beanstalkd", "faktory": "Faktory",
}

func protocolName(name string) string {
	if shown := protocolNames[name]; shown != "" {
		return shown
	}
	return name
}
