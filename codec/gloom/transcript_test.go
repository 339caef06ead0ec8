package gloom

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"treadle/codec/jsontext"
	"treadle/codec/jsontext/jsontest"
)

// TestTranscripts decodes every frame that was captured between the reference server and its clients, and writes it
// again: the same bytes must come out. A payload that the reference answered with invalid_json gets the same answer.
func TestTranscripts(t *testing.T) {
	text, err := os.ReadFile("testdata/transcript.txt")
	if err != nil {
		t.Fatal(err)
	}
	title, seen := "", 0
	var refused []byte // the payload above, when it was invalid
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if comment, ok := strings.CutPrefix(line, "# "); ok {
			title = comment
			continue
		}
		kind, payload := transcriptLine(t, line)
		in := frame(payload)
		if kind == "toolarge" {
			in = payload
		}
		out, why := rewrite(kind, in)
		if why != "" || out != nil && !bytes.Equal(out, in) {
			t.Errorf("%s: %s: %s, written as %q", title, line, why, out)
		}
		if answer := AppendInvalid(nil, refused); refused != nil && kind == "error" && !bytes.Equal(answer, in) {
			t.Errorf("%s: %q is answered %q, captured %s", title, refused, answer, line)
		}
		refused = nil
		if kind == "invalid" {
			refused = payload
		}
		seen++
	}
	if seen != 509 {
		t.Errorf("%d frames, want 509", seen)
	}
}

// transcriptLine reads a line of the file as its first lines describe it.
func transcriptLine(t *testing.T, line string) (kind string, payload []byte) {
	t.Helper()
	kind, text, _ := strings.Cut(line, " ")
	if digits, ok := strings.CutPrefix(text, "hex:"); ok {
		payload, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		return kind, payload
	}
	if before, rest, ok := strings.Cut(text, "[x"); ok {
		depth, after, _ := strings.Cut(rest, "]")
		n, err := strconv.Atoi(depth)
		if err != nil {
			t.Fatal(err)
		}
		text = before + jsontest.Nested(n) + after
	}
	return kind, []byte(text)
}

// frame puts a header in front of payload.
func frame(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// rewrite decodes one frame of a transcript and encodes what was decoded. It returns nil for a frame that is rightly
// refused or has no encoder, and says why it cannot.
func rewrite(kind string, in []byte) (out []byte, why string) {
	payload, n, err := Next(in, serverLimit)
	if kind == "toolarge" {
		if n != 0 || !errors.Is(err, ErrTooLarge) {
			return nil, "not refused"
		}
		return nil, ""
	}
	if n != len(in) || err != nil {
		return nil, "not a frame"
	}
	switch kind {
	case "ok", "submitted", "job", "response", "error":
		return rewriteReply(kind, payload)
	}
	return rewriteMessage(kind, payload)
}

func rewriteMessage(kind string, payload []byte) (out []byte, why string) {
	var m Message
	switch err := Parse(payload, &m); {
	case kind == "invalid" && errors.Is(err, ErrInvalidJSON), kind == "nonobject" && errors.Is(err, ErrNotObject):
		return nil, ""
	case err != nil:
		return nil, err.Error()
	}
	kind, otherForm := strings.CutSuffix(kind, "~")
	want := map[string]ActionKind{"join": Join, "submit": Submit, "respond": Respond, "other": OtherAction, "noaction": NoAction}
	if action, ok := want[kind]; !ok || Action(&m) != action {
		return nil, "the action " + string(m.Action)
	}
	switch {
	case otherForm:
		return nil, ""
	case kind == "join":
		return AppendJoin(nil, m.Type), ""
	case kind == "submit":
		priority, ok := jsontext.Integer(m.Priority)
		if ok != (m.Priority != nil) {
			return nil, "the priority " + string(m.Priority)
		}
		return AppendSubmit(nil, m.ID, m.Type, priority, m.Body), ""
	case kind == "respond":
		return AppendRespond(nil, m.Body), ""
	}
	return nil, ""
}

func rewriteReply(kind string, payload []byte) (out []byte, why string) {
	var r Reply
	if err := ParseReply(payload, &r); err != nil {
		return nil, err.Error()
	}
	if r.OK != (kind == "ok" || kind == "submitted") {
		return nil, "ok is wrong"
	}
	switch kind {
	case "ok":
		return AppendOK(nil), ""
	case "submitted":
		return AppendSubmitted(nil, r.ID), ""
	case "job":
		if string(r.Action) != `"job"` {
			return nil, "the action " + string(r.Action)
		}
		return AppendJob(nil, r.ID, r.Type, r.Body), ""
	case "response":
		return AppendResponse(nil, r.ID, r.Body), ""
	}
	reason, isString := jsontext.Text(nil, r.Reason)
	if !isString {
		return nil, "the reason " + string(r.Reason)
	}
	switch string(r.Error) {
	case `"invalid_json"`:
		return AppendInvalid(nil, reason), ""
	case `"size_error"`:
		return AppendTooLarge(nil), ""
	}
	name, _ := jsontext.Text(nil, r.Error)
	return AppendError(nil, string(name), jsontext.AppendText(nil, reason)), ""
}
