package peer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"treadle/bench/load"
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
	reserved := &load.Event{Handle: []byte("17")}
	assignedGearman := &load.Event{Handle: []byte("H:x:1\x00")}
	assignedPeriodic := &load.Event{Handle: []byte("\x03abc")}
	f := func(name string, got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, want)
		}
	}
	p := newPeriodic(PeriodicOptions{})
	f("SUBMIT_JOB", p.AppendSubmit(nil, 7, someID, someTime),
		"\x00REQ\x00\x00\x00\x8d"+"\x00\x00\x00\x07\x0d"+"\x05bench"+"\x10job-000102030405"+"\x00\x00\x00\x64"+someWorkload+
			"\x00\x00\x00\x00\x00\x00\x00\x00"+"\x00")
	f("GRAB_JOB", p.AppendGrab(nil, 0x01020304), "\x00REQ\x00\x00\x00\x05\x01\x02\x03\x04\x01")
	f("WORK_DONE", p.AppendDone(nil, assignedPeriodic), "\x00REQ\x00\x00\x00\x09\x00\x00\x00\x00\x03\x03abc")
	f("SUBMIT_JOB with JSON", newPeriodic(PeriodicOptions{Text: true}).AppendSubmit(nil, 7, someID, someTime),
		"\x00REQ\x00\x00\x00\x8d"+"\x00\x00\x00\x07\x0d"+"\x05bench"+"\x10job-000102030405"+"\x00\x00\x00\x64"+someText+
			"\x00\x00\x00\x00\x00\x00\x00\x00"+"\x00")

	o := NewGloom()
	f("submit", o.AppendSubmit(nil, 7, someID, someTime),
		"\x00\x00\x00\xa6"+`{"action":"submit","id":"job-000102030405","type":"bench","body":`+someText+"}")
	f("join", o.AppendGrab(nil, 7), "\x00\x00\x00\x20"+`{"action":"join","type":"bench"}`)
	f("respond", o.AppendDone(nil, &load.Event{Handle: []byte("000102030405")}),
		"\x00\x00\x00\x2e"+`{"action":"respond","body":"job-000102030405"}`)

	b := newBeanstalkd()
	f("put", b.AppendSubmit(nil, 7, someID, someTime), "put 0 0 3600 100\r\n"+someWorkload+"\r\n")
	f("reserve", b.AppendGrab(nil, 7), "reserve\r\n")
	f("delete", b.AppendDone(nil, reserved), "delete 17\r\n")

	k := newFaktory()
	f("PUSH", k.AppendSubmit(nil, 7, someID, someTime),
		`PUSH {"jid":"job-000102030405","queue":"bench","jobtype":"bench","created_at":"2026-01-01T00:00:00Z","args":[`+someText+"],\"retry\":25}\r\n")
	f("FETCH", k.AppendGrab(nil, 7), "FETCH bench\r\n")
	f("ACK", k.AppendDone(nil, &load.Event{Handle: []byte("000102030405")}), `ACK {"jid":"job-000102030405"}`+"\r\n")

	g := newGearman()
	f("SUBMIT_JOB_BG", g.AppendSubmit(nil, 7, someID, someTime),
		"\x00REQ\x00\x00\x00\x12\x00\x00\x00\x7b"+"bench\x00"+"job-000102030405\x00"+someWorkload)
	f("GRAB_JOB_UNIQ", g.AppendGrab(nil, 7), "\x00REQ\x00\x00\x00\x1e\x00\x00\x00\x00")
	f("PRE_SLEEP", g.Traits().Sleep, "\x00REQ\x00\x00\x00\x04\x00\x00\x00\x00")
	f("WORK_COMPLETE", g.AppendDone(nil, assignedGearman), "\x00REQ\x00\x00\x00\x0d\x00\x00\x00\x06H:x:1\x00")

	r := NewRedis(load.WorkloadLen)
	f("RPUSH", r.AppendSubmit(nil, 7, someID, someTime),
		"*3\r\n$5\r\nRPUSH\r\n$5\r\nbench\r\n$100\r\n"+someWorkload+"\r\n")
	f("BLPOP", r.AppendGrab(nil, 7), "*3\r\n$5\r\nBLPOP\r\n$5\r\nbench\r\n$1\r\n0\r\n")
	f("nothing to complete", r.AppendDone(nil, reserved), "")
}

