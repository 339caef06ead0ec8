package fuzz

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"treadle/codec/periodic"
)

const (
	periodicLimit  = 1 << 10 // small, so that inputs on both sides of it are found
	periodicStream = 2 << 10 // longer inputs are cut: byte by byte is quadratic
)

// periodicPackets returns the captured packets of the given kinds; see the first lines of the file.
func periodicPackets(f *testing.F, file string, kinds ...string) (packets [][]byte) {
	f.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		kind, packet, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.Contains(kinds, kind) {
			continue
		}
		b, err := hex.DecodeString(packet)
		if err != nil {
			f.Fatal(err)
		}
		packets = append(packets, b)
	}
	if len(packets) == 0 {
		f.Fatalf("no %v in %s", kinds, file)
	}
	return packets
}

// periodicReader decodes a stream of requests as a connection does, and checks each frame against its own bytes.
type periodicReader struct {
	t      *testing.T
	fr     periodic.Framing
	in     []byte         // received and not taken yet
	load   periodic.Frame // the LOAD that is being read
	skip   int            // bytes of it that are still to come
	taken  []byte         // bytes of it that came
	need   int            // Next cannot return anything before in has as many bytes
	failed error
	events []string
}

// receive gives the reader more bytes and takes all frames that they end.
func (r *periodicReader) receive(more []byte) {
	r.in = append(slices.Clone(r.in), more...) // a fresh array: a kept view would show
	for r.failed == nil {
		if r.skip > 0 {
			n := min(r.skip, len(r.in))
			r.taken = append(r.taken, r.in[:n]...)
			r.in, r.skip = r.in[n:], r.skip-n
			if r.skip > 0 {
				return
			}
			r.endLoad()
		}
		if !r.next() {
			return
		}
	}
}

// next takes one frame, or tells that there is none yet.
func (r *periodicReader) next() bool {
	f := periodic.Frame{Args: []byte("stale"), More: -1, Sum: 1, PartialSum: 1}
	n, err := periodic.Next(slices.Clip(r.in), r.fr, periodicLimit, &f)
	if (n > 0 || err != nil) && len(r.in) < r.need {
		r.t.Fatalf("%x: decided (%d, %v) with %d bytes, Need said %d", r.in, n, err, len(r.in), r.need)
	}
	if err != nil {
		r.failed = err
		r.events = append(r.events, err.Error())
		return false
	}
	if n == 0 {
		if r.need = periodic.Need(r.in, r.fr); r.need != 0 && r.need <= len(r.in) {
			r.t.Fatalf("%x: undecided with %d bytes, Need says %d", r.in, len(r.in), r.need)
		}
		return false
	}
	packet := r.in[:n]
	r.in, r.need = r.in[n:], 0
	if f.Cmd == periodic.Load {
		r.load, r.skip, r.taken = f, f.More, slices.Clone(packet)
		if f.Args != nil || f.More < 0 {
			r.t.Fatalf("a LOAD with arguments: %+v", f)
		}
		if f.More == 0 {
			r.endLoad()
		}
		return true
	}
	if got := periodicRequest(&f, r.fr, f.Args); !bytes.Equal(got, packet) {
		r.t.Fatalf("decoded %x, encoded %x", packet, got)
	}
	if cap(f.Args) != len(f.Args) || f.More != 0 || f.Sum != 0 || f.PartialSum != 0 {
		r.t.Fatalf("%x: %+v, cap %d", packet, f, cap(f.Args))
	}
	r.events = append(r.events, fmt.Sprintf("%08x %v %x", f.MsgID, f.Cmd, f.Args))
	return true
}

// endLoad checks a LOAD that is whole: its sum is the announced one exactly when it is encoded to the same bytes.
func (r *periodicReader) endLoad() {
	start := len(r.taken) - r.load.More
	sum := crc32.Update(r.load.PartialSum, crc32.IEEETable, r.taken[start:])
	good := r.fr == periodic.Plain || sum == r.load.Sum
	got := periodicRequest(&r.load, r.fr, r.taken[start:])
	if bytes.Equal(got, r.taken) != good {
		r.t.Fatalf("decoded %x, encoded %x, sum good: %v", r.taken, got, good)
	}
	r.events = append(r.events, fmt.Sprintf("%08x LOAD %x, sum good: %v", r.load.MsgID, r.taken[start:], good))
}

