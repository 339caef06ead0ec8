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
	r := Record{
		Kind: rapid.SampledFrom([]Kind{KindJob, KindQueue, KindDropped, KindEdge, KindExit, KindCron}).Draw(t, "kind"),
		Seq:  rapid.Uint64Min(1).Draw(t, "seq"), Space: rapid.Byte().Draw(t, "space"),
		Queue: text.Draw(t, "queue"), Name: text.Draw(t, "name"),
		Workload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "workload"),
		SchedAt:  rapid.Int64().Draw(t, "sched_at"), Due: rapid.Int64().Draw(t, "due"), Priority: rapid.Int64().Draw(t, "priority"),
		Count: rapid.Int32().Draw(t, "count"), Timeout: rapid.Int32().Draw(t, "timeout"),
	}
	if rapid.Bool().Draw(t, "failed") {
		r.FailedAt, r.Tries = rapid.Int64().Draw(t, "failed_at"), 1+rapid.Uint64Max(9).Draw(t, "tries")
		for range rapid.IntRange(0, 3).Draw(t, "attempts") {
			r.History = append(r.History, Attempt{rapid.Byte().Draw(t, "outcome"), rapid.Int64().Draw(t, "at"), text.Draw(t, "worker"), text.Draw(t, "text")})
		}
	}
	if rapid.Bool().Draw(t, "finished") {
		r.DoneAt = rapid.Int64Min(1).Draw(t, "done_at")
		if rapid.Bool().Draw(t, "kept") {
			r.Result = append([]byte{}, text.Draw(t, "result")...)
		}
	}
	if r.Kind == KindJob && r.DoneAt == 0 && r.FailedAt == 0 && rapid.Bool().Draw(t, "leased") {
		r.Token, r.Worker = LeaseToken{rapid.Byte().Draw(t, "number"), 15: 1}, text.Draw(t, "worker")
		r.Until, r.Length = rapid.Int64().Draw(t, "until"), rapid.Int64().Draw(t, "length")
	}
	if rapid.Bool().Draw(t, "counts") {
		r.Submitted = rapid.Int64Min(1).Draw(t, "submitted")
		for _, n := range r.all() {
			*n = rapid.Uint32().Draw(t, "times")
		}
	}
	if !rapid.Bool().Draw(t, "graph") {
		return r
	}
	r.Revision, r.Task = rapid.Int64().Draw(t, "revision"), rapid.Uint64().Draw(t, "task")
	if holder := text.Draw(t, "holder"); len(holder) > 0 {
		r.Holder = holder
	}
	for range rapid.IntRange(0, 3).Draw(t, "events") {
		r.Log = append(r.Log, Event{rapid.Byte().Draw(t, "stage"), rapid.Int64().Draw(t, "micros")})
	}
	for range rapid.IntRange(0, 3).Draw(t, "predecessors") {
		r.After = append(r.After, rapid.Uint64().Draw(t, "after"))
	}
	return r
}

// TestRecordRoundTrip checks that an appended record parses to the same record behind any prefix,
// that recordSize is its size, and that no shorter or longer form parses.
func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		b := appendRecord([]byte("before"), &r)[len("before"):]
		if len(b) != recordSize(&r) {
			t.Fatalf("%d bytes, recordSize says %d", len(b), recordSize(&r))
		}
		var got Record
		if err := parseRecord(b, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Fatalf("got %+v, want %+v", got, r)
		}
		for n := range b {
			if err := parseRecord(b[:n], &got); err == nil {
				t.Fatalf("%d of %d bytes are accepted", n, len(b))
			}
		}
		if err := parseRecord(append(b, 0), &got); err == nil || !strings.Contains(err.Error(), "1 too many") {
			t.Fatalf("a byte too many: %v", err)
		}
	})
}

// TestRecordVersions checks that the stored versions never change, because directories hold them.
// Version 1 had extra bytes, here "x".
func TestRecordVersions(t *testing.T) {
	r := Record{
		Seq: 300, Space: 1, Queue: []byte("echo"), Name: []byte("n"), Workload: []byte{0, 255}, SchedAt: -1, Due: 1_700_000_000_000,
		Priority: 7, Count: 2, Timeout: 30, Holder: []byte("w1"), Revision: math.MinInt64,
	}
	const (
		fields   = "ac020180a0abfef9620e043c"
		revision = "ffffffffffffffffff01"
		version1 = "0101" + fields + revision + "046563686f" + "016e" + "027731" + "0178" + "0200ff"
		version2 = "028001" + fields + "046563686f" + "016e" + "027731" + revision + "000000" + "0200ff"
		leased   = "050001" + fields + "046563686f" + "016e" + "000000" + "000102030405060708090a0b0c0d0e0f" + "027731" + "80a0abfef962" + "c0a907" + "0200ff"
		counted  = "024007" + fields + "046563686f" + "03333030" + "80a0abfef962" + "050403020180808010" + "0200ff"
		edge     = "028300" + "14" + "0000000000" + "0171" + "00" + "00" + "00" + "00" + "0113" + "12" + "00"
	)
	if got := hex.EncodeToString(appendRecord(nil, &r)); got != version2 {
		t.Fatalf("got  %s\nwant %s", got, version2)
	}
	e := Record{Kind: KindEdge, Seq: 20, Queue: []byte("q"), After: []uint64{19}, Task: 18}
	if got := hex.EncodeToString(appendRecord(nil, &e)); got != edge {
		t.Fatalf("got  %s\nwant %s", got, edge)
	}
	l := Record{
		Seq: 300, Space: 1, Queue: []byte("echo"), Name: []byte("n"), Workload: []byte{0, 255}, SchedAt: -1, Due: 1_700_000_000_000, Priority: 7, Count: 2, Timeout: 30,
		Lease: Lease{Token: LeaseToken{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Worker: []byte("w1"), Until: 1_700_000_000_000, Length: 60_000},
	}
	if got := hex.EncodeToString(appendRecord(nil, &l)); got != leased {
		t.Fatalf("got  %s\nwant %s", got, leased)
	}
	n := r
	n.Space, n.Name, n.Holder, n.Revision = 7, []byte("300"), nil, 0
	n.Counts = Counts{Submitted: 1_700_000_000_000, Delay: 5, Runs: 4, TimedOut: 3, Released: 2, Buried: 1, Kicked: 1 << 25}
	if got := hex.EncodeToString(appendRecord(nil, &n)); got != counted {
		t.Fatalf("got  %s\nwant %s", got, counted)
	}
	b, err := hex.DecodeString(version1)
	if err != nil {
		t.Fatal(err)
	}
	var got Record
	if err := parseRecord(b, &got); err != nil || !reflect.DeepEqual(got, r) {
		t.Fatalf("version 1 is read as %+v, %v", got, err)
	}
}

// TestRecordGarbage checks that arbitrary bytes are an error, never a panic or a number out of
// range.
func TestRecordGarbage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := append([]byte{rapid.SampledFrom([]byte{recordVersion2, recordVersion5}).Draw(t, "version")}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
		var r Record
		if parseRecord(b, &r) != nil {
			return
		}
		var again Record
		if err := parseRecord(appendRecord(nil, &r), &again); err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%x became %+v, and that %+v: %v", b, r, again, err)
		}
	})
	too := append([]byte{recordVersion2, 0, 1, 1, 0, 0, 0}, 0xfe, 0xff, 0xff, 0xff, 0x1f, 0, 0, 0, 0)
	if err := parseRecord(too, &Record{}); err == nil {
		t.Fatal("a count above 32 bits is accepted")
	}
}