// replies are the streams that the parsers must take apart, with what they mean.
var replies = []struct {
	name     string
	protocol load.Protocol
	stream   string
	want     []load.Event
}{
	{"periodic", newPeriodic(PeriodicOptions{}),
		"\x00RES\x00\x00\x00\x05\x00\x00\x00\x07\x10" +
			"\x00RES\x00\x00\x00\x91\x00\x00\x00\x09\x05" + "\x03abc" + "\x05bench" + "\x10job-000102030405" +
			"\x00\x00\x00\x64" + someWorkload + "\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
			"\x00RES\x00\x00\x00\x05\x00\x00\x00\x01\x0a",
		[]load.Event{
			{Kind: load.Submitted, Slot: 7},
			{Kind: load.Assigned, Slot: 9, Handle: []byte("\x03abc"), Workload: []byte(someWorkload)},
			{Kind: load.Ignored, Slot: 1},
		}},
	{"gloom", NewGloom(),
		"\x00\x00\x00\x0b" + `{"ok":true}` + "\x00\x00\x00\x23" + `{"ok":true,"id":"job-000102030405"}` +
			"\x00\x00\x00\xa3" + `{"action":"job","id":"job-000102030405","type":"bench","body":` + someText + "}" +
			"\x00\x00\x00\x33" + `{"id":"job-000102030405","body":"job-000102030405"}`,
		[]load.Event{
			{Kind: load.Finished},
			{Kind: load.Submitted, ID: someID},
			{Kind: load.Assigned, ID: someID, Handle: []byte("000102030405"), Workload: []byte(someText)},
			{Kind: load.Answered, ID: someID},
		}},
	{"periodic crc", newPeriodic(PeriodicOptions{CRC: true}), // the SUCCESS of CAN_DO is that of a capture
		"\x00RES\x00\x00\x00\x05\xc2\x8e\xd6\x38\x00\x00\x00\x01\x10" +
			crcFrame("\x80\x00\x00\x09\x10") +
			crcFrame("\x00\x00\x00\x09\x05"+"\x05bench"+"\x10job-000102030405"+"\x00\x00\x00\x64"+someWorkload+
				"\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x02\x58"),
		[]load.Event{
			{Kind: load.Submitted, Slot: 1},
			{Kind: load.Finished, Slot: 9},
			{Kind: load.Assigned, Slot: 9, Handle: []byte("\x05bench\x10job-000102030405"), Workload: []byte(someWorkload)},
		}},
	{"beanstalkd", newBeanstalkd(),
		"INSERTED 12\r\nRESERVED 12 100\r\n" + someWorkload + "\r\nDELETED\r\n",
		[]load.Event{
			{Kind: load.Submitted},
			{Kind: load.Assigned, Handle: []byte("12"), Workload: []byte(someWorkload)},
			{Kind: load.Finished},
		}},
	{"faktory", newFaktory(), // Treadle's order of members, and Faktory's
		"+OK\r\n$-1\r\n$181\r\n" + `{"retry":25,"jid":"job-000102030405","queue":"bench","jobtype":"bench","args":[` + someText + "]}\r\n" +
			"$181\r\n" + `{"jid":"job-000102030405","queue":"bench","jobtype":"bench","args":[` + someText + `],"retry":25}` + "\r\n",
		[]load.Event{
			{Kind: load.Finished},
			{Kind: load.Empty},
			{Kind: load.Assigned, Handle: []byte("000102030405"), Workload: []byte(someText)},
			{Kind: load.Assigned, Handle: []byte("000102030405"), Workload: []byte(someText)},
		}},
	{"gearman", newGearman(),
		"\x00RES\x00\x00\x00\x08\x00\x00\x00\x05H:x:1" +
			"\x00RES\x00\x00\x00\x1f\x00\x00\x00\x81" + "H:x:1\x00bench\x00job-000102030405\x00" + someWorkload +
			"\x00RES\x00\x00\x00\x0a\x00\x00\x00\x00" + "\x00RES\x00\x00\x00\x06\x00\x00\x00\x00",
		[]load.Event{
			{Kind: load.Submitted},
			{Kind: load.Assigned, Handle: []byte("H:x:1\x00"), Workload: []byte(someWorkload)},
			{Kind: load.Empty},
			{Kind: load.Woken},
		}},
	{"frames", NewEchoed(), strings.Repeat(string(NewEchoed().AppendSubmit(nil, 0, 0, 0)), 2), []load.Event{{Kind: load.Submitted}, {Kind: load.Submitted}}},
	{"redis", NewRedis(load.WorkloadLen),
		":3\r\n*2\r\n$5\r\nbench\r\n$100\r\n" + someWorkload + "\r\n:4\r\n",
		[]load.Event{{Kind: load.Submitted}, {Kind: load.Assigned, Workload: []byte(someWorkload)}, {Kind: load.Submitted}}},
}

