package fuzz

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"treadle/codec/gloom"
	"treadle/codec/jsontext"
)

// Longer inputs find nothing more, and keep the fuzzer busy making them shorter.
const (
	gloomLimit  = 1 << 7 // small, so that inputs on both sides of it are found
	gloomStream = 1 << 9
	gloomText   = 1 << 8
	gloomSpace  = " \t\r\n"
)

// gloomPayloads returns every captured payload that is written as text; see the first lines of the file.
func gloomPayloads(f *testing.F) (payloads [][]byte) {
	f.Helper()
	text, err := os.ReadFile("testdata/gloom.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		kind, payload, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if kind != "#" && !strings.HasPrefix(payload, "hex:") {
			payloads = append(payloads, []byte(payload))
		}
	}
	slices.SortFunc(payloads, bytes.Compare)
	return slices.CompactFunc(payloads, bytes.Equal)
}

func gloomFrame(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// gloomReader decodes a stream as a connection does, and checks each frame against its own bytes.
type gloomReader struct {
	t      *testing.T
	in     []byte // received and not taken yet
	need   int    // Next cannot return anything before in has as many bytes
	failed error
	events []string
}

// receive gives the reader more bytes and takes all frames that they end.
func (r *gloomReader) receive(more []byte) {
	r.in = append(slices.Clone(r.in), more...) // a fresh array: a kept view would show
	for r.failed == nil {
		payload, n, err := gloom.Next(slices.Clip(r.in), gloomLimit)
		if (n > 0 || err != nil) && len(r.in) < r.need {
			r.t.Fatalf("%x: decided (%d, %v) with %d bytes, Need said %d", r.in, n, err, len(r.in), r.need)
		}
		if r.failed = err; err != nil {
			r.events = append(r.events, err.Error())
			return
		}
		if n == 0 {
			if r.need = gloom.Need(r.in); r.need <= len(r.in) || payload != nil {
				r.t.Fatalf("%x: undecided with %d bytes, Need says %d", r.in, len(r.in), r.need)
			}
			return
		}
		if got := gloomFrame(payload); !bytes.Equal(got, r.in[:n]) || len(payload) > gloomLimit || cap(payload) != len(payload) {
			r.t.Fatalf("decoded %x, encoded %x, cap %d", r.in[:n], got, cap(payload))
		}
		var m gloom.Message
		err = gloom.Parse(payload, &m)
		r.events = append(r.events, fmt.Sprintf("%x: %v, %q", payload, err, m))
		r.in, r.need = r.in[n:], 0
	}
}

// end returns all that the reader saw.
func (r *gloomReader) end() string {
	if r.failed == nil {
		r.events = append(r.events, fmt.Sprintf("rest %x", r.in))
	}
	return strings.Join(r.events, "\n")
}

// FuzzGloomFrames reads the stream at once, in two parts and byte by byte: each must see the same.
func FuzzGloomFrames(f *testing.F) {
	var all []byte
	for i, p := range gloomPayloads(f) {
		in := gloomFrame(p)
		f.Add(in, i%len(in))
		all = append(all, in...)
	}
	f.Add(all[:gloomStream], 100)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		if len(stream) > gloomStream {
			return
		}
		read := func(pieces ...[]byte) string {
			r := gloomReader{t: t}
			for _, p := range pieces {
				r.receive(p)
			}
			return r.end()
		}
		cut = min(max(cut, 0), len(stream))
		want := read(stream)
		if got := read(stream[:cut], stream[cut:]); got != want {
			t.Fatalf("cut at %d:\n%s\nuncut:\n%s", cut, got, want)
		}
		if got := read(slices.Collect(slices.Chunk(stream, 1))...); got != want {
			t.Fatalf("byte by byte:\n%s\nuncut:\n%s", got, want)
		}
	})
}

// naiveGloomMembers reads an object member by member with encoding/json: a naive copy of Parse. Of equal keys the
// first counts. ok is false when the payload is a valid value, but no object.
func naiveGloomMembers(t *testing.T, payload []byte) (members map[string][]byte, ok bool) {
	d := json.NewDecoder(bytes.NewReader(payload))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return nil, false
	}
	members = make(map[string][]byte)
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			t.Fatalf("%q: the naive one: %v", payload, err)
		}
		if _, there := members[key.(string)]; !there {
			members[key.(string)] = value
		}
	}
	return members, true
}

