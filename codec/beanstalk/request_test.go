package beanstalk

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// events decodes a stream that comes in the given parts, and returns the requests as text. It checks what Next and Need
// promise of unfinished requests.
func events(t testing.TB, maxJob int, parts ...[]byte) (all []string) {
	t.Helper()
	d := Decoder{MaxJob: maxJob}
	var in []byte
	var r Request
	need := 0
	for _, part := range parts {
		in = append(slices.Clone(in), part...) // a fresh array: a kept view would show
		for {
			n, ok := d.Next(slices.Clip(in), &r)
			if (n > 0 || ok) && len(in) < need {
				t.Fatalf("%q: decided with %d bytes, Need said %d", in, len(in), need)
			}
			in, need = in[n:], 0
			if ok {
				all = append(all, r.text())
				continue
			}
			if n == 0 || len(in) == 0 {
				break
			}
		}
		if need = d.Need(in); need <= len(in) {
			t.Fatalf("%q: undecided, and Need says %d", in, need)
		}
	}
	return all
}

// text shows a request as its command and its fields.
func (r *Request) text() string {
	if r.Fault != "" {
		return fmt.Sprintf("%s counted=%v", strings.TrimSpace(r.Fault), r.Counted)
	}
	name := strings.TrimSpace(prefixes[r.Command])
	switch r.Command {
	case Put:
		return fmt.Sprintf("%s %d %d %d %q", name, r.Priority, r.Delay, r.TTR, r.Body)
	case Release:
		return fmt.Sprintf("%s %d %d %d", name, r.ID, r.Priority, r.Delay)
	case Bury:
		return fmt.Sprintf("%s %d %d", name, r.ID, r.Priority)
	case Peek, ReserveJob, Delete, KickJob, Touch, StatsJob:
		return fmt.Sprintf("%s %d", name, r.ID)
	case ReserveWithTimeout:
		return fmt.Sprintf("%s %d", name, r.Timeout)
	case Kick:
		return fmt.Sprintf("%s %d", name, r.Bound)
	case Use, Watch, Ignore, StatsTube:
		return fmt.Sprintf("%s %s", name, r.Tube)
	case PauseTube:
		return fmt.Sprintf("%s %s %d", name, r.Tube, r.Delay)
	}
	return name
}

