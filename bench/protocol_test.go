package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The id and the time of the jobs in these tests, and how they look in a workload.
const (
	someID   = 0x0102030405
	someTime = 0x1122
)

var someText = `{"id":"000102030405","sent":"0000000000001122","text":"` + strings.Repeat("x", 43) + `"}`

var someWorkload = "\x00\x00\x00\x01\x02\x03\x04\x05" + "\x00\x00\x00\x00\x00\x00\x11\x22" + strings.Repeat("x", 83) + "."

// TestRequests compares what each protocol sends with the bytes of its document.
func TestRequests(t *testing.T) {
	reserved := &event{handle: []byte("17")}
	assignedGearman := &event{handle: []byte("H:x:1\x00")}
	assignedPeriodic := &event{handle: []byte("\x03abc")}
	f := func(name string, got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, want)
		}
	}
	p := newPeriodic()
	f("SUBMIT_JOB", p.appendSubmit(nil, 7, someID, someTime),
		"\x00REQ\x00\x00\x00\x8d"+"\x00\x00\x00\x07\x0d"+"\x05bench"+"\x10job-000102030405"+"\x00\x00\x00\x64"+someWorkload+
			"\x00\x00\x00\x00\x00\x00\x00\x00"+"\x00")
	f("GRAB_JOB", p.appendGrab(nil, 0x01020304), "\x00REQ\x00\x00\x00\x05\x01\x02\x03\x04\x01")
	f("WORK_DONE", p.appendDone(nil, assignedPeriodic), "\x00REQ\x00\x00\x00\x09\x00\x00\x00\x00\x03\x03abc")
	f("SUBMIT_JOB with JSON", newPeriodicText().appendSubmit(nil, 7, someID, someTime),
		"\x00REQ\x00\x00\x00\x8d"+"\x00\x00\x00\x07\x0d"+"\x05bench"+"\x10job-000102030405"+"\x00\x00\x00\x64"+someText+
			"\x00\x00\x00\x00\x00\x00\x00\x00"+"\x00")

	o := newGloom()
	f("submit", o.appendSubmit(nil, 7, someID, someTime),
		"\x00\x00\x00\xa6"+`{"action":"submit","id":"job-000102030405","type":"bench","body":`+someText+"}")
	f("join", o.appendGrab(nil, 7), "\x00\x00\x00\x20"+`{"action":"join","type":"bench"}`)
	f("respond", o.appendDone(nil, &event{handle: []byte("000102030405")}),
		"\x00\x00\x00\x2e"+`{"action":"respond","body":"job-000102030405"}`)

	b := newBeanstalkd()
	f("put", b.appendSubmit(nil, 7, someID, someTime), "put 0 0 3600 100\r\n"+someWorkload+"\r\n")
	f("reserve", b.appendGrab(nil, 7), "reserve\r\n")
	f("delete", b.appendDone(nil, reserved), "delete 17\r\n")

	g := newGearman()
	f("SUBMIT_JOB_BG", g.appendSubmit(nil, 7, someID, someTime),
		"\x00REQ\x00\x00\x00\x12\x00\x00\x00\x7b"+"bench\x00"+"job-000102030405\x00"+someWorkload)
	f("GRAB_JOB_UNIQ", g.appendGrab(nil, 7), "\x00REQ\x00\x00\x00\x1e\x00\x00\x00\x00")
	f("PRE_SLEEP", g.appendSleep(nil), "\x00REQ\x00\x00\x00\x04\x00\x00\x00\x00")
	f("WORK_COMPLETE", g.appendDone(nil, assignedGearman), "\x00REQ\x00\x00\x00\x0d\x00\x00\x00\x06H:x:1\x00")

	r := newRedis()
	f("RPUSH", r.appendSubmit(nil, 7, someID, someTime),
		"*3\r\n$5\r\nRPUSH\r\n$5\r\nbench\r\n$100\r\n"+someWorkload+"\r\n")
	f("BLPOP", r.appendGrab(nil, 7), "*3\r\n$5\r\nBLPOP\r\n$5\r\nbench\r\n$1\r\n0\r\n")
	f("nothing to complete", r.appendDone(nil, reserved), "")
}