var gloomInteger = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// FuzzGloomParse: a payload is valid when encoding/json says so and it is UTF-8, the naive one finds the same fields.
// depth puts the payload into arrays, up to both of the depths at which the scanner does something else.
func FuzzGloomParse(f *testing.F) {
	for _, p := range gloomPayloads(f) {
		f.Add(p, byte(len(p)%8))
	}
	f.Add([]byte("{\"id\":\"a\nb\",\"body\":[\"\x01\\\"\t\",\"\"],\"type\":\n\"\x7f\"}"), byte(0))
	f.Fuzz(func(t *testing.T, payload []byte, depth byte) {
		if len(payload) > gloomStream {
			return
		}
		payload = gloomNested(payload, int(depth))
		var m gloom.Message
		var r gloom.Reply
		err, replyErr := gloom.Parse(payload, &m), gloom.ParseReply(payload, &r)
		valid := json.Valid(payload) && utf8.Valid(payload)
		if jsontext.Valid(payload) != valid || errors.Is(err, gloom.ErrInvalidJSON) == valid || !errors.Is(replyErr, err) {
			t.Fatalf("%q: valid %v, %v, %v, the naive one %v", payload, jsontext.Valid(payload), err, replyErr, valid)
		}
		checkGloomPriority(t, payload)
		checkGloomLax(t, payload, &m, err)
		if !valid {
			return
		}
		members, isObject := naiveGloomMembers(t, payload)
		if errors.Is(err, gloom.ErrNotObject) == isObject || isObject != (err == nil) {
			t.Fatalf("%q: %v, the naive one: object %v", payload, err, isObject)
		}
		for name, got := range map[string][]byte{"action": m.Action, "id": m.ID, "type": m.Type, "priority": m.Priority,
			"body": m.Body, "error": r.Error, "reason": r.Reason} {
			if want, there := members[name]; !bytes.Equal(got, want) || (got != nil) != there || cap(got) != len(got) {
				t.Fatalf("%q: %s %q, the naive one %q", payload, name, got, want)
			}
		}
		if r.OK != (string(members["ok"]) == "true") {
			t.Fatalf("%q: ok is %v", payload, r.OK)
		}
		checkGloomPriority(t, m.Priority)
		checkGloomAction(t, &m)
	})
}

var (
	gloomString  = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"`)
	gloomControl = regexp.MustCompile(`(?s)\\.|[\x00-\x1f]`)
)

// checkGloomLax: the naive one of ParseLax writes the escapes of control characters with regular expressions, and has
// Parse read that.
func checkGloomLax(t *testing.T, payload []byte, m *gloom.Message, err error) {
	var lax, want gloom.Message
	got := gloom.ParseLax(payload, 6*len(payload), &lax)
	escaped := gloomString.ReplaceAllFunc(payload, func(s []byte) []byte {
		return gloomControl.ReplaceAllFunc(s, func(c []byte) []byte {
			if c[0] == '\\' {
				return c
			}
			text, _ := json.Marshal(string(c))
			return text[1 : len(text)-1]
		})
	})
	if wantErr := gloom.Parse(escaped, &want); !errors.Is(got, wantErr) {
		t.Fatalf("%q: lax %v, the naive one %v of %q", payload, got, wantErr, escaped)
	}
	if !errors.Is(err, gloom.ErrInvalidJSON) { // nothing is to be forgiven
		want = *m
	}
	if got == nil && fmt.Sprintf("%q", lax) != fmt.Sprintf("%q", want) {
		t.Fatalf("%q: lax %q, want %q", payload, lax, want)
	}
}

// gloomNested returns payload, or an object with payload inside many arrays: 240 and more stand for 9990 and more.
func gloomNested(payload []byte, depth int) []byte {
	if depth == 0 {
		return payload
	}
	if depth >= 240 {
		depth += 9990 - 240
	}
	return slices.Concat([]byte(`{"body":`), bytes.Repeat([]byte("["), depth), payload, bytes.Repeat([]byte("]"), depth), []byte("}"))
}

func checkGloomPriority(t *testing.T, raw []byte) {
	got, ok := jsontext.Integer(raw)
	want, _ := strconv.ParseInt(string(raw), 10, 64) // clamps
	if wantOK := gloomInteger.Match(raw); ok != wantOK || ok && got != want || !ok && got != 0 {
		t.Fatalf("priority %q: %d, %v, the naive one %d, %v", raw, got, ok, want, wantOK)
	}
}

func checkGloomAction(t *testing.T, m *gloom.Message) {
	kinds := map[string]gloom.ActionKind{"join": gloom.Join, "submit": gloom.Submit, "respond": gloom.Respond}
	var text string
	_ = json.Unmarshal(m.Action, &text) // it stays empty when the action is no string
	want := kinds[text]
	if m.Action != nil && want == gloom.NoAction {
		want = gloom.OtherAction
	}
	if got := gloom.Action(m); got != want {
		t.Fatalf("%s: action %d, the naive one %d", m.Action, got, want)
	}
}

var unescaped = strings.NewReplacer("b", "\b", "f", "\f", "n", "\n", "r", "\r", "t", "\t")

// gloomUnits naively reads a JSON string's characters, as UTF-16.
func gloomUnits(raw []byte) (units []uint16) {
	for s := string(raw[1 : len(raw)-1]); s != ""; {
		if s[0] != '\\' {
			r, size := utf8.DecodeRuneInString(s)
			units, s = utf16.AppendRune(units, r), s[size:]
			continue
		}
		if s[1] == 'u' {
			n, _ := strconv.ParseUint(s[2:6], 16, 16)
			units, s = append(units, uint16(n)), s[6:]
			continue
		}
		units, s = append(units, uint16(unescaped.Replace(s[1:2])[0])), s[2:]
	}
	return units
}

