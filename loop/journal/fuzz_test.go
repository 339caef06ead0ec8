package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fuzzBytes bounds an input: longer ones find nothing more and keep the fuzzer busy minimizing.
const fuzzBytes = 1 << 10

// FuzzParseRecord checks that a decoded record encodes and decodes to the same record.
func FuzzParseRecord(f *testing.F) {
	f.Add(appendRecord(nil, &Record{Seq: 1, Space: 1, Queue: []byte("q"), Workload: bytes.Repeat([]byte("w"), 200)}))
	f.Add(appendRecord(nil, &Record{Seq: 1, Space: 4, Holder: []byte("w"), Revision: 5, Log: []Event{{1, 2}}, After: []uint64{7}}))
	f.Add(appendRecord(nil, &Record{Seq: 1, Space: 1, Lease: Lease{Token: LeaseToken{1}, Worker: []byte("w"), Until: 5, Length: 7}}))
	f.Add([]byte("\x01\x04\x01\x00\x00\x00\x00\x00\x00\x00\x01n\x00\x00\x0f\x01w\x09\x01........\x00\x00x"))
	f.Add([]byte("\x01\x0d\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10................"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again Record
		if parseRecord(b, &r) != nil {
			return
		}
		if err := parseRecord(appendRecord(nil, &r), &again); err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%x became %+v, and that %+v: %v", b, r, again, err)
		}
	})
}

// The kinds of pieces in FuzzLog's logs, after the kinds of chunks.
const (
	garbage = logEnd + 1 + iota
	damaged // a chunk with one flipped bit
	pieceKinds
)

// logOf builds a log from a script of three bytes a piece: kind, length, fill byte. It returns the
// records that a reader must find.
func logOf(tb testTB, script []byte, number uint64) (b []byte, records []logPart) {
	l := newTestLog(tb, number)
	open := false // the last record lacks chunks
	for ; len(script) >= 3; script = script[3:] {
		kind, size := int(script[0])%(pieceKinds-1)+1, int(script[1])<<(script[0]/pieceKinds%8)
		l.b = padBlock(l.b, 0)
		at := len(l.b)
		size = min(size, roomInBlock(int64(at))-chunkHead)
		fill := bytes.Repeat(script[2:3], size)
		switch kind {
		case logEnd:
			return l.end(), records
		case garbage:
			l.b, open = append(l.b, fill...), open && size == 0
			continue
		case damaged:
			l.b = l.key.appendChunk(l.b, 0, fullChunk, fill)
			l.b[at+int(script[2])%tagSize] ^= 4
			open = false
			continue
		}
		l.b = l.key.appendChunk(l.b, 0, byte(kind), fill)
		switch {
		case kind == fullChunk || kind == firstChunk:
			records = append(records, logPart{offset: int64(at), data: fill})
			open = kind == firstChunk
		case open:
			records[len(records)-1].data = append(records[len(records)-1].data, fill...)
			open = kind == middleChunk
		default:
			continue
		}
		records[len(records)-1].whole = !open
	}
	return l.b, records
}

