package gloom

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"treadle/codec/jsontext/jsontest"
)

const testLimit = 1 << 10

// replay feeds stream in pieces that end at cuts, the way a connection does, and returns a line for each frame, for the
// error, and for what is left over. The bytes of every call are a fresh copy, so that a view that outlives its call
// would show.
func replay(stream []byte, cuts []int) (events []string) {
	var in []byte
	var m Message
	fed, need := 0, HeaderLen
	for _, cut := range append(slices.Clone(cuts), len(stream)) {
		in = append(slices.Clone(in), stream[fed:cut]...)
		fed = cut
		for {
			payload, n, err := Next(in, testLimit)
			if (n > 0 || err != nil) && len(in) < need {
				return append(events, fmt.Sprintf("decided with %d bytes, Need said %d", len(in), need))
			}
			if err != nil {
				return append(events, err.Error())
			}
			if n == 0 {
				need = Need(in)
				break
			}
			need = HeaderLen
			if err := Parse(payload, &m); err != nil {
				events = append(events, fmt.Sprintf("%q: %v", payload, err))
			} else {
				events = append(events, fmt.Sprintf("%q: %d %s", payload, Action(&m), describe(&m)))
			}
			in = in[n:]
		}
	}
	return append(events, fmt.Sprintf("rest %x", in))
}

func drawStream(t *rapid.T) (stream []byte, frames int) {
	frames = rapid.IntRange(1, 6).Draw(t, "frames")
	for range frames {
		value := func() []byte { return jsontest.String(t) }
		switch rapid.IntRange(0, 6).Draw(t, "frame") {
		case 0:
			stream = AppendJoin(stream, value())
		case 1, 2:
			stream = AppendSubmit(stream, value(), value(), rapid.Int64().Draw(t, "priority"), value())
		case 3:
			stream = AppendRespond(stream, value())
		case 4:
			stream = AppendOK(stream)
		case 5:
			stream = append(stream, frame(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload"))...)
		case 6:
			stream = append(stream, frame(jsontest.Damaged(t))...)
		}
	}
	return stream, frames
}

func TestSplitEquivalence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream, frames := drawStream(t)
		switch rapid.IntRange(0, 2).Draw(t, "damage") {
		case 1:
			stream[rapid.IntRange(0, len(stream)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		case 2:
			stream = stream[:rapid.IntRange(0, len(stream)).Draw(t, "length")]
		default:
			if got := replay(stream, nil); got[len(got)-1] != "rest " || len(got) != frames+1 {
				t.Fatalf("%d whole frames are decoded to %q", frames, got)
			}
		}
		whole := replay(stream, nil)
		every := make([]int, len(stream))
		for cut := range stream {
			every[cut] = cut
			if got := replay(stream, []int{cut}); !reflect.DeepEqual(got, whole) {
				t.Fatalf("cut at %d: %q, uncut: %q", cut, got, whole)
			}
		}
		if got := replay(stream, every); !reflect.DeepEqual(got, whole) {
			t.Fatalf("byte by byte: %q, uncut: %q", got, whole)
		}
	})
}

func TestMessageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id, typ, body := jsontest.String(t), jsontest.String(t), bytes.TrimSpace(jsontest.Value(t, 3))
		priority := rapid.Int64().Draw(t, "priority")
		in := AppendRespond(AppendSubmit(AppendJoin(nil, typ), id, typ, priority, body), body)
		for _, want := range []Message{{Action: []byte(`"join"`), Type: typ}, {Action: []byte(`"submit"`), ID: id, Type: typ, Body: body},
			{Action: []byte(`"respond"`), Body: body}} {
			var m Message
			payload, n, err := Next(in, 1<<20)
			if err != nil || Parse(payload, &m) != nil {
				t.Fatalf("%q: %v", in, err)
			}
			if Action(&want) == Submit && priority != 0 {
				want.Priority = strconv.AppendInt(nil, priority, 10)
			}
			if !sameMessage(&m, &want) {
				t.Fatalf("%s: %s, want %s", payload, describe(&m), describe(&want))
			}
			in = in[n:]
		}
		if len(in) > 0 {
			t.Fatalf("%q is left", in)
		}
	})
}