// end returns all that the reader saw.
func (r *periodicReader) end() string {
	if r.failed == nil {
		r.events = append(r.events, fmt.Sprintf("rest %x, %d to come", r.in, r.skip))
	}
	return strings.Join(r.events, "\n")
}

func periodicRequest(f *periodic.Frame, fr periodic.Framing, args []byte) []byte {
	out := periodic.AppendMessage(periodic.BeginRequest(nil, fr), f.MsgID, f.Cmd)
	out = append(out, args...)
	periodic.End(out, 0, fr)
	return out
}

// checkPeriodicStream reads the stream at once, in two parts and byte by byte: each must see the same.
func checkPeriodicStream(t *testing.T, fr periodic.Framing, stream []byte, cut int) {
	stream = stream[:min(len(stream), periodicStream)]
	whole := periodicReader{t: t, fr: fr}
	whole.receive(stream)
	want := whole.end()

	cut = min(max(cut, 0), len(stream))
	parts := periodicReader{t: t, fr: fr}
	parts.receive(stream[:cut])
	parts.receive(stream[cut:])
	if got := parts.end(); got != want {
		t.Fatalf("cut at %d:\n%s\nuncut:\n%s", cut, got, want)
	}
	single := periodicReader{t: t, fr: fr}
	for i := range stream {
		single.receive(stream[i : i+1])
	}
	if got := single.end(); got != want {
		t.Fatalf("byte by byte:\n%s\nuncut:\n%s", got, want)
	}
}

func FuzzPeriodicPlain(f *testing.F) {
	packets := periodicPackets(f, "periodic-plain.txt", "req", "noreq", "res")
	for _, p := range packets {
		f.Add(p, len(p)/2)
	}
	f.Add(bytes.Join(packets[:10], nil), 40)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		checkPeriodicStream(t, periodic.Plain, stream, cut)
	})
}

// FuzzPeriodicCRC repairs the checksums before it reads, when told to: random bytes never have the right one.
func FuzzPeriodicCRC(f *testing.F) {
	packets := periodicPackets(f, "periodic-crc.txt", "req", "res")
	for i, p := range packets {
		f.Add(p, len(p)/2, i%2 == 0)
	}
	f.Add(bytes.Join(packets[:10], nil), 40, true)
	f.Fuzz(func(t *testing.T, stream []byte, cut int, repair bool) {
		stream = slices.Clone(stream[:min(len(stream), periodicStream)])
		if repair {
			repairPeriodic(stream)
		}
		checkPeriodicStream(t, periodic.CRC, stream, cut)
	})
}

// repairPeriodic writes the right checksum into every packet of a stream that is whole.
func repairPeriodic(stream []byte) {
	for len(stream) >= 12 {
		size := int64(binary.BigEndian.Uint32(stream[4:]))
		if size > int64(len(stream)-12) {
			return
		}
		binary.BigEndian.PutUint32(stream[8:], crc32.ChecksumIEEE(stream[12:12+size]))
		stream = stream[12+size:]
	}
}

// FuzzPeriodicHello: a hello has one form, so what is decoded is encoded to the same bytes; and a decision, once there,
// stands whatever follows.
func FuzzPeriodicHello(f *testing.F) {
	for _, p := range periodicPackets(f, "periodic-plain.txt", "hello", "nohello", "req") {
		f.Add(p, false)
	}
	for _, p := range periodicPackets(f, "periodic-crc.txt", "hello", "req") {
		f.Add(p, false)
	}
	named := periodic.Hello{Framing: periodic.CRC, Role: periodic.AuthWorker, Name: []byte("name"), Token: []byte("secret")}
	f.Add(periodic.AppendHello(nil, &named), true)
	f.Add(periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.CRC, Role: periodic.AuthClient}), true)
	f.Fuzz(func(t *testing.T, in []byte, repair bool) {
		if repair && len(in) > 9 && in[8] > 2 { // a plain hello has no checksum
			in = slices.Clone(in)
			repairPeriodic(in)
		}
		var whole periodic.Hello
		n, err := periodic.NextHello(in, &whole)
		if n == 0 && err == nil && len(in) >= periodic.HelloLimit {
			t.Fatalf("%d bytes, and still undecided", len(in))
		}
		if n > 0 {
			if got := periodic.AppendHello(nil, &whole); err != nil || !bytes.Equal(got, in[:n]) {
				t.Fatalf("decoded %x (%v), encoded %x", in[:n], err, got)
			}
			if (whole.Name != nil) != (whole.Role >= periodic.AuthClient) {
				t.Fatalf("role %d with the name %x", whole.Role, whole.Name)
			}
		}
		for cut := range min(len(in), periodic.HelloLimit) {
			var part periodic.Hello
			partN, partErr := periodic.NextHello(in[:cut:cut], &part)
			if partN == 0 && partErr == nil {
				continue
			}
			if partN != n || !errors.Is(partErr, err) || part.Framing != whole.Framing || part.Role != whole.Role ||
				!bytes.Equal(part.Name, whole.Name) || !bytes.Equal(part.Token, whole.Token) {
				t.Fatalf("%x: after %d bytes %d, %v, %+v, after all %d, %v, %+v", in, cut, partN, partErr, part, n, err, whole)
			}
			break
		}
	})
}

