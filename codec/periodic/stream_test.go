package periodic

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const testLimit = 1 << 16

// unhex turns a test's hex text, spaces allowed, into bytes.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(text), []byte(" "), nil)))
	if err != nil {
		t.Fatalf("bad hex in the test: %v", err)
	}
	return b
}

// appendRequest appends a whole request, of any command.
func appendRequest(dst []byte, fr Framing, msgID uint32, cmd Command, args []byte) []byte {
	start := len(dst)
	dst = append(AppendMessage(BeginRequest(dst, fr), msgID, cmd), args...)
	End(dst, start, fr)
	return dst
}

// replay feeds stream in pieces that end at cuts, the way a connection does, and returns a line for each frame, for the
// error, and for what is left over. The bytes of every call are a fresh copy, so that a view that outlives its call
// would show.
func replay(stream []byte, fr Framing, cuts []int) (events []string) {
	var in []byte
	var f Frame
	skip, sum, fed := 0, uint32(0), 0
	for _, cut := range append(slices.Clone(cuts), len(stream)) {
		in = append(slices.Clone(in), stream[fed:cut]...)
		fed = cut
		for len(in) > 0 {
			if skip > 0 {
				taken := min(skip, len(in))
				sum = crc32.Update(sum, crc32.IEEETable, in[:taken])
				events = append(events, fmt.Sprintf("%x", in[:taken]))
				in, skip = in[taken:], skip-taken
				if skip == 0 {
					events = append(events, fmt.Sprintf("load ends, sum good %v", fr == Plain || sum == f.Sum))
				}
				continue
			}
			n, err := Next(in, fr, testLimit, &f)
			if err != nil {
				return append(events, err.Error())
			}
			if n == 0 {
				break
			}
			events = append(events, fmt.Sprintf("%08x %v %x +%d", f.MsgID, f.Cmd, f.Args, f.More))
			in, skip, sum = in[n:], f.More, f.PartialSum
		}
	}
	return append(events, fmt.Sprintf("rest %x", in))
}

// joinLoads puts the pieces of each LOAD's arguments together: where they are cut is no difference.
func joinLoads(events []string) (joined []string) {
	for _, e := range events {
		if last := len(joined) - 1; last >= 0 && isHex(e) && isHex(joined[last]) {
			joined[last] += e
			continue
		}
		joined = append(joined, e)
	}
	return joined
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil
}

func drawStream(t *rapid.T, fr Framing) (stream []byte, frames int) {
	frames = rapid.IntRange(1, 6).Draw(t, "frames")
	for range frames {
		cmd := Command(rapid.SampledFrom([]byte{0, 1, 3, 13, 19, 25, 34, 99}).Draw(t, "command"))
		args := rapid.SliceOfN(rapid.Byte(), 0, 80).Draw(t, "args")
		stream = appendRequest(stream, fr, rapid.Uint32().Draw(t, "msgid"), cmd, args)
	}
	return stream, frames
}

func TestSplitEquivalence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fr := Framing(rapid.IntRange(0, 1).Draw(t, "framing"))
		stream, frames := drawStream(t, fr)
		switch rapid.IntRange(0, 2).Draw(t, "damage") {
		case 1:
			stream[rapid.IntRange(0, len(stream)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		case 2:
			stream = stream[:rapid.IntRange(0, len(stream)).Draw(t, "length")]
		default:
			if got := replay(stream, fr, nil); got[len(got)-1] != "rest " || len(got) < frames+1 {
				t.Fatalf("%d whole frames are decoded to %q", frames, got)
			}
		}
		whole := joinLoads(replay(stream, fr, nil))
		for cut := range stream {
			if got := joinLoads(replay(stream, fr, []int{cut})); !reflect.DeepEqual(got, whole) {
				t.Fatalf("cut at %d: %q, uncut: %q", cut, got, whole)
			}
		}
		every := make([]int, len(stream))
		for i := range every {
			every[i] = i
		}
		if got := joinLoads(replay(stream, fr, every)); !reflect.DeepEqual(got, whole) {
			t.Fatalf("byte by byte: %q, uncut: %q", got, whole)
		}
	})
}

func TestRequestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fr := Framing(rapid.IntRange(0, 1).Draw(t, "framing"))
		msgID := rapid.Uint32().Draw(t, "msgid")
		cmd := Command(rapid.Byte().Filter(func(b byte) bool { return b != byte(Load) }).Draw(t, "command"))
		args := rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "args")
		packet := appendRequest([]byte("before"), fr, msgID, cmd, args)[len("before"):]
		f := Frame{More: 7, Sum: 8, PartialSum: 9} // as an earlier LOAD would leave it
		n, err := Next(append(packet, "behind"...), fr, testLimit, &f)
		if err != nil || n != len(packet) {
			t.Fatalf("Next: %d, %v, want %d", n, err, len(packet))
		}
		if f.MsgID != msgID || f.Cmd != cmd || !bytes.Equal(f.Args, args) || f.More != 0 || f.Sum != 0 || f.PartialSum != 0 {
			t.Fatalf("wrote %08x %v %x, read %+v", msgID, cmd, args, f)
		}
		if cap(f.Args) != len(f.Args) {
			t.Fatalf("an append to Args would write into the next frame: cap %d, len %d", cap(f.Args), len(f.Args))
		}
	})
}

func TestResponseRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fr := Framing(rapid.IntRange(0, 1).Draw(t, "framing"))
		msgID := rapid.Uint32().Draw(t, "msgid")
		body := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "body")
		packet := appendResponse(nil, fr, msgID, body)
		for cut := range packet {
			var r Response
			if n, err := NextResponse(packet[:cut:cut], fr, testLimit, &r); n != 0 || err != nil {
				t.Fatalf("cut at %d: %d, %v", cut, n, err)
			}
		}
		var r Response
		n, err := NextResponse(append(packet, "behind"...), fr, testLimit, &r)
		if err != nil || n != len(packet) || r.MsgID != msgID || !bytes.Equal(r.Body, body) || cap(r.Body) != len(r.Body) {
			t.Fatalf("wrote %08x %x, read %d, %v, %+v", msgID, body, n, err, r)
		}
	})
}
