package periodic

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// appendResponse appends a whole response with the bytes that follow its message id.
func appendResponse(dst []byte, fr Framing, msgID uint32, body []byte) []byte {
	start := len(dst)
	dst = append(binary.BigEndian.AppendUint32(BeginResponse(dst, fr), msgID), body...)
	End(dst, start, fr)
	return dst
}

func TestAppendReply(t *testing.T) {
	f := func(fr Framing, msgID uint32, cmd Command, want string) {
		t.Helper()
		got := AppendReply([]byte{7}, fr, msgID, cmd)
		if !bytes.Equal(got, append([]byte{7}, unhex(t, want)...)) {
			t.Fatalf("%x, want 07 and %s", got, want)
		}
		if long := appendResponse([]byte{7}, fr, msgID, []byte{byte(cmd)}); !bytes.Equal(got, long) {
			t.Fatalf("%x, begun and ended: %x", got, long)
		}
	}
	f(Plain, 1, Pong, "00524553 00000005 00000001 0a")
	f(Plain, 0x61626364, Success, "00524553 00000005 61626364 10")
	f(CRC, 1, Pong, "00524553 00000005 3fec2f42 00000001 0a")
	f(CRC, 3, NoWorker, "00524553 00000005 8e09c807 00000003 1d")
}

func TestFramesAreEndedWhereTheyBegan(t *testing.T) {
	for _, fr := range []Framing{Plain, CRC} {
		var out []byte
		for i := range 5 {
			out = AppendReply(out, fr, uint32(i), Success)
			out = appendResponse(out, fr, uint32(i), bytes.Repeat([]byte("x"), i*40))
		}
		var r Response
		for i := range 10 {
			n, err := NextResponse(out, fr, testLimit, &r)
			if n == 0 || err != nil || r.MsgID != uint32(i/2) {
				t.Fatalf("response %d: %d, %v, %+v", i, n, err, r)
			}
			out = out[n:]
		}
		if len(out) > 0 {
			t.Fatalf("%x is left", out)
		}
	}
}

func TestAppendResponseHeader(t *testing.T) {
	payload := []byte("\x00\x00\x00\x26\x00\x00\x00\x00\x00\x00\x00\x00")
	for _, fr := range []Framing{Plain, CRC} {
		got := append(AppendResponseHeader(nil, fr, len(payload), crc32.ChecksumIEEE(payload)), payload...)
		if want := appendResponse(nil, fr, 0x26, payload[4:]); !bytes.Equal(got, want) {
			t.Fatalf("%x, want %x", got, want)
		}
		mustPanic(t, func() { AppendResponseHeader(nil, fr, MaxPayload+1, 0) })
	}
}

func TestCommandNames(t *testing.T) {
	f := func(cmd Command, want string) {
		t.Helper()
		if got := cmd.String(); got != want {
			t.Fatalf("%d: %s, want %s", byte(cmd), got, want)
		}
	}
	f(0, "NOOP")
	f(1, "GRAB_JOB")
	f(12, "UNKNOWN")
	f(13, "SUBMIT_JOB")
	f(19, "LOAD")
	f(25, "RUN_JOB")
	f(29, "NO_WORKER")
	f(34, "JOB_UNASSIGNED")
	f(35, "COMMAND_35")
	f(99, "COMMAND_99")
	f(255, "COMMAND_255")
	for cmd := range Command(len(commandNames)) {
		if cmd.String() == "" {
			t.Errorf("command %d has no name", byte(cmd))
		}
	}
}