// FuzzLog reads logs whose chunks are in any order, with garbage between them, and bytes that are
// no log. It must find every record, complete or as far as it goes, and nothing else.
func FuzzLog(f *testing.F) {
	piece := func(kind, size int) []byte { return []byte{byte(kind - 1), byte(size), 'x'} }
	f.Add(slices.Concat(piece(fullChunk, 9), piece(firstChunk, 5), piece(middleChunk, 200), piece(lastChunk, 1), piece(logEnd, 0), piece(fullChunk, 3)), []byte("old"))
	f.Add(slices.Concat(piece(firstChunk, 9), piece(firstChunk, 5), piece(garbage, 7), piece(lastChunk, 1), piece(middleChunk, 0), piece(fullChunk, 3)), []byte{})
	f.Add(slices.Concat(piece(firstChunk+7*pieceKinds, 255), piece(middleChunk+7*pieceKinds, 255), piece(lastChunk, 9), piece(garbage, 255)), []byte{})
	f.Add(slices.Concat(piece(fullChunk, 9), piece(damaged, 5), piece(fullChunk, 1), piece(damaged, 9), piece(damaged, 3), piece(fullChunk, 2), piece(garbage, 1), piece(fullChunk, 4)), []byte{})
	f.Fuzz(func(t *testing.T, script, tail []byte) {
		b, want := logOf(t, script[:min(len(script), fuzzBytes/4)], 9)
		var got []logPart
		end := int64(0)
		for _, p := range mustScan(t, logName(9), b) {
			if p.offset < end || p.end <= p.offset || p.end > int64(len(b)) {
				t.Fatalf("%x: the part from %d to %d stands behind %d", b, p.offset, p.end, end)
			}
			if end = p.end; p.data != nil || p.whole {
				got = append(got, logPart{offset: p.offset, data: p.data, whole: p.whole})
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%x: the records are %v, not %v", b, got, want)
		}
		for _, f := range []*framing{&manifests, format2Framing(9)} {
			parts, _ := f.parts(t, tail)
			end = 0
			for _, p := range parts {
				if p.offset < end || p.end <= p.offset || p.end > int64(len(tail)) {
					t.Fatalf("%x: the part from %d to %d stands behind %d", tail, p.offset, p.end, end)
				}
				end = p.end
			}
		}
	})
}

// planted returns a workload that imitates the journal's own bytes: records that would put a job,
// in the framing of a log of that number, repeated from an offset on.
func planted(tb testTB, kind, number, shift byte, size int) []byte {
	batch := startBatch(nil)
	batch = appendPut(batch, &Record{Seq: 1 << 20, Space: 1, Queue: []byte("planted"), Name: []byte("planted")})
	m := meta{group: uint64(number) + 1, previous: uint64(number), epoch: 1, maxSeq: 1 << 20, records: 1, prevSynced: true}
	sealBatch(batch, &m, 1)
	l := newTestLog(tb, uint64(number))
	var one []byte
	switch kind % 4 {
	case 0: // as in the log, without the tag
		one = l.key.appendRecord(nil, 0, batch)
	case 1: // in format 2
		one = format2Record(nil, uint64(number), batch)
	case 2: // the contents alone
		one = batch
	default: // a whole log
		l.add(batch)
		one = l.end()
	}
	b := bytes.Repeat([]byte{0}, int(shift))
	for len(b) < size {
		b = append(b, one...)
	}
	return b[:size]
}

// format2Record appends a record as it is in the middle of a block of a format 2 log.
func format2Record(dst []byte, number uint64, record []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(len(record)), byte(len(record)>>8), fullChunk+format2Kinds)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(number))
	dst = append(dst, record...)
	sum := crc32.Checksum(dst[at+6:], castagnoli)
	binary.LittleEndian.PutUint32(dst[at:], (sum>>15|sum<<17)+0xa282ead8)
	return dst
}

// FuzzForgedRecords submits and removes jobs whose workloads imitate the journal's records, of this log
// and of others, kills the process and damages one byte of the logs. No start and no repair may
// restore them as jobs, and without the damage the directory keeps its state.
func FuzzForgedRecords(f *testing.F) {
	for kind := range byte(4) {
		f.Add([]byte{kind, 2, 0, 200, kind, 3, 5, 250}, uint32(0))
		f.Add([]byte{kind, 1, 3, 255, kind, 3, 1, 255, kind, 4, 7, 255}, uint32(9000))
	}
	f.Fuzz(func(t *testing.T, script []byte, at uint32) {
		disk := vfs.NewCrashableMem()
		o := testOptions(disk)
		d := mustOpen(t, o)
		for script = script[:min(len(script), 64)]; len(script) >= 4; script = script[4:] {
			seq := d.next
			d.next++
			d.put(int(seq)%o.Shards, Record{
				Seq: seq, Space: 1, Queue: []byte("queue"), Name: fmt.Append(nil, seq),
				Workload: planted(t, script[0], script[1], script[2], int(script[3])<<8),
			})
			d.wait()
			d.remove(seq)
			d.create(100)
			d.wait()
		}
		d.quiet()
		m := imageOf(t, disk)
		if err := d.j.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := reopen(m.disk(t))
		if err != nil || !got.equal(d.after(math.MaxUint64)) {
			t.Fatalf("%v, %s", err, got.diff(d.after(math.MaxUint64)))
		}
		for _, name := range m.logs() {
			b := bytes.Clone(m[name])
			b[int(at)%len(b)] ^= 1 << (at % 8)
			hurt := m.with(name, b)
			if got, err := reopen(hurt.disk(t)); err == nil {
				err = d.verify(got, 0)
				if err != nil {
					t.Fatal(err)
				}
			}
			disk := hurt.disk(t)
			if _, err := Repair(testDir, disk); err != nil {
				t.Fatal(err)
			}
			got, err := reopen(disk)
			if err != nil {
				t.Fatal(err)
			}
			if got.jobs[1<<20] != "" {
				t.Fatal("the repair applied a client's bytes")
			}
		}
	})
}

// The kinds of patches in FuzzDirectory.
const (
	overwrites = iota
	cutsOff
	inserts
	replaces
	patchKinds
)

