package gloom

import (
	"bytes"
	"encoding/json"
	"testing"
)

// sinkInt keeps the compiler from dropping a benchmarked call.
var sinkInt int

// benchmarkSubmit is a submit of 300 bytes as json.dumps of the Python client writes it, spaces and all.
var benchmarkSubmit = []byte(`{"action": "submit", "id": "5f0c7a52-9a0e-4f0a-9d4b-0d8f5f1f7c3e", "type": "thumbnail", ` +
	`"priority": 5, "body": {"source": "/srv/images/2009/05/may/4711.jpeg", "sizes": [64, 128, 256, 512], ` +
	`"crop": null, "quality": 0.85, "sharp": true, "note": "Caf\u00e9 \"Sud\"", "owner": {"id": 171953733, "n": 1}}}`)

// benchmarkCompact is the same message without spaces.
var benchmarkCompact = compact(benchmarkSubmit)

func compact(payload []byte) []byte {
	var out bytes.Buffer
	if err := json.Compact(&out, payload); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func benchmarkParse(b *testing.B, payload []byte) {
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	var m Message
	for b.Loop() {
		if err := Parse(payload, &m); err != nil {
			b.Fatal(err)
		}
		sinkInt += len(m.Body)
	}
}

func BenchmarkParseSubmit(b *testing.B) { benchmarkParse(b, benchmarkSubmit) }

func BenchmarkParseSubmitCompact(b *testing.B) { benchmarkParse(b, benchmarkCompact) }

func BenchmarkParseRespondShort(b *testing.B) {
	benchmarkParse(b, []byte(`{"action":"respond","body":{"z":1,"a":2}}`))
}

func BenchmarkParseLongText(b *testing.B) {
	benchmarkParse(b, []byte(`{"action":"respond","body":"`+string(bytes.Repeat([]byte("plain text "), 6000))+`"}`))
}

func BenchmarkParseNonASCII(b *testing.B) {
	benchmarkParse(b, []byte(`{"action":"respond","body":"`+string(bytes.Repeat([]byte("漢字とかな"), 4000))+`"}`))
}

func BenchmarkParseEscapes(b *testing.B) {
	benchmarkParse(b, []byte(`{"action":"respond","body":"`+string(bytes.Repeat([]byte(`\u6f22\n`), 8000))+`"}`))
}

func BenchmarkParseNested(b *testing.B) {
	benchmarkParse(b, []byte(`{"body":`+string(bytes.Repeat([]byte("["), 5000))+string(bytes.Repeat([]byte("]"), 5000))+`}`))
}

// BenchmarkEncodingJSONValid: the two that Parse replaces: the check alone, and the check with the fields.
func BenchmarkEncodingJSONValid(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(benchmarkSubmit)))
	for b.Loop() {
		if !json.Valid(benchmarkSubmit) {
			b.Fatal("not valid")
		}
	}
}

func BenchmarkEncodingJSONUnmarshal(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(benchmarkSubmit)))
	for b.Loop() {
		var m struct{ Action, ID, Type, Priority, Body json.RawMessage }
		if err := json.Unmarshal(benchmarkSubmit, &m); err != nil {
			b.Fatal(err)
		}
		sinkInt += len(m.Body)
	}
}

func BenchmarkAppendJob(b *testing.B) {
	var m Message
	if err := Parse(benchmarkSubmit, &m); err != nil {
		b.Fatal(err)
	}
	out := make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		if len(out) > 60<<10 {
			out = out[:0]
		}
		out = AppendJob(out, m.ID, m.Type, m.Body)
	}
}

func BenchmarkAppendInvalid(b *testing.B) {
	out := make([]byte, 0, 4<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(benchmarkSubmit)))
	for b.Loop() {
		out = AppendInvalid(out[:0], benchmarkSubmit)
	}
}