// TestRequests checks what each line is read as. What is odd here is so in beanstalkd 1.12.
func TestRequests(t *testing.T) {
	f := func(in string, want ...string) {
		t.Helper()
		if got := events(t, 10, []byte(in)); !slices.Equal(got, want) {
			t.Errorf("%q is read as %q, want %q", in, got, want)
		}
	}
	const bad, counted, unknown = "BAD_FORMAT counted=false", "BAD_FORMAT counted=true", "UNKNOWN_COMMAND counted=false"
	f("put 1 2 3 4\r\nab\r\n\r\n", `put 1 2 3 "ab\r\n"`)
	f("put  1  0  4294967295 00\r\n\r\n", `put 1 0 4294967295 ""`)
	f("put 0 0 0 1\r\nxyz\r\n", "EXPECTED_CRLF counted=true", unknown)
	f("put 0 0 0 11\r\n"+strings.Repeat("x", 13)+"stats\r\n", "JOB_TOO_BIG counted=true", "stats")
	f("put 0 0 0 11 x\r\n"+strings.Repeat("x", 13)+"stats\r\n", "JOB_TOO_BIG counted=true", "stats")
	f("put 0 0 0 1 x\r\nstats\r\n", counted, "stats")
	f("put 0 0 0 1 \r\n", counted)
	for _, rest := range []string{"", "0", "0 0 0", "-1 0 0 1", "4294967296 0 0 1", "0 0 0 4294967296", "+0 0 0 1", "0x1 0 0 1", "1e1 0 0 1", "0\t0 0 1"} {
		f("put "+rest+"\r\n", bad)
	}
	f("put\r\nputx\r\n", unknown, unknown)
	f("reserve\r\nreserve \r\nreservex\r\n", "reserve", bad, bad)
	for rest, want := range map[string]string{
		"0": "0", "00": "0", " 7": "7", "": "0", "x": "0", "5x": "5", "1 2": "1", "-1": "-1", "-5": "-5", "2147483648": "-2147483648", "4294967296": "0", "\t\v+3": "3",
		"9223372036854775807": "-1", "-9223372036854775808": "0",
	} {
		f("reserve-with-timeout "+rest+"\r\n", "reserve-with-timeout "+want)
	}
	f("reserve-with-timeout 9223372036854775808\r\nreserve-with-timeout -9223372036854775809\r\nreserve-with-timeout\r\n", bad, bad, bad)
	for rest, want := range map[string]string{"1": "1", "1x": "1", "-1": "4294967295", " 1 2": "1", "4294967296": "0", "18446744073709551615": "4294967295"} {
		f("kick "+rest+"\r\n", "kick "+want)
	}
	f("kick x\r\nkick \r\nkick\r\nkick 18446744073709551616\r\nkick -\r\n", bad, bad, unknown, bad, bad)
	for _, c := range []string{"peek", "reserve-job", "delete", "kick-job", "touch", "stats-job"} {
		f(c+" 18446744073709551615\r\n", c+" 18446744073709551615")
		f(c+"  7\r\n", c+" 7")
		f(c+" 18446744073709551616\r\n"+c+" -1\r\n"+c+" 1 2\r\n"+c+" 1 \r\n"+c+" \r\n"+c+" x\r\n", bad, bad, bad, bad, bad, bad)
	}
	f("release 1 2 3\r\nrelease 1 2\r\nrelease 1\r\nrelease 1 2 3 4\r\nrelease 1 2 3x\r\n", "release 1 2 3", bad, bad, bad, bad)
	f("bury 1 2\r\nbury 1\r\nbury 1 \r\nbury 1 2 3\r\n", "bury 1 2", bad, bad, bad)
	long := strings.Repeat("a", MaxTube)
	for _, c := range []string{"use", "watch", "ignore", "stats-tube"} {
		f(c+" a_b;$()/.+-\r\n"+c+" "+long+"\r\n", c+" a_b;$()/.+-", c+" "+long)
		f(c+" \r\n"+c+"  a\r\n"+c+" a \r\n"+c+" -a\r\n"+c+" a!\r\n"+c+" "+long+"a\r\n", bad, bad, bad, bad, bad, bad)
	}
	f("pause-tube t 3\r\npause-tube  t  3\r\npause-tubet 3\r\npause-tube t 4294967295\r\n", "pause-tube t 3", "pause-tube t 3", "pause-tube t 3", "pause-tube t 4294967295")
	f("pause-tube t\r\npause-tube t \r\npause-tube t 3x\r\npause-tube t!3 3\r\npause-tube t 4294967296\r\npause-tube t -1\r\npause-tube\r\n", bad, bad, bad, bad, bad, bad, bad)
	f("pause-tube -x 1\r\npause-tube "+long+"a 1\r\n", counted, counted)
	for _, c := range []string{"peek-ready", "peek-delayed", "peek-buried", "stats", "list-tubes", "list-tube-used", "list-tubes-watched"} {
		f(c+"\r\n"+c+" \r\n"+c+"x\r\n", c, bad, bad)
	}
	f("quit\r\nquit now\r\nquitx\r\n", "quit", "quit", "quit")
	f("\r\nfoo\r\nSTATS\r\n stats\r\npeek\r\nuse\r\nstat\r\nfoo\rbar\r\n\nstats\r\n", unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown)
	f("stats\x00\r\nuse a\x00\r\nfoo\x00\r\n", bad, bad, bad)
	f("stats\n\r\n", bad)
}

// TestLongLines checks that a line has at most MaxLine bytes, that a longer one is passed over, and that the bytes of a
// job that is too large are not kept.
func TestLongLines(t *testing.T) {
	f := func(length int, want ...string) {
		t.Helper()
		in := strings.Repeat("x", length-2) + "\r\nstats\r\n"
		for cut := range len(in) {
			if got := events(t, 10, []byte(in[:cut]), []byte(in[cut:])); !slices.Equal(got, want) {
				t.Fatalf("a line of %d bytes, cut at %d, is read as %q, want %q", length, cut, got, want)
			}
		}
	}
	f(MaxLine, "UNKNOWN_COMMAND counted=false", "stats")
	f(MaxLine+1, "BAD_FORMAT counted=false", "stats")
	f(MaxLine+2, "BAD_FORMAT counted=false", "stats")
	f(maxLongLine, "BAD_FORMAT counted=false", "stats")
	d := Decoder{MaxJob: 10}
	var r Request
	in := fmt.Sprintf("put 0 0 0 %d\r\n", maxSkipped) + strings.Repeat("x", 70_000)
	if n, ok := d.Next([]byte(in), &r); n != len(in) || ok || !d.Skipping() {
		t.Errorf("of %d bytes that are passed over %d are done with, %v", len(in), n, ok)
	}
}

