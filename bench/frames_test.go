package main

import (
	"errors"
	"testing"
)

// TestEchoing gives a connection its own requests back, cut at every byte: as many are in flight as before, and the jobs
// go round.
func TestEchoing(t *testing.T) {
	const most = 7
	whole := newEchoing(&echoed{}, 2*most).open(0, nil)
	for cut := range len(newEchoing(&echoed{}, most).open(0, nil)) + 1 {
		frames := &echoed{wanted: most}
		e := newEchoing(frames, most)
		sent := e.open(0, nil)
		back := len(sent)
		for _, part := range [][]byte{sent[:cut], sent[cut:]} {
			n, more, err := e.turn(0, part, nil)
			if n != len(part) || err != nil {
				t.Fatalf("cut at %d: n = %d, err = %v", cut, n, err)
			}
			whole, ends := 0, len(e.frame(0))
			for ; ends <= cut; ends += len(e.frame(whole)) {
				whole++
			}
			if len(part) == cut && frames.got != whole {
				t.Fatalf("cut at %d: %d frames counted, want %d", cut, frames.got, whole)
			}
			sent = append(sent[:len(sent):len(sent)], more...)
		}
		if string(sent) != string(whole) || !frames.reached() || frames.got != most {
			t.Fatalf("cut at %d: %d frames counted, %d bytes sent, %d of them in the beginning", cut, frames.got, len(sent), back)
		}
	}
	e := newEchoing(&echoed{}, most)
	if _, _, err := e.turn(0, append(e.open(0, nil), whole...), nil); !errors.Is(err, errMalformed) {
		t.Errorf("more than was sent: got %v", err)
	}
}

// TestFrameEcho times frames over the echo itself.
func TestFrameEcho(t *testing.T) {
	c, err := frameEchoContender()
	if err != nil {
		t.Fatal(err)
	}
	r := row{name: "frames echoed", section: aloneSection, variants: []string{frameEcho}, load: load{connections: 2, depth: 8}}
	s, err := measure(t.Context(), r, c, 9000)
	if err != nil || s.Jobs != 3000 || s.JobsPerSecond == 0 || s.ServerCPU == 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}