// replies are the streams that the parsers must take apart, with what they mean.
var replies = []struct {
	name     string
	protocol protocol
	stream   string
	want     []event
}{
	{"periodic", newPeriodic(),
		"\x00RES\x00\x00\x00\x05\x00\x00\x00\x07\x10" +
			"\x00RES\x00\x00\x00\x91\x00\x00\x00\x09\x05" + "\x03abc" + "\x05bench" + "\x10job-000102030405" +
			"\x00\x00\x00\x64" + someWorkload + "\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
			"\x00RES\x00\x00\x00\x05\x00\x00\x00\x01\x0a",
		[]event{
			{kind: submitted, slot: 7},
			{kind: assigned, slot: 9, handle: []byte("\x03abc"), workload: []byte(someWorkload)},
			{kind: ignored, slot: 1},
		}},
	{"gloom", newGloom(),
		"\x00\x00\x00\x0b" + `{"ok":true}` + "\x00\x00\x00\x23" + `{"ok":true,"id":"job-000102030405"}` +
			"\x00\x00\x00\xa3" + `{"action":"job","id":"job-000102030405","type":"bench","body":` + someText + "}" +
			"\x00\x00\x00\x33" + `{"id":"job-000102030405","body":"job-000102030405"}`,
		[]event{
			{kind: finished},
			{kind: submitted, id: someID},
			{kind: assigned, id: someID, handle: []byte("000102030405"), workload: []byte(someText)},
			{kind: answered, id: someID},
		}},
	{"periodic crc", newPeriodicCRC(), // the SUCCESS of CAN_DO is that of a capture
		"\x00RES\x00\x00\x00\x05\xc2\x8e\xd6\x38\x00\x00\x00\x01\x10" +
			crcFrame("\x80\x00\x00\x09\x10") +
			crcFrame("\x00\x00\x00\x09\x05"+"\x05bench"+"\x10job-000102030405"+"\x00\x00\x00\x64"+someWorkload+
				"\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x02\x58"),
		[]event{
			{kind: submitted, slot: 1},
			{kind: finished, slot: 9},
			{kind: assigned, slot: 9, handle: []byte("\x05bench\x10job-000102030405"), workload: []byte(someWorkload)},
		}},
	{"beanstalkd", newBeanstalkd(),
		"INSERTED 12\r\nRESERVED 12 100\r\n" + someWorkload + "\r\nDELETED\r\n",
		[]event{
			{kind: submitted},
			{kind: assigned, handle: []byte("12"), workload: []byte(someWorkload)},
			{kind: finished},
		}},
	{"gearman", newGearman(),
		"\x00RES\x00\x00\x00\x08\x00\x00\x00\x05H:x:1" +
			"\x00RES\x00\x00\x00\x1f\x00\x00\x00\x81" + "H:x:1\x00bench\x00job-000102030405\x00" + someWorkload +
			"\x00RES\x00\x00\x00\x0a\x00\x00\x00\x00" + "\x00RES\x00\x00\x00\x06\x00\x00\x00\x00",
		[]event{
			{kind: submitted},
			{kind: assigned, handle: []byte("H:x:1\x00"), workload: []byte(someWorkload)},
			{kind: empty},
			{kind: woken},
		}},
	{"redis", newRedis(),
		":3\r\n*2\r\n$5\r\nbench\r\n$100\r\n" + someWorkload + "\r\n:4\r\n",
		[]event{{kind: submitted}, {kind: assigned, workload: []byte(someWorkload)}, {kind: submitted}}},
}

// TestReplies takes each stream apart whole, and cut at every byte: the events must be the same, and no parser may
// take a part for a whole.
func TestReplies(t *testing.T) {
	for _, c := range replies {
		t.Run(c.name, func(t *testing.T) {
			for cut := range len(c.stream) + 1 {
				got, rest := decode(t, c.protocol, nil, []byte(c.stream[:cut]))
				got, rest = decode(t, c.protocol, got, append(rest, c.stream[cut:]...))
				if len(rest) > 0 || !slices.EqualFunc(got, c.want, sameEvent) {
					t.Fatalf("cut at %d: got %+v and %d bytes left, want %+v", cut, got, len(rest), c.want)
				}
			}
		})
	}
}

// decode appends copies of the events of in to got, and returns the bytes that are left.
func decode(t *testing.T, p protocol, got []event, in []byte) ([]event, []byte) {
	t.Helper()
	for {
		var e event
		n, err := p.next(in, &e)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if n == 0 {
			return got, bytes.Clone(in)
		}
		e.handle, e.workload = bytes.Clone(e.handle), bytes.Clone(e.workload)
		got, in = append(got, e), in[n:]
	}
}

func sameEvent(a, b event) bool {
	return a.kind == b.kind && a.slot == b.slot && a.id == b.id && bytes.Equal(a.handle, b.handle) && bytes.Equal(a.workload, b.workload)
}

