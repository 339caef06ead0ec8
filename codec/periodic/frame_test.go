package periodic

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
)

func TestNextDecidesAtTheFirstByteThatTells(t *testing.T) {
	f := func(fr Framing, in string, want error) {
		t.Helper()
		packet := unhex(t, in)
		for cut := range len(packet) + 1 {
			var frame Frame
			n, err := Next(packet[:cut:cut], fr, 100, &frame)
			if cut < len(packet) && (n != 0 || err != nil) {
				t.Fatalf("%s: after %d bytes %d, %v: too early", in, cut, n, err)
			}
			if cut == len(packet) && (n != 0 || !errors.Is(err, want)) {
				t.Fatalf("%s: %d, %v, want %v", in, n, err, want)
			}
		}
		var frame Frame
		packet = appendRequest(packet, fr, 1, Ping, nil)
		if n, err := Next(packet, fr, 100, &frame); n != 0 || !errors.Is(err, want) {
			t.Fatalf("%s and a good request: %d, %v, want %v", in, n, err, want)
		}
	}
	f(Plain, "01", ErrMagic)
	f(Plain, "0053", ErrMagic)
	f(Plain, "00524553", ErrMagic) // \0RES: a server's packet
	f(CRC, "00524553", ErrMagic)
	f(Plain, "00524551 00000000", ErrShort)
	f(Plain, "00524551 00000004", ErrShort)
	f(CRC, "00524551 00000004", ErrShort)
	f(Plain, "00524551 80000000", ErrTooLarge)
	f(CRC, "00524551 ffffffff", ErrTooLarge)
	f(Plain, "00524551 00000065 61626364 0d", ErrTooLarge) // 101 bytes, and not a LOAD
	f(CRC, "00524551 7fffffff 00000000 61626364 19", ErrTooLarge)
	f(CRC, "00524551 00000005 a6e57ef9 00000001 09", ErrChecksum)
	f(CRC, "00524551 00000005 a6e57ef8 00000001 08", ErrChecksum)
}

func TestNextLimitIsThePayload(t *testing.T) {
	f := func(size, limit int, want error) {
		t.Helper()
		packet := appendRequest(nil, Plain, 1, SubmitJob, make([]byte, size-messageLen))
		var frame Frame
		n, err := Next(packet, Plain, limit, &frame)
		if !errors.Is(err, want) || (err == nil) != (n == len(packet)) {
			t.Fatalf("%d bytes, limit %d: %d, %v, want %v", size, limit, n, err, want)
		}
	}
	f(5, 5, nil)
	f(100, 100, nil)
	f(101, 100, ErrTooLarge)
	f(5, 4, ErrTooLarge)
	f(5, 0, ErrTooLarge)
	f(100, 1<<40, nil)
}

func TestNextLoad(t *testing.T) {
	f := func(fr Framing, in string, n, more int, sum uint32) {
		t.Helper()
		packet := unhex(t, in)
		frame := Frame{Args: packet}
		got, err := Next(packet, fr, 10, &frame)
		if err != nil || got != n || frame.MsgID != 0x2c || frame.Cmd != Load || frame.Args != nil || frame.More != more {
			t.Fatalf("%s: %d, %v, %+v", in, got, err, frame)
		}
		if frame.Sum != sum {
			t.Fatalf("%s: announced sum %08x", in, frame.Sum)
		}
		if want := crc32.ChecksumIEEE(packet[n-messageLen : n]); fr == CRC && frame.PartialSum != want {
			t.Fatalf("%s: partial sum %08x, want %08x", in, frame.PartialSum, want)
		}
		if n, err := Next(packet[:n-1], fr, 10, &frame); n != 0 || err != nil {
			t.Fatalf("%s: without its command byte %d, %v", in, n, err)
		}
	}
	f(Plain, "00524551 00000005 0000002c 13", 13, 0, 0)
	f(Plain, "00524551 00000058 0000002c 13 0000", 13, 0x53, 0)
	f(Plain, "00524551 7fffffff 0000002c 13", 13, MaxPayload-5, 0)
	f(CRC, "00524551 00000058 01020304 0000002c 13 00", 17, 0x53, 0x01020304)
	f(CRC, "00524551 7fffffff 01020304 0000002c 13", 17, MaxPayload-5, 0x01020304)
}

func TestNextLoadSumRunsOn(t *testing.T) {
	args := []byte("the bytes of a dump")
	packet := appendRequest(nil, CRC, 7, Load, args)
	var f Frame
	n, err := Next(packet, CRC, testLimit, &f)
	if err != nil || n != crcHeaderLen+messageLen || f.More != len(args) {
		t.Fatalf("%d, %v, %+v", n, err, f)
	}
	if sum := crc32.Update(f.PartialSum, crc32.IEEETable, packet[n:]); sum != f.Sum {
		t.Fatalf("the sum over all of it is %08x, announced %08x", sum, f.Sum)
	}
}