// disguise writes a JSON string of these characters, each as the next bits of choice say.
func disguise(units []uint16, choice uint64) []byte {
	out := []byte(`"`)
	for i, u := range units {
		bits := choice >> (2 * (i % 32)) & 3
		printing := u >= ' ' && u != '"' && u != '\\' && !utf16.IsSurrogate(rune(u))
		if bits <= 1 && printing {
			out = utf8.AppendRune(out, rune(u))
			continue
		}
		out = fmt.Appendf(out, []string{"\\u%04x", "\\u%04X"}[bits%2], u)
	}
	return append(out, '"')
}

// gloomValue makes a value's text of any bytes: they are one without outer white space, or become a string.
func gloomValue(data []byte) []byte {
	if data = bytes.Trim(data, gloomSpace); json.Valid(data) && utf8.Valid(data) {
		return data
	}
	return disguise(utf16.Encode([]rune(string(data))), 0)
}

// gloomKey returns what Text tells a value apart by: a quote and the characters of a string, or any other value's text.
func gloomKey(raw []byte) string {
	text, isString := jsontext.Text([]byte("before"), raw)
	if isString {
		return `"` + string(text)
	}
	return string(text)
}

// FuzzGloomKey: two keys are equal exactly when the naive reader takes the values for the same, and a string keeps its
// key when it is written with other escapes.
func FuzzGloomKey(f *testing.F) {
	for i, p := range gloomPayloads(f) {
		f.Add(p, p[:len(p)/2], uint64(i))
	}
	f.Fuzz(func(t *testing.T, a, b []byte, choice uint64) {
		if len(a)+len(b) > gloomText {
			return
		}
		a, b = gloomValue(a), gloomValue(b)
		same := bytes.Equal(a, b)
		if a[0] == '"' && b[0] == '"' {
			same = slices.Equal(gloomUnits(a), gloomUnits(b))
		}
		keyA, keyB := gloomKey(a), gloomKey(b)
		if (keyA == keyB) != same {
			t.Fatalf("%s is %q, %s is %q, the naive one says same: %v", a, keyA, b, keyB, same)
		}
		text, isString := jsontext.Text(nil, a)
		if isString != (a[0] == '"') || !isString && !bytes.Equal(text, a) || isString && keyA != `"`+string(text) {
			t.Fatalf("%s: text %q, %v, key %q", a, text, isString, keyA)
		}
		if !isString {
			return
		}
		units := gloomUnits(a)
		for _, other := range [][]byte{disguise(units, choice), jsontext.AppendText(nil, text)} {
			key := gloomKey(other)
			if !jsontext.Valid(other) || key != keyA || !slices.Equal(gloomUnits(other), units) {
				t.Fatalf("%s is %q, %s is %q", a, keyA, other, key)
			}
		}
	})
}

// FuzzGloomText: text that the server writes is ASCII and is read as what it was; bytes of another protocol come back
// from the value that they became; and a payload that is refused is answered with its own text.
func FuzzGloomText(f *testing.F) {
	for _, p := range gloomPayloads(f) {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > gloomText {
			return
		}
		raw := jsontext.AppendText([]byte("before"), data)[len("before"):]
		if !jsontext.Valid(raw) || slices.ContainsFunc(raw, func(c byte) bool { return c < ' ' || c >= 0x7f }) {
			t.Fatalf("%q is written as %q", data, raw)
		}
		var read string
		if err := json.Unmarshal(raw, &read); utf8.Valid(data) && (err != nil || read != string(data)) {
			t.Fatalf("%q is written as %s, encoding/json reads %q, %v", data, raw, read, err)
		}
		text, isString := jsontext.Text([]byte("before"), raw)
		if again := jsontext.AppendText(nil, text); !isString || utf8.Valid(data) && !bytes.Equal(text, data) || !bytes.Equal(again, raw) {
			t.Fatalf("%q is written as %s, read as %q, written as %s", data, raw, text, again)
		}
		var answer struct{ Error, Reason string }
		out := gloom.AppendInvalid(nil, data)
		err := json.Unmarshal(out[gloom.HeaderLen:], &answer)
		if err != nil || answer.Reason != string([]rune(string(data))) || !bytes.Equal(out, gloomFrame(out[gloom.HeaderLen:])) {
			t.Fatalf("%q is answered %q: %v", data, out, err)
		}
		value, wrapped := jsontext.AppendValue(nil, data)
		isValue := json.Valid(data) && utf8.Valid(data)
		back, _ := jsontext.Text(nil, value)
		if !wrapped && !isValue {
			if want := `{"base64":"` + base64.StdEncoding.EncodeToString(data) + `"}`; string(value) != want {
				t.Fatalf("%q is the value %s, want %s", data, value, want)
			}
			back = data
		}
		if isValue {
			back, data = value, bytes.Trim(data, gloomSpace)
		}
		if !jsontext.Valid(value) || wrapped == (isValue || !utf8.Valid(data)) || !bytes.Equal(back, data) {
			t.Fatalf("%q is the value %s, wrapped %v, and comes back as %q", data, value, wrapped, back)
		}
	})
}
