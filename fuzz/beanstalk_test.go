package fuzz

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"treadle/codec/beanstalk"
)

const (
	beanstalkLimit  = 1 << 5 // small, so that jobs on both sides of it are found
	beanstalkStream = 6 << 10
)

// beanstalkReader decodes a stream as a connection does.
type beanstalkReader struct {
	t      *testing.T
	d      beanstalk.Decoder
	in     []byte // received and not taken yet
	need   int    // Next cannot return anything before in has as many bytes
	ended  bool   // by a request that is the last one
	events []string
}

// receive gives the reader more bytes and takes all requests that they end.
func (r *beanstalkReader) receive(more []byte) {
	r.in = append(slices.Clone(r.in), more...) // a fresh array: a kept view would show
	for !r.ended {
		var q beanstalk.Request
		n, ok := r.d.Next(slices.Clip(r.in), &q)
		if n > len(r.in) || (n > 0 || ok) && len(r.in) < r.need {
			r.t.Fatalf("%q: %d bytes are done with of %d, Need said %d", r.in, n, len(r.in), r.need)
		}
		r.in, r.need = r.in[n:], 0
		switch {
		case ok:
			r.events = append(r.events, beanstalkEvent(r.t, &q))
			r.ended = q.Fatal
		case n == 0 || len(r.in) == 0:
			if r.need = r.d.Need(r.in); r.need <= len(r.in) || len(r.in) > 4<<10+beanstalkLimit {
				r.t.Fatalf("undecided with %d bytes, Need says %d", len(r.in), r.need)
			}
			return
		}
	}
}

// beanstalkEvent shows a request, and checks that it is read from its canonical line as from its own.
func beanstalkEvent(t *testing.T, q *beanstalk.Request) string {
	if q.Fault != "" {
		return fmt.Sprintf("%d %q %v %v", q.Command, q.Fault, q.Counted, q.Fatal)
	}
	show := func(q *beanstalk.Request) string {
		return fmt.Sprintf("%d id %d pri %d delay %d ttr %d timeout %d bound %d tube %q body %q", q.Command, q.ID, q.Priority, q.Delay, q.TTR, q.Timeout, q.Bound, q.Tube, q.Body)
	}
	text := show(q)
	var line string
	switch q.Command {
	case beanstalk.Put:
		line = fmt.Sprintf("put %d %d %d %d\r\n%s", q.Priority, q.Delay, q.TTR, len(q.Body), q.Body)
	case beanstalk.Release:
		line = fmt.Sprintf("release %d %d %d", q.ID, q.Priority, q.Delay)
	case beanstalk.Bury:
		line = fmt.Sprintf("bury %d %d", q.ID, q.Priority)
	case beanstalk.ReserveWithTimeout:
		line = "reserve-with-timeout " + strconv.Itoa(int(q.Timeout))
	case beanstalk.PauseTube:
		line = fmt.Sprintf("pause-tube %s %d", q.Tube, q.Delay)
	default:
		return text
	}
	var again beanstalk.Request
	d := beanstalk.Decoder{MaxJob: beanstalkLimit}
	if n, ok := d.Next([]byte(line+"\r\n"), &again); n != len(line)+2 || !ok || again.Fault != "" || show(&again) != text {
		t.Fatalf("%q is read as %s, %q; it was %s", line, show(&again), again.Fault, text)
	}
	return text
}

// end returns all that the reader saw.
func (r *beanstalkReader) end() string {
	if !r.ended {
		r.events = append(r.events, fmt.Sprintf("rest %q, skipping %v", r.in, r.d.Skipping()))
	}
	return strings.Join(r.events, "\n")
}

// beanstalkSeeds returns what the clients of the captured scenes send.
func beanstalkSeeds(f *testing.F) (all []string) {
	f.Helper()
	text, err := os.ReadFile("../loop/testdata/beanstalk/captured.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, in, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " > "); ok && !strings.Contains(in, "<fill") {
			sent, err := strconv.Unquote(`"` + strings.ReplaceAll(in, `"`, `\"`) + `"`)
			if err != nil {
				f.Fatal(err)
			}
			all = append(all, sent)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// FuzzBeanstalkRequests reads the stream at once, in two parts and byte by byte: each must see the same.
func FuzzBeanstalkRequests(f *testing.F) {
	for i, in := range beanstalkSeeds(f) {
		f.Add([]byte(in), i%len(in))
	}
	f.Add([]byte("put 0 0 0 33\r\n"+strings.Repeat("x", 33)+"\r\nstats\r\n"), 20)
	f.Add([]byte(strings.Repeat("x", 300)+"\r\nput 0 0 0 4294967295\r\n"), 299)
	f.Add([]byte(strings.Repeat("x", 5<<10)), 4<<10)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		if len(stream) > beanstalkStream {
			return
		}
		read := func(pieces ...[]byte) string {
			r := beanstalkReader{t: t, d: beanstalk.Decoder{MaxJob: beanstalkLimit}}
			for _, p := range pieces {
				r.receive(p)
			}
			return r.end()
		}
		cut = min(max(cut, 0), len(stream))
		want := read(stream)
		if got := read(stream[:cut], stream[cut:]); got != want {
			t.Fatalf("cut at %d:\n%s\nuncut:\n%s", cut, got, want)
		}
		var single [][]byte
		for i := range stream {
			single = append(single, stream[i:i+1])
		}
		if got := read(single...); got != want {
			t.Fatalf("byte by byte:\n%s\nat once:\n%s", got, want)
		}
	})
}