func TestNeed(t *testing.T) {
	f := func(fr Framing, in string, want int) {
		t.Helper()
		if got := Need(unhex(t, in), fr); got != want {
			t.Fatalf("%s: %d, want %d", in, got, want)
		}
	}
	f(Plain, "", 0)
	f(Plain, "00524551 000000", 0)
	f(Plain, "00524551 00000064", 13)
	f(CRC, "00524551 00000064", 17)
	f(CRC, "00524551 00000064 00000000 00000000", 17)
	f(Plain, "00524551 00000064 00000000 0d", 108)
	f(CRC, "00524551 00000064 00000000 00000000 0d", 112)
	f(CRC, "00524551 00000064 00000000 00000000 0d 00", 112)
	f(Plain, "00524551 00000064 00000000 13", 13) // a LOAD is returned without its arguments
	f(Plain, "00524553 00000064 00000000 0d", 0)  // not to be waited for
	f(Plain, "00524551 ffffffff 00000000 0d", 0)
	f(Plain, "00524551 00000001 00000000 0d", 0)
}

func TestNeedIsWhereNextDecides(t *testing.T) {
	for _, fr := range []Framing{Plain, CRC} {
		for _, args := range []string{"", "a", "some arguments"} {
			packet := appendRequest(nil, fr, 1, SubmitJob, []byte(args))
			for cut := range packet {
				var f Frame
				if n, err := Next(packet[:cut], fr, testLimit, &f); n != 0 || err != nil {
					t.Fatalf("cut at %d: %d, %v", cut, n, err)
				}
				if need := Need(packet[:cut], fr); need > len(packet) || need != 0 && need <= cut {
					t.Fatalf("cut at %d of %d: needs %d", cut, len(packet), need)
				}
			}
		}
	}
}

func TestNextResponseErrors(t *testing.T) {
	f := func(fr Framing, in string, want error) {
		t.Helper()
		var r Response
		if n, err := NextResponse(unhex(t, in), fr, 100, &r); n != 0 || !errors.Is(err, want) {
			t.Fatalf("%s: %d, %v, want %v", in, n, err, want)
		}
	}
	f(Plain, "00524551", ErrMagic) // \0REQ: a client's packet
	f(Plain, "ff", ErrMagic)
	f(Plain, "00524553 00000003", ErrShort)
	f(CRC, "00524553 00000000", ErrShort)
	f(Plain, "00524553 00000065", ErrTooLarge)
	f(CRC, "00524553 ffffffff", ErrTooLarge)
	f(CRC, "00524553 00000004 00000000 00000001", ErrChecksum)
	f(Plain, "00524553 00000064", nil)
	f(Plain, "00524553 00000004 000000", nil)
	f(CRC, "00524553 00000004 00000000 000000", nil)
}

func TestNextResponseLimitHasALimit(t *testing.T) {
	var r Response
	packet := binary.BigEndian.AppendUint64(nil, wordResponse<<32|(MaxPayload+1))
	if n, err := NextResponse(packet, Plain, 1<<40, &r); n != 0 || !errors.Is(err, ErrTooLarge) {
		t.Fatalf("%d, %v", n, err)
	}
}

// TestNothingIsAllocated: a header that announces 4 GiB must cost nothing, and no decoder may ever allocate.
func TestNothingIsAllocated(t *testing.T) {
	var f Frame
	var j Job
	var h Hello
	var r Response
	buffer := make([]byte, 0, 1024)
	job := Job{Func: []byte("echo"), Name: []byte("n1"), Workload: make([]byte, 100), Count: 1, Timeout: 2}
	record := AppendJob(nil, &job)
	named := AppendHello(nil, &Hello{Framing: CRC, Role: AuthWorker, Name: []byte("name"), Token: []byte("token")})
	check := func(what string, do func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
	for _, fr := range []Framing{Plain, CRC} {
		submit := appendRequest(nil, fr, 1, SubmitJob, record)
		load := appendRequest(nil, fr, 1, Load, record)
		huge := append(unhex(t, "00524551 7fffffff"), make([]byte, 13)...)
		endless := append(unhex(t, "00524551 ffffffff"), make([]byte, 13)...)
		bad := append(unhex(t, "00524553"), submit[4:]...)
		response := appendResponse(nil, fr, 1, record)
		for what, in := range map[string][]byte{"submit": submit, "load": load, "partial": submit[:20], "huge": huge,
			"endless": endless, "bad magic": bad} {
			check("Next of "+what, func() { Next(in, fr, 1<<26, &f) })
			check("Need of "+what, func() { Need(in, fr) })
		}
		check("NextResponse", func() { NextResponse(response, fr, 1<<26, &r) })
		check("AppendReply", func() { buffer = AppendReply(buffer[:0], fr, 1, Success) })
		check("a response", func() { buffer = appendResponse(buffer[:0], fr, 1, record) })
	}
	check("ParseJob", func() { ParseJob(record, &j) })
	check("ParseJob of a part", func() { ParseJob(record[:30], &j) })
	check("AppendJob", func() { buffer = AppendJob(buffer[:0], &job) })
	check("NextHello", func() { NextHello(named, &h) })
	check("Str8", func() { Str8(record) })
}