// TestReplies takes each stream apart whole, and cut at every byte: the events must be the same, and no parser may take
// a part for a whole.
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
func decode(t *testing.T, p load.Protocol, got []load.Event, in []byte) ([]load.Event, []byte) {
	t.Helper()
	for {
		var e load.Event
		n, err := p.Next(in, &e)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if n == 0 {
			return got, bytes.Clone(in)
		}
		e.Handle, e.Workload = bytes.Clone(e.Handle), bytes.Clone(e.Workload)
		got, in = append(got, e), in[n:]
	}
}

func sameEvent(a, b load.Event) bool {
	return a.Kind == b.Kind && a.Slot == b.Slot && a.ID == b.ID && bytes.Equal(a.Handle, b.Handle) && bytes.Equal(a.Workload, b.Workload)
}

// TestMalformed gives each parser bytes that its protocol does not allow here.
func TestMalformed(t *testing.T) {
	f := func(p load.Protocol, in string) {
		t.Helper()
		if n, err := p.Next([]byte(in), &load.Event{}); !errors.Is(err, load.ErrMalformed) {
			t.Errorf("%q: n = %d, err = %v, want load.ErrMalformed", in, n, err)
		}
	}
	f(newPeriodic(PeriodicOptions{}), "\x00REQ\x00\x00\x00\x05\x00\x00\x00\x07\x10")                             // the wrong magic
	f(newPeriodic(PeriodicOptions{}), "\x00RES\x00\x00\x00\x05\x00\x00\x00\x07\x0c")                             // UNKNOWN
	f(newPeriodic(PeriodicOptions{}), "\x00RES\xff\xff\xff\xff")                                                 // 4 GiB
	f(newPeriodic(PeriodicOptions{}), "\x00RES\x00\x00\x00\x07\x00\x00\x00\x07\x05\x09a")                        // a handle that is cut
	f(newPeriodic(PeriodicOptions{}), "\x00RES\x00\x00\x00\x0c\x00\x00\x00\x07\x05\x00\x00\x00\x00\x00\x00\x09") // a workload that is cut
	f(newBeanstalkd(), "OUT_OF_MEMORY\r\n")
	f(newBeanstalkd(), "RESERVED 12 many\r\n")
	f(newBeanstalkd(), strings.Repeat("x", 300))
	f(newFaktory(), "-ERR no\r\n")
	f(newFaktory(), "$many\r\n")
	f(newFaktory(), "$20\r\n"+`{"jid":"job-0001"}12`+"\r\n")         // a job without its args
	f(newGearman(), "\x00RES\x00\x00\x00\x13\x00\x00\x00\x00")       // ERROR
	f(newGearman(), "\x00RES\x00\x00\x00\x1f\x00\x00\x00\x03a\x00b") // an assignment without its separators
	f(newGearman(), "HTTP/1.1 400")
	f(NewRedis(load.WorkloadLen), "-ERR no\r\n")
	f(NewRedis(load.WorkloadLen), "*-1\r\n")
	malformedGloom(f)
	f(newPeriodic(PeriodicOptions{CRC: true}), "\x00RES\x00\x00\x00\x05\xc2\x8e\xd6\x39\x00\x00\x00\x01\x10") // a wrong checksum
	f(newPeriodic(PeriodicOptions{CRC: true}), "\x00RES\x00\x00\x00\x05\x8e\x09\xc8\x07\x00\x00\x00\x03\x1d") // NO_WORKER
	damaged := crcFrame("\x00\x00\x00\x09\x05\x05bench\x04job1\x00\x00\x00\x02xx\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	f(newPeriodic(PeriodicOptions{CRC: true}), strings.Replace(damaged, "xx", "xy", 1))   // an assignment with a wrong checksum
	f(newPeriodic(PeriodicOptions{CRC: true}), "\x00RES\xff\xff\xff\xff\x00\x00\x00\x00") // 4 GiB
}

// TestTemplatesStay sees to it that filling in a template does not change it.
func TestTemplatesStay(t *testing.T) {
	for _, p := range []load.Protocol{
		newPeriodic(PeriodicOptions{}), newPeriodic(PeriodicOptions{Text: true}), newPeriodic(PeriodicOptions{CRC: true}), NewGloom(), newBeanstalkd(), newFaktory(), newGearman(), NewRedis(load.WorkloadLen),
	} {
		before := hex.EncodeToString(p.AppendSubmit(nil, 1, 2, 3))
		p.AppendSubmit(nil, 4, 5, 6)
		if after := hex.EncodeToString(p.AppendSubmit(nil, 1, 2, 3)); after != before {
			t.Errorf("%T: the same submit gives other bytes the second time", p)
		}
	}
}

// TestNoAllocations keeps the hot paths of the load generator free of garbage.
func TestNoAllocations(t *testing.T) {
	out := make([]byte, 0, 4096)
	for _, c := range replies {
		stream := []byte(c.stream)
		var e load.Event
		allocations := testing.AllocsPerRun(100, func() {
			out = c.protocol.AppendSubmit(out[:0], 1, someID, someTime)
			out = c.protocol.AppendGrab(out, 1)
			for in := stream; len(in) > 0; {
				n, err := c.protocol.Next(in, &e)
				if n == 0 {
					t.Fatalf("%q: %v", in, err)
				}
				out = c.protocol.AppendDone(out, &e)
				in = in[n:]
			}
		})
		if allocations != 0 {
			t.Errorf("%s: %v allocations", c.name, allocations)
		}
	}
}

// malformedGloom gives the parser forms that the document does not have.
func malformedGloom(f func(p load.Protocol, in string)) {
	for _, payload := range []string{
		`{"error":"id_exists","reason":"job-000102030405"}`,
		`{"ok":yes!}`,
		`{"ok":true,"id":"job-00010203040X"}`,
		`{"ok":true,"id":"jab-000102030405"}`,
		`{"id":"job-000102030405","body":"job-000102030406"}`, // the answer to another job
		`{"action":"job","id":"job-000102030406","type":"bench","body":` + someText + "}", // the body of another job
		`{"action":"job","id":"job-000102030405","type":"bunch","body":` + someText + "}",
		`{"action":"job","id":"job-000102030405","type":"bench","body":` + someText + "]",
	} {
		f(NewGloom(), string(appendGloom(nil, payload)))
	}
	f(NewGloom(), "\x00RES")
	f(NewGloom(), "\x80\x00\x00\x00")
}

// TestSizedReplies takes jobs of other sizes apart.
func TestSizedReplies(t *testing.T) {
	f := func(p load.Protocol, size int, stream string) {
		t.Helper()
		var e load.Event
		if n, err := p.Next([]byte(stream), &e); n != len(stream) || err != nil || len(e.Workload) != size {
			t.Errorf("%T: n = %d of %d, %v, %d bytes", p, n, len(stream), err, len(e.Workload))
		}
		workload := load.Workload(size)
		load.PutWorkload(workload, someID, someTime)
		if id, _, ok := p.Traits().Parse(workload); id != someID || !ok {
			t.Errorf("%T: its own workload is job %d, %v", p, id, ok)
		}
	}
	f(newPeriodic(PeriodicOptions{Size: 10}), 10,
		"\x00RES\x00\x00\x00\x27\x00\x00\x00\x09\x05\x03abc\x05bench\x00\x00\x00\x00\x0a\x00\x00\x00\x01\x02\x03\x04\x05x.\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	f(NewRedis(1<<10), 1<<10, "*2\r\n$5\r\nbench\r\n$1024\r\n"+strings.Repeat("x", 1024)+"\r\n")
}
