package fuzz

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"treadle/codec/faktory"
)

// Longer inputs find nothing more.
const (
	faktoryLimit  = 1 << 6 // of a line; small, so that inputs on both sides of it are found
	faktoryStream = 1 << 9
)

// FuzzFaktoryLines reads the stream at once, in two parts and byte by byte: each must see the same lines.
func FuzzFaktoryLines(f *testing.F) {
	f.Add([]byte("HELLO {\"v\":2}\r\nFETCH a b\nEND\r\n"), 7)
	f.Add([]byte(strings.Repeat("x", faktoryLimit)+"\r\n"), faktoryLimit+1)
	f.Add([]byte(strings.Repeat("x", faktoryLimit+1)+"\n"), 3)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		if len(stream) > faktoryStream {
			return
		}
		read := func(pieces ...[]byte) (seen []string) {
			var in []byte
			scanned := 0
			for _, p := range pieces {
				in = append(slices.Clip(in), p...) // a fresh array: a kept view would show
				for {
					line, n, err := faktory.Next(in, scanned, faktoryLimit)
					if err != nil {
						return append(seen, err.Error())
					}
					if scanned = 0; n == 0 {
						scanned = len(in)
						break
					}
					if bytes.IndexByte(line, '\n') >= 0 || len(line) > faktoryLimit || cap(line) != len(line) || n > len(line)+2 || in[n-1] != '\n' {
						t.Fatalf("%q is a line of %d bytes", line, n)
					}
					seen, in = append(seen, string(line)), in[n:]
				}
			}
			return seen
		}
		cut = min(max(cut, 0), len(stream))
		want := read(stream)
		if got := read(stream[:cut], stream[cut:]); !slices.Equal(got, want) {
			t.Fatalf("cut at %d: %q, uncut: %q", cut, got, want)
		}
		if got := read(slices.Collect(slices.Chunk(stream, 1))...); !slices.Equal(got, want) {
			t.Fatalf("byte by byte: %q, uncut: %q", got, want)
		}
	})
}

// FuzzFaktoryJob compares ParseJob and what it stores with encoding/json.
func FuzzFaktoryJob(f *testing.F) {
	for _, in := range []string{
		`{"jid":"job-0001","jobtype":"T","args":[1,"two",{"three":3.0}],"queue":"q","retry":3,"at":"2026-11-21T05:37:55Z","reserve_for":90,"custom":{"unique_for":6,"track":1},"priority":9,"mine":{}}`,
		`{"jid":"job-0001","jobtype":"\u0054\"","args":[],"failure":{"retry_count":3,"failed_at":"x"}}`, `{"jid":"job-0001","JobType":"T","args":[[]],"a\nb":1}`, `{}`,
	} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var j faktory.Job
		err := faktory.ParseJob(text, nil, &j)
		if err != nil {
			return
		}
		var pushed map[string]json.RawMessage
		if err := json.Unmarshal(text, &pushed); err != nil {
			t.Fatalf("%q is accepted, and encoding/json says %v", text, err)
		}
		stored := j.AppendStored(nil, "2026-11-21T05:37:55Z", "2026-11-21T05:37:56Z")
		var kept struct {
			JID   string `json:"jid"`
			Queue string `json:"queue"`
			Type  string `json:"jobtype"`
			Args  []any  `json:"args"`
		}
		if err := json.Unmarshal(stored, &kept); err != nil {
			t.Fatalf("%q is stored as %q: %v", text, stored, err)
		}
		var again faktory.Job
		if err := faktory.ParseJob(stored, nil, &again); err != nil {
			t.Fatalf("%q is stored as %q: %v", text, stored, err)
		}
		if !bytes.Equal(again.JID, j.JID) || !bytes.Equal(again.Queue, j.Queue) || !bytes.Equal(again.Type, j.Type) || again.Priority != j.Priority || again.At != j.At ||
			again.ReserveFor != j.ReserveFor || again.Retry != j.Retry || again.Custom != j.Custom || faktory.StoredCustom(stored) != j.Custom {
			t.Fatalf("%q is stored as %q", text, stored)
		}
		if twice := again.AppendStored(nil, "-", "2026-11-21T05:37:56Z"); !bytes.Equal(twice, stored) {
			t.Fatalf("%q is stored as %q, and that as %q", text, stored, twice)
		}
		if !bytes.Equal(again.AppendIdentity(nil), j.AppendIdentity(nil)) {
			t.Fatalf("%q and %q are not the same job", text, stored)
		}
		fetched := faktory.AppendFetched(nil, stored, []byte(`{"failed_at":"","retry_count":1,"remaining":2}`), "2026-11-21T05:37:57Z")
		if err := faktory.ParseJob(fetched, nil, &again); err != nil || again.Failure == nil {
			t.Fatalf("%q is fetched as %q: %v", stored, fetched, err)
		}
	})
}

