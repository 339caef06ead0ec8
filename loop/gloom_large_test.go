package loop

import (
	"fmt"
	"strings"
	"testing"

	served "treadle/loop/gloom"
)

// TestGloomLargeFrame: a large frame is parsed off the event loop, where it lies. Its peer is answered in order, other
// peers meanwhile. A peer that leaves ends at once.
func TestGloomLargeFrame(t *testing.T) {
	t.Parallel()
	for _, ahead := range []int{0, 1} {
		w := newMemServer(t, Options{})
		var beside []func()
		w.runOffload = func(turn chan struct{}, do func()) {
			turn <- struct{}{}
			beside = append(beside, do)
		}
		parse := func(n int) {
			t.Helper()
			if len(beside) != n {
				t.Fatalf("%d frames are being parsed, want %d", len(beside), n)
			}
			for _, do := range beside {
				do()
			}
			beside = nil
			w.settle()
		}
		large := func(id string) string {
			return `{"action":"submit","id":` + id + `,"type":"t",` + strings.Repeat(`"\u0061":1,`, served.LargeFrame/11) + `"body":1}`
		}
		small := `{"action":"submit","id":8,"type":"t","body":1}`
		master, other, departing := w.openGloom(0, true), w.openGloom(0, true), w.openGloom(0, true)
		var want []string
		var in []byte
		for i := range ahead {
			in = append(in, gloomFrame(`{"action":"submit","id":`+fmt.Sprint(-1-i)+`,"type":"t","body":1}`)...)
			want = append(want, `{"ok":true,"id":`+fmt.Sprint(-1-i)+`}`)
		}
		in = append(append(in, gloomFrame(large("7"))...), gloomFrame(small)...)
		departing.receive(gloomFrame(large("9")))
		master.receive(in)
		w.settle()
		other.say(`{"action":"submit","id":6,"type":"t","body":1}`)
		other.hears("while a large frame is parsed", `{"ok":true,"id":6}`)
		master.hears("what stands ahead of it", want...)
		master.receive(gloomFrame(`{"action":"submit","id":10,"type":"t","body":1}`))
		departing.close()
		parse(2)
		master.hears("it and what follows", `{"ok":true,"id":7}`, `{"ok":true,"id":8}`, `{"ok":true,"id":10}`)
		master.receive(gloomFrame(strings.Repeat("[", served.LargeFrame+1)))
		w.settle()
		parse(1)
		if !master.closed {
			t.Error("what is no JSON does not close the connection")
		}
		id := `"` + strings.Repeat("x", served.MaxName) + `"`
		other.say(`{"action":"submit","id":`+id+`,"type":"t","body":1}`, `{"action":"submit","id":5,"type":`+id+`,"body":1}`)
		parse(1)
		w.runTimers()
		parse(1)
		other.hears("names that are too long", `{"error":"invalid_type","reason":"id"}`, `{"error":"invalid_type","reason":"type"}`)
	}
}