// TestFatal checks that a line that does not end, and a job that no server could take, are the last request.
func TestFatal(t *testing.T) {
	f := func(in, fault string) {
		t.Helper()
		d := Decoder{MaxJob: 10}
		var r Request
		if n, ok := d.Next([]byte(in), &r); n != len(in) || !ok || r.Fault != fault || !r.Fatal {
			t.Errorf("%.30q: %d, %v, %+v", in, n, ok, r)
		}
	}
	f(strings.Repeat("x", maxLongLine), BadFormat)
	f(strings.Repeat("x", maxLongLine-1)+"\r\n", BadFormat)
	f(fmt.Sprintf("put 0 0 0 %d\r\n", maxSkipped+1), JobTooBig)
	f("put 0 0 0 4294967295\r\nabc", JobTooBig)
	d := Decoder{MaxJob: 10}
	var r Request
	if n, ok := d.Next([]byte(strings.Repeat("x", maxLongLine-1)), &r); n != 0 || ok {
		t.Errorf("a line that may end is done with: %d, %v", n, ok)
	}
}

// requestStream is a stream with requests of many kinds, good and bad.
var requestStream = []byte("put 1 2 3 4\r\nab\r\n\r\nreserve\r\nput 0 0 0 1\r\nxyz\r\nput 0 0 0 11\r\n012345678\r\n\r\n" +
	"reserve-with-timeout -1\r\n" + strings.Repeat("y", 300) + "\r\r\nuse t\r\nfoo\rbar\r\nput 9 9 9 0\r\n\r\nkick 5\r\nquit\r\n")

// TestSplits checks that a stream that is cut anywhere is read as the whole.
func TestSplits(t *testing.T) {
	want := events(t, 10, requestStream)
	if len(want) != 12 {
		t.Fatalf("the stream has %d requests: %q", len(want), want)
	}
	for cut := range requestStream {
		if got := events(t, 10, requestStream[:cut], requestStream[cut:]); !slices.Equal(got, want) {
			t.Fatalf("cut at %d: %q, want %q", cut, got, want)
		}
	}
	var single [][]byte
	for i := range requestStream {
		single = append(single, requestStream[i:i+1])
	}
	if got := events(t, 10, single...); !slices.Equal(got, want) {
		t.Fatalf("byte by byte: %q, want %q", got, want)
	}
}

// TestBodyIsView checks that a body is a view that no append can overrun.
func TestBodyIsView(t *testing.T) {
	in := []byte("put 0 0 0 2\r\nab\r\nstats\r\n")
	d := Decoder{MaxJob: 10}
	var r Request
	if n, ok := d.Next(in, &r); n != 17 || !ok || &r.Body[0] != &in[13] || cap(r.Body) != 2 {
		t.Errorf("%d, %v, a body of capacity %d", n, ok, cap(r.Body))
	}
}

// TestReplies checks the bytes of the replies.
func TestReplies(t *testing.T) {
	f := func(got []byte, want string) {
		t.Helper()
		if string(got) != "-"+want {
			t.Errorf("got %q, want %q behind a hyphen", got, want)
		}
	}
	f(AppendJob([]byte("-"), Reserved, 1<<64-1, []byte("a\r\n")), "RESERVED 18446744073709551615 3\r\na\r\n\r\n")
	f(AppendJob([]byte("-"), Found, 0, nil), "FOUND 0 0\r\n\r\n")
	f(AppendCount([]byte("-"), Inserted, 7), "INSERTED 7\r\n")
	f(AppendCount([]byte("-"), KickedOf, 0), "KICKED 0\r\n")
	f(AppendCount([]byte("-"), Watching, 2), "WATCHING 2\r\n")
	f(AppendUsing([]byte("-"), "t"), "USING t\r\n")
	f(AppendData([]byte("-"), []byte("---\n- t\n")), "OK 8\r\n---\n- t\n\r\n")
}

// TestNoAllocations checks that nothing is allocated to read and to answer.
func TestNoAllocations(t *testing.T) {
	out, unfinished := make([]byte, 0, 1<<10), []byte("put 0 0 0 5\r\n")
	var r Request
	d := Decoder{MaxJob: 10}
	if n := testing.AllocsPerRun(100, func() {
		for in := requestStream; len(in) > 0; {
			n, _ := d.Next(in, &r)
			in = in[n:]
		}
		_ = d.Need(unfinished)
		out = AppendJob(out[:0], Reserved, 99, r.Body)
		out = AppendData(AppendUsing(AppendCount(out, Inserted, 1<<40), "t"), out[:5])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkNext reads a put, a reserve and a delete: what one job costs in reading.
func BenchmarkNext(b *testing.B) {
	in := []byte("put 1024 0 60 100\r\n" + strings.Repeat("x", 100) + "\r\nreserve\r\ndelete 123456\r\n")
	d := Decoder{MaxJob: DefaultMaxJob}
	var r Request
	b.ReportAllocs()
	for b.Loop() {
		for at := 0; at < len(in); {
			n, _ := d.Next(in[at:], &r)
			at += n
		}
	}
}

// BenchmarkAppendJob answers a reserve.
func BenchmarkAppendJob(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 100)
	out := make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		if len(out) > 60<<10 {
			out = out[:0]
		}
		out = AppendJob(out, Reserved, 123456, body)
	}
}