// FuzzFaktoryReply reads replies at once and byte by byte, and writes them back.
func FuzzFaktoryReply(f *testing.F) {
	for _, in := range []string{"+OK\r\n", "-ERR x\r\n", ":7\r\n", "$-1\r\n", "$3\r\na\r\n\r\n", "$70\r\n"} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > faktoryStream {
			return
		}
		kind, data, n, err := faktory.NextReply(in, faktoryLimit)
		for i := range in {
			k, d, m, e := faktory.NextReply(in[:i], faktoryLimit)
			if m > 0 && (m != n || k != kind || !bytes.Equal(d, data)) || e == faktory.ErrReply && err != e && err != faktory.ErrTooLong {
				t.Fatalf("%q is %q %q, its first %d bytes are %q %q, %v", in, kind, data, i, k, d, e)
			}
		}
		if err != nil || n == 0 {
			return
		}
		again := faktory.AppendBulk(nil, data)
		switch kind {
		case faktory.Null:
			again = faktory.AppendNull(nil)
		case faktory.Simple, faktory.Error, faktory.Number:
			again = append(append([]byte{byte(kind)}, data...), "\r\n"...)
		}
		if !bytes.Equal(again, in[:n]) {
			t.Fatalf("%q is written as %q", in[:n], again)
		}
	})
}

// FuzzFaktoryMatches compares Matches with a matcher that tries everything.
func FuzzFaktoryMatches(f *testing.F) {
	f.Add("*a[b-d]?\\*", "xac1*")
	f.Add("[^", "a")
	f.Add("*", "")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 12 || len(text) > 12 {
			return
		}
		if got, want := faktory.Matches(pattern, []byte(text)), slowMatch(pattern, text); got != want {
			t.Fatalf("Matches(%q, %q) is %v", pattern, text, got)
		}
	})
}

// slowMatch follows the description of the patterns, one element after the other.
func slowMatch(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] == '*' {
		return slowMatch(pattern[1:], text) || text != "" && slowMatch(pattern, text[1:])
	}
	if text == "" {
		return false
	}
	fits, rest := pattern[0] == text[0], pattern[1:]
	switch {
	case pattern[0] == '?':
		fits = true
	case pattern[0] == '\\' && rest != "":
		fits, rest = rest[0] == text[0], rest[1:]
	case pattern[0] == '[':
		fits, rest = slowClass(rest, text[0])
	}
	return fits && slowMatch(rest, text[1:])
}

func slowClass(class string, c byte) (fits bool, rest string) {
	rest, not := strings.CutPrefix(class, "^")
	for rest != "" && rest[0] != ']' {
		low := rest[0]
		if low == '\\' && len(rest) > 1 {
			fits, rest = fits || rest[1] == c, rest[2:]
			continue
		}
		if len(rest) > 2 && rest[1] == '-' {
			fits, rest = fits || min(low, rest[2]) <= c && c <= max(low, rest[2]), rest[3:]
			continue
		}
		fits, rest = fits || low == c, rest[1:]
	}
	return fits != not, strings.TrimPrefix(rest, "]")
}
