package load

import (
	"errors"
	"testing"
)

// TestEchoing gives a connection its own requests back, cut at every byte: as many are in flight as before, and the jobs
// go round.
func TestEchoing(t *testing.T) {
	const most = 7
	whole := newEchoing(letters{}, &echoed{}, 2*most).open(0, nil)
	for cut := range len(newEchoing(letters{}, &echoed{}, most).open(0, nil)) + 1 {
		frames := &echoed{wanted: most}
		e := newEchoing(letters{}, frames, most)
		sent := e.open(0, nil)
		back := len(sent)
		for _, part := range [][]byte{sent[:cut], sent[cut:]} {
			n, more, err := e.turn(0, part, nil)
			if n != len(part) || err != nil {
				t.Fatalf("cut at %d: n = %d, err = %v", cut, n, err)
			}
			whole, ends := 0, len(e.job[0])
			for ; ends <= cut; ends += len(e.job[whole%FramesAJob]) {
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
	e := newEchoing(letters{}, &echoed{}, most)
	if _, _, err := e.turn(0, append(e.open(0, nil), whole...), nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("more than was sent: got %v", err)
	}
}
