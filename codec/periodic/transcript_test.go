package periodic

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestTranscripts decodes every packet that was captured between the reference servers and their clients, and writes it
// again: the same bytes must come out.
func TestTranscripts(t *testing.T) {
	f := func(file string, fr Framing, packets int) {
		t.Helper()
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		title, seen := "", 0
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if comment, ok := strings.CutPrefix(line, "# "); ok {
				title = comment
				continue
			}
			kind, packet, _ := strings.Cut(line, " ")
			if got, why := rewrite(kind, unhex(t, packet), fr); got != nil && !bytes.Equal(got, unhex(t, packet)) || why != "" {
				t.Errorf("%s, %s: %s %s: written as %x: %s", file, title, kind, packet, got, why)
			}
			seen++
		}
		if seen != packets {
			t.Errorf("%s: %d packets, want %d", file, seen, packets)
		}
	}
	f("plain.txt", Plain, 182)
	f("crc.txt", CRC, 43)
}

// rewrite decodes one packet of a transcript and encodes what was decoded. It returns nil for a packet that is rightly
// refused, and says why it cannot.
func rewrite(kind string, packet []byte, fr Framing) (out []byte, why string) {
	var h Hello
	var f Frame
	switch kind {
	case "hello":
		if n, err := NextHello(packet, &h); n != len(packet) || err != nil || h.Framing != fr {
			return nil, "not decoded"
		}
		return AppendHello(nil, &h), ""
	case "nohello":
		if n, err := NextHello(packet, &h); n != 0 || err == nil {
			return nil, "not refused"
		}
		return nil, ""
	case "noreq":
		if n, err := Next(packet, fr, testLimit, &f); n != 0 || err == nil {
			return nil, "not refused"
		}
		return nil, ""
	case "req":
		n, err := Next(packet, fr, testLimit, &f)
		if n+f.More != len(packet) || err != nil {
			return nil, "not decoded"
		}
		return rewriteRequest(&f, packet[n:], fr)
	case "welcome", "res":
		return rewriteResponse(kind, packet, fr)
	}
	return nil, "no such kind"
}

func rewriteRequest(f *Frame, stream []byte, fr Framing) (out []byte, why string) {
	args := append(f.Args[:len(f.Args):len(f.Args)], stream...)
	switch {
	case f.Cmd == SubmitJob && args[0] == 5: // the truncated one
		if _, err := ParseJob(args, new(Job)); err == nil {
			return nil, "a truncated job is decoded"
		}
	case f.Cmd == SubmitJob || f.Cmd == RunJob:
		var j Job
		n, err := ParseJob(args, &j)
		if err != nil {
			return nil, err.Error()
		}
		args = append(AppendJob(nil, &j), args[n:]...)
	case f.Cmd == Load:
		args, why = rewriteDump(args)
	case f.Cmd == CanDo || f.Cmd == CantDo || f.Cmd == DropFunc || f.Cmd == Broadcast || f.Cmd == ConfigGet:
		s, rest, ok := Str8(args)
		if !ok || len(rest) > 0 {
			return nil, "not one str8"
		}
		args = AppendStr8(nil, s)
	}
	return appendRequest(nil, fr, f.MsgID, f.Cmd, args), why
}

func rewriteResponse(kind string, packet []byte, fr Framing) (out []byte, why string) {
	var r Response
	if n, err := NextResponse(packet, fr, testLimit, &r); n != len(packet) || err != nil {
		return nil, "not decoded"
	}
	switch {
	case kind == "res" && len(r.Body) == 1:
		return AppendReply(nil, fr, r.MsgID, Command(r.Body[0])), ""
	case kind == "res":
		return appendResponse(nil, fr, r.MsgID, r.Body), ""
	case fr == Plain:
		return AppendHelloReply(nil, fr, r.MsgID), ""
	}
	return AppendHelloReplyData(nil, r.MsgID<<8|uint32(r.Body[0])), ""
}

// rewriteDump decodes the arguments of a LOAD: a count and as many records.
func rewriteDump(args []byte) (out []byte, why string) {
	count, rest, _ := Int64(args)
	out = args[:8:8]
	for range count {
		var j Job
		n, err := ParseJob(rest, &j)
		if err != nil {
			return nil, err.Error()
		}
		out = AppendJob(out, &j)
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return nil, "bytes behind the last record"
	}
	return out, ""
}