// TestMalformed gives each parser bytes that its protocol does not allow here.
func TestMalformed(t *testing.T) {
	f := func(p protocol, in string) {
		t.Helper()
		if n, err := p.next([]byte(in), &event{}); !errors.Is(err, errMalformed) {
			t.Errorf("%q: n = %d, err = %v, want errMalformed", in, n, err)
		}
	}
	f(newPeriodic(), "\x00REQ\x00\x00\x00\x05\x00\x00\x00\x07\x10")                             // the wrong magic
	f(newPeriodic(), "\x00RES\x00\x00\x00\x05\x00\x00\x00\x07\x0c")                             // UNKNOWN
	f(newPeriodic(), "\x00RES\xff\xff\xff\xff")                                                 // 4 GiB
	f(newPeriodic(), "\x00RES\x00\x00\x00\x07\x00\x00\x00\x07\x05\x09a")                        // a handle that is cut
	f(newPeriodic(), "\x00RES\x00\x00\x00\x0c\x00\x00\x00\x07\x05\x00\x00\x00\x00\x00\x00\x09") // a workload that is cut
	f(newBeanstalkd(), "OUT_OF_MEMORY\r\n")
	f(newBeanstalkd(), "RESERVED 12 many\r\n")
	f(newBeanstalkd(), strings.Repeat("x", 300))
	f(newGearman(), "\x00RES\x00\x00\x00\x13\x00\x00\x00\x00")       // ERROR
	f(newGearman(), "\x00RES\x00\x00\x00\x1f\x00\x00\x00\x03a\x00b") // an assignment without its separators
	f(newGearman(), "HTTP/1.1 400")
	f(newRedis(), "-ERR no\r\n")
	f(newRedis(), "*-1\r\n")
	malformedGloom(f)
	f(newPeriodicCRC(), "\x00RES\x00\x00\x00\x05\xc2\x8e\xd6\x39\x00\x00\x00\x01\x10") // a wrong checksum
	f(newPeriodicCRC(), "\x00RES\x00\x00\x00\x05\x8e\x09\xc8\x07\x00\x00\x00\x03\x1d") // NO_WORKER
	damaged := crcFrame("\x00\x00\x00\x09\x05\x05bench\x04job1\x00\x00\x00\x02xx\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	f(newPeriodicCRC(), strings.Replace(damaged, "xx", "xy", 1))   // an assignment with a wrong checksum
	f(newPeriodicCRC(), "\x00RES\xff\xff\xff\xff\x00\x00\x00\x00") // 4 GiB
}

// TestTemplatesStay sees to it that filling in a template does not change it.
func TestTemplatesStay(t *testing.T) {
	for _, p := range []protocol{
		newPeriodic(), newPeriodicText(), newPeriodicCRC(), newGloom(), newBeanstalkd(), newGearman(), newRedis(),
	} {
		before := hex.EncodeToString(p.appendSubmit(nil, 1, 2, 3))
		p.appendSubmit(nil, 4, 5, 6)
		if after := hex.EncodeToString(p.appendSubmit(nil, 1, 2, 3)); after != before {
			t.Errorf("%T: the same submit gives other bytes the second time", p)
		}
	}
}

// TestWorkload checks the round trip, and that a damaged workload is not accepted.
func TestWorkload(t *testing.T) {
	workload := appendWorkload(nil, someID, someTime)
	if string(workload) != someWorkload {
		t.Fatalf("got %q, want %q", workload, someWorkload)
	}
	if id, sent, ok := parseWorkload(workload); id != someID || sent != someTime || !ok {
		t.Errorf("got id %d, time %d, %v", id, sent, ok)
	}
	for _, damaged := range [][]byte{workload[1:], append([]byte{0}, workload[:99]...), nil} {
		if _, _, ok := parseWorkload(damaged); ok {
			t.Errorf("%q was accepted", damaged)
		}
	}
}

// TestSizedWorkload does the same for other sizes. The shortest has no room for the time.
func TestSizedWorkload(t *testing.T) {
	for _, size := range []int{10, 16, 17, 1 << 10} {
		workload := workloadOf(size)
		putSizedWorkload(workload, someID, someTime)
		want := int64(someTime)
		if size < timedLen {
			want = 0
		}
		if id, sent, ok := parseSizedWorkload(workload, size); id != someID || sent != want || !ok {
			t.Errorf("%d bytes: got id %d, time %d, %v", size, id, sent, ok)
		}
		if _, _, ok := parseSizedWorkload(workload[:size-1], size); ok {
			t.Errorf("%d bytes: a short workload was accepted", size)
		}
	}
	for _, p := range []protocol{newPeriodicOf(10), newRedisOf(1 << 10)} {
		var e event
		stream := map[string]string{
			"*main.periodic": "\x00RES\x00\x00\x00\x27\x00\x00\x00\x09\x05\x03abc\x05bench\x00\x00\x00\x00\x0a\x00\x00\x00\x01\x02\x03\x04\x05x.\x00\x00\x00\x00\x00\x00\x00\x00\x00",
			"*main.redis":    "*2\r\n$5\r\nbench\r\n$1024\r\n" + strings.Repeat("x", 1024) + "\r\n",
		}[fmt.Sprintf("%T", p)]
		if n, err := p.next([]byte(stream), &e); n != len(stream) || err != nil || len(e.workload) != p.traits().size {
			t.Errorf("%T: n = %d of %d, %v, %d bytes", p, n, len(stream), err, len(e.workload))
		}
	}
}

// TestNoAllocations keeps the hot paths of the load generator free of garbage.
func TestNoAllocations(t *testing.T) {
	out := make([]byte, 0, 4096)
	for _, c := range replies {
		stream := []byte(c.stream)
		var e event
		allocations := testing.AllocsPerRun(100, func() {
			out = c.protocol.appendSubmit(out[:0], 1, someID, someTime)
			out = c.protocol.appendGrab(out, 1)
			for in := stream; len(in) > 0; {
				n, err := c.protocol.next(in, &e)
				if n == 0 {
					t.Fatalf("%q: %v", in, err)
				}
				out = c.protocol.appendDone(out, &e)
				in = in[n:]
			}
		})
		if allocations != 0 {
			t.Errorf("%s: %v allocations", c.name, allocations)
		}
	}
}
