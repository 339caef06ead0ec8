package loop

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"treadle/codec/periodic"
)

// TestMessagesOfAllSizes: requests from some bytes to a megabyte follow each other without a pause, so that
// the loop reads on into a large message's window and past its end. A worker answers each job with its
// workload, which comes back unchanged.
func TestMessagesOfAllSizes(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"unix", "tcp"} {
		rng := rand.New(rand.NewPCG(1, 2))
		noise := make([]byte, 1<<20)
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		var sent [][]byte
		for _, size := range []int{0, 100, readBuffer, 3 * readBuffer, turnBytes, len(noise)} {
			for range 30 {
				n := size/2 + rng.IntN(size/2+1)
				from := rng.IntN(len(noise) - n + 1)
				sent = append(sent, noise[from:from+n])
			}
		}
		rng.Shuffle(len(sent), func(i, k int) { sent[i], sent[k] = sent[k], sent[i] })
		r := startServer(t, Options{Loops: 1})
		r.crew(1, 1, []string{"f"}, func(j *periodic.Job, handle []byte) [][]byte {
			return done(handle, j.Workload...)
		})
		client := r.dial(network)
		client.send(hello)
		client.next()
		var all []byte
		for i, b := range sent {
			all = append(all, request(uint32(i), periodic.RunJob, job("f", fmt.Sprint(i), b...))...)
		}
		writing := make(chan error, 1)
		go func() { writing <- client.trySend(all) }()
		for range sent {
			got := client.next()
			if int(got.MsgID) >= len(sent) {
				t.Fatalf("%s: an answer to request %d", network, got.MsgID)
			}
			if want := sent[got.MsgID]; !bytes.Equal(got.Body, want) {
				t.Fatalf("%s: job %d of %d bytes came back as another, of %d", network, got.MsgID, len(want), len(got.Body))
			}
		}
		if err := <-writing; err != nil {
			t.Error(err)
		}
		r.stop()
	}
}

// TestPartsOfATurn: a turn reads from one connection up to turnTime, or what is left of allConnsTime. Each turn
// has that time anew.
func TestPartsOfATurn(t *testing.T) {
	t.Parallel()
	r := newTurns(t, periodic.Plain, 0, 0).r
	for turn := range 2 {
		begun := time.UnixMilli(int64(turn))
		for _, at := range []time.Duration{0, allConnsTime / 2, allConnsTime - turnTime/2, allConnsTime, 2 * allConnsTime} {
			want := begun.Add(min(at+turnTime, allConnsTime))
			if got := r.turn.readUntil(begun.Add(at)); !got.Equal(want) {
				t.Errorf("turn %d: a part that begins after %v ends after %v, not %v", turn, at, got.Sub(begun), want.Sub(begun))
			}
		}
		r.finishTurn()
	}
}