// naivePeriodicJob reads a record field by field as the protocol text lists them: a naive copy of ParseJob.
func naivePeriodicJob(in []byte) (j periodic.Job, version byte, n int, err error) {
	r := bytes.NewReader(in)
	read := func(v any) {
		if err == nil {
			err = binary.Read(r, binary.BigEndian, v)
		}
	}
	take := func(size int64) []byte {
		if err == nil && size > int64(r.Len()) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil
		}
		b := make([]byte, size)
		read(b)
		return b
	}
	var short byte
	var long uint32
	read(&short)
	j.Func = take(int64(short))
	read(&short)
	j.Name = take(int64(short))
	read(&long)
	j.Workload = take(int64(long))
	read(&j.SchedAt)
	read(&version)
	if err == nil && version > 3 {
		return j, version, 0, periodic.ErrVersion
	}
	if version&1 != 0 {
		read(&j.Count)
	}
	if version&2 != 0 {
		read(&j.Timeout)
	}
	if err != nil {
		return j, version, 0, periodic.ErrTruncated
	}
	return j, version, len(in) - r.Len(), nil
}

// FuzzPeriodicJob: the naive copy agrees; a record of the smallest version for its fields is encoded to the same bytes,
// any other to a record of the same fields; and every shorter part of a record is truncated.
func FuzzPeriodicJob(f *testing.F) {
	for _, p := range periodicPackets(f, "periodic-plain.txt", "req", "res") {
		f.Add(p[min(8+5, len(p)):])
	}
	f.Add([]byte("\x01f\x01n\x00\x00\x00\x01w\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00\x0a"))
	f.Fuzz(func(t *testing.T, in []byte) {
		want, version, wantN, wantErr := naivePeriodicJob(in)
		got := periodic.Job{Count: 7, Timeout: 8}
		n, err := periodic.ParseJob(in, &got)
		if n != wantN || !errors.Is(err, wantErr) {
			t.Fatalf("%x: %d, %v, the naive one %d, %v", in, n, err, wantN, wantErr)
		}
		for cut := range min(n, periodicStream) {
			if _, err := periodic.ParseJob(in[:cut:cut], new(periodic.Job)); !errors.Is(err, periodic.ErrTruncated) {
				t.Fatalf("%x: after %d bytes %v", in, cut, err)
			}
		}
		if err != nil {
			return
		}
		if !samePeriodicJob(&got, &want) {
			t.Fatalf("%x: %+v, the naive one %+v", in, got, want)
		}
		record := periodic.AppendJob(nil, &got)
		canonical := (version&1 != 0) == (got.Count != 0) && (version&2 != 0) == (got.Timeout != 0)
		if canonical != bytes.Equal(record, in[:n]) {
			t.Fatalf("decoded %x, encoded %x", in[:n], record)
		}
		var again periodic.Job
		if n, err := periodic.ParseJob(record, &again); n != len(record) || err != nil || !samePeriodicJob(&again, &got) {
			t.Fatalf("%x: %d, %v, %+v, want %+v", record, n, err, again, got)
		}
	})
}

func samePeriodicJob(a, b *periodic.Job) bool {
	return bytes.Equal(a.Func, b.Func) && bytes.Equal(a.Name, b.Name) && bytes.Equal(a.Workload, b.Workload) &&
		a.SchedAt == b.SchedAt && a.Count == b.Count && a.Timeout == b.Timeout
}
