package journal

import (
	"encoding/hex"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawRecord(t *rapid.T) Record {
	text := rapid.SliceOfN(rapid.Byte(), 0, 40)
	return Record{
		Seq: rapid.Uint64Min(1).Draw(t, "seq"), Space: rapid.Byte().Draw(t, "space"),
		Queue: text.Draw(t, "queue"), Name: text.Draw(t, "name"), Holder: text.Draw(t, "holder"),
		Extra: text.Draw(t, "extra"), Workload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "workload"),
		SchedAt: rapid.Int64().Draw(t, "sched_at"), Due: rapid.Int64().Draw(t, "due"), Priority: rapid.Int64().Draw(t, "priority"),
		Count: rapid.Int32().Draw(t, "count"), Timeout: rapid.Int32().Draw(t, "timeout"), Revision: rapid.Int64().Draw(t, "revision"),
	}
}

// What was appended is parsed again, whatever stood before it; its size was foretold;
// and no shorter or longer form passes.
func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		b := AppendRecord([]byte("before"), &r)[len("before"):]
		if len(b) != recordSize(&r) {
			t.Fatalf("%d bytes, foretold %d", len(b), recordSize(&r))
		}
		var got Record
		if err := ParseRecord(b, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Fatalf("got %+v, want %+v", got, r)
		}
		for n := range b {
			if err := ParseRecord(b[:n], &got); err == nil {
				t.Fatalf("%d of %d bytes pass", n, len(b))
			}
		}
		if err := ParseRecord(append(b, 0), &got); err == nil || !strings.Contains(err.Error(), "1 too many") {
			t.Fatalf("a byte too many: %v", err)
		}
	})
}

// Version 1 stays what it is: directories hold it.
func TestRecordVersion1(t *testing.T) {
	r := Record{
		Seq: 300, Space: 1, Queue: []byte("echo"), Name: []byte("n"), Workload: []byte{0, 255}, SchedAt: -1, Due: 1_700_000_000_000,
		Priority: 7, Count: 2, Timeout: 30, Holder: []byte("w1"), Revision: math.MinInt64, Extra: []byte("x"),
	}
	const want = "0101ac020180a0abfef9620e043cffffffffffffffffff01" + "046563686f" + "016e" + "027731" + "0178" + "0200ff"
	if got := hex.EncodeToString(AppendRecord(nil, &r)); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// A version that a later program wrote is refused by its number.
func TestRecordNewerVersion(t *testing.T) {
	b := AppendRecord(nil, &Record{Seq: 1})
	b[0] = 2
	if err := ParseRecord(b, &Record{}); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Fatal(err)
	}
}

// Bytes of any kind are an error, never a panic and never a number out of its range.
func TestRecordGarbage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := append([]byte{recordVersion}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
		var r Record
		if ParseRecord(b, &r) != nil {
			return
		}
		var again Record
		if err := ParseRecord(AppendRecord(nil, &r), &again); err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%x became %+v, and that %+v: %v", b, r, again, err)
		}
	})
	too := append([]byte{recordVersion, 1, 1, 0, 0, 0}, 0xfe, 0xff, 0xff, 0xff, 0x1f, 0, 0, 0, 0, 0, 0, 0)
	if err := ParseRecord(too, &Record{}); err == nil {
		t.Fatal("a count above 32 bits passes")
	}
}