// patched changes an image by a script: one byte for the file, one for the kind of patch, two for
// the offset, one for the length, and the new bytes.
func patched(m image, script []byte) image {
	m = maps.Clone(m)
	names := slices.Sorted(maps.Keys(m))
	for len(script) >= 5 {
		name, kind := names[int(script[0])%len(names)], script[1]%patchKinds
		b := m[name]
		at := int(binary.BigEndian.Uint16(script[2:])) % (len(b) + 1)
		n := min(int(script[4]), len(script)-5)
		bytes := script[5 : 5+n]
		script = script[5+n:]
		switch kind {
		case overwrites:
			m[name] = slices.Concat(b[:at], bytes, b[min(at+n, len(b)):])
		case cutsOff:
			m[name] = slices.Concat(b[:at], bytes)
		case inserts:
			m[name] = slices.Concat(b[:at], bytes, b[at:])
		case replaces:
			m[name] = slices.Clone(bytes)
		}
	}
	return m
}

// FuzzDirectory writes arbitrary bytes into the files of a data directory. It must open in the
// state after some group, or not at all. After a repair it must open, and hold nothing that was
// never put.
func FuzzDirectory(f *testing.F) {
	m, states := groups(f, Always, true)
	delete(m, path.Join(testDir, lockName))
	names := slices.Sorted(maps.Keys(m))
	for i := range names {
		for kind := range patchKinds {
			f.Add([]byte{byte(i), byte(kind), 0, 40, 3, 0xff, 0, 1})
			f.Add([]byte{byte(i), byte(kind), 0xff, 0xfe, 0})
		}
	}
	known := newState()
	for _, s := range slices.Backward(states) {
		maps.Copy(known.jobs, s.jobs)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		damaged := patched(m, script[:min(len(script), fuzzBytes)])
		if lacks, err := damaged.open(t, states); err == nil && lacks < 0 {
			t.Fatalf("the opened directory holds a state that it never had")
		}
		disk := damaged.disk(t)
		if _, err := Repair(testDir, disk); err != nil {
			return
		}
		got, err := reopen(disk)
		if err != nil {
			t.Fatalf("repaired, and not opened: %v", err)
		}
		for seq, job := range got.jobs {
			if known.jobs[seq] != job {
				t.Fatalf("the repair made the job %d of %q", seq, job)
			}
		}
	})
}

// FuzzImport imports arbitrary lines. Either all are imported, and an export of them is importable,
// has the same jobs and settings and exports the same text; or none are, and the directory stays
// empty.
func FuzzImport(f *testing.F) {
	const head, head1 = "{\"treadle_journal\":2}\n", "{\"treadle_journal\":1}\n"
	for _, text := range []string{
		head1 + `{"kind":"job","seq":1,"space":4,"name":"t","due":-9223372036854775000,"workload":"\u0001w\u0000\u0000\u0000x"}` + "\n" + `{"kind":"setting","key":"kts46.counts.p\u0000j","value":"{}"}`,
		head + `{"kind":"project","project":"p","state":{ "a" : [1]}}` + "\n" + `{"kind":"definition","project":"p","name_base64":"/w==","text":"{}"}`,
		head, head + `{"kind":"setting","key":"timeout","value":"600"}` + "\n" + `{"kind":"setting","key_base64":"/w=="}`,
		head + `{"kind":"job","seq":1,"space":1,"queue":"echo","name":"a \"b\" \\ \u0001\ud834\udd1e","sched_at":-5,"due":17,"priority":9223372036854775807,"count":2,"timeout":-30,"holder":"w1","revision":7,"log":[{"stage":1,"micros":5}],"after":[1],"task":2,"workload":"{\"n\":1}"}`,
		head + "\r\n \n" + `{"kind":"job","space":255,"queue_base64":"cf8=","name_base64":null,"workload_base64":"AP8="}` + "\n" + `{"kind":"job","seq":18446744073709551615,"space":1}`,
		head + `{"kind":"job","space":1,"name":"\ud834"}`, head + `{"kind":"job","sp\u0061ce":1}`, head + `{"Kind":"job"}`, "[1]", head + `{"kind":"job","space":1,"name":[{"a":"]"}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		disk := vfs.NewMem()
		err := importFrom(disk, testDir, bytes.NewReader(text[:min(len(text), fuzzBytes)]), nil)
		var first, second strings.Builder
		if fault := export(disk, testDir, &first, nil); fault != nil || err != nil && first.Len() != len(head) {
			t.Fatalf("%q: %v, and exported %q, %v", text, err, first.String(), fault)
		}
		if err != nil {
			return
		}
		again := vfs.NewMem()
		if err := importFrom(again, testDir, strings.NewReader(first.String()), nil); err != nil {
			t.Fatalf("%q is taken, and %q is not: %v", text, first.String(), err)
		}
		if err := export(again, testDir, &second, nil); err != nil || first.String() != second.String() {
			t.Fatalf("%q is exported as %q, and that as %q, %v", text, first.String(), second.String(), err)
		}
		was, err := reopen(disk)
		if err != nil {
			t.Fatalf("%q is imported, and %v", text, err)
		}
		if is, err := reopen(again); err != nil || !is.equal(was) {
			t.Fatalf("%q is exported as %q, which differs: %v, %s", text, first.String(), err, is.diff(was))
		}
	})
}
