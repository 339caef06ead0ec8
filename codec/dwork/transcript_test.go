package dwork

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"treadle/codec/dwork/dworkpb"
)

// text returns the message that is written in protobuf's text format as protobuf's own code encodes it.
func text(t testing.TB, s string) []byte {
	t.Helper()
	var m dworkpb.QueryMsg
	if err := prototext.Unmarshal([]byte(s), &m); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTranscripts decodes every message that was exchanged with the reference hub and encodes it again: the same bytes
// must come out. What the hub answered with Error is refused here, but for Lookup.
func TestTranscripts(t *testing.T) {
	file, err := os.ReadFile("testdata/transcript.txt")
	if err != nil {
		t.Fatal(err)
	}
	var (
		q     Query
		asked error
		kind  Type
		seen  int
	)
	for line := range strings.Lines(string(file)) {
		side, message, _ := strings.Cut(line, " ")
		if side == "#" {
			continue
		}
		in := text(t, message)
		if side == ">" {
			asked = Decode(in, &q)
			kind = q.Type
		} else if err := DecodeReply(in, &q); err != nil {
			t.Errorf("%s%v", line, err)
		} else if refused := q.Type == Error && kind != Lookup; refused != (asked != nil) {
			t.Errorf("%s the request before it: %v", line, asked)
		}
		seen++
		if asked != nil {
			continue
		}
		if out := rewrite(nil, &q); !bytes.Equal(out, in) {
			t.Errorf("%s%x is written as %x", line, in, out)
		}
	}
	if seen != 62 {
		t.Errorf("%d messages, want 62", seen)
	}
}
