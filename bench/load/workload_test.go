package load

import (
	"bytes"
	"encoding/json"
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

// TestWorkload checks the round trip, and that a damaged workload is not accepted.
func TestWorkload(t *testing.T) {
	workload := Workload(WorkloadLen)
	PutWorkload(workload, someID, someTime)
	if string(workload) != someWorkload {
		t.Fatalf("got %q, want %q", workload, someWorkload)
	}
	if id, sent, ok := Sized(WorkloadLen)(workload); id != someID || sent != someTime || !ok {
		t.Errorf("got id %d, time %d, %v", id, sent, ok)
	}
	for _, damaged := range [][]byte{workload[1:], append([]byte{0}, workload[:99]...), nil} {
		if _, _, ok := Sized(WorkloadLen)(damaged); ok {
			t.Errorf("%q was accepted", damaged)
		}
	}
}

// TestSizedWorkload does the same for other sizes. The shortest has no room for the time.
func TestSizedWorkload(t *testing.T) {
	for _, size := range []int{10, 16, 17, 1 << 10} {
		workload := Workload(size)
		PutWorkload(workload, someID, someTime)
		want := int64(someTime)
		if size < timedLen {
			want = 0
		}
		if id, sent, ok := Sized(size)(workload); id != someID || sent != want || !ok {
			t.Errorf("%d bytes: got id %d, time %d, %v", size, id, sent, ok)
		}
		if _, _, ok := Sized(size)(workload[:size-1]); ok {
			t.Errorf("%d bytes: a short workload was accepted", size)
		}
	}
}

// TestTextWorkload checks the round trip, that it is JSON, and that a damaged workload is not accepted.
func TestTextWorkload(t *testing.T) {
	workload := TextWorkload()
	PutText(workload, someID, someTime)
	if string(workload) != someText || !json.Valid(workload) || len(workload) != WorkloadLen {
		t.Fatalf("got %s", workload)
	}
	if id, sent, ok := ParseText(workload); id != someID || sent != someTime || !ok {
		t.Errorf("got id %d, time %d, %v", id, sent, ok)
	}
	for at := range workload {
		damaged := bytes.Clone(workload)
		damaged[at] = 'G'
		if _, _, ok := ParseText(damaged); ok {
			t.Errorf("%s was accepted", damaged)
		}
	}
	if _, _, ok := ParseText(workload[1:]); ok {
		t.Error("a cut workload was accepted")
	}
}

// TestQuantiles records runs of equal values, as a pipeline does, and one value beyond the histogram's range.
func TestQuantiles(t *testing.T) {
	l := NewLatencies()
	for range 980 {
		l.Record(50_000)
	}
	for range 19 {
		l.Record(200_000)
	}
	l.Record(2 * latencyHighest)
	q := l.Quantiles()
	about := func(name string, got, want float64) {
		t.Helper()
		if got < want*0.998 || got > want*1.002 {
			t.Errorf("%s: got %v us, want about %v", name, got, want)
		}
	}
	about("p50", q.P50, 50)
	about("p99", q.P99, 200)
	about("p99.9", q.P999, 200)
	about("highest", q.Max, latencyHighest/1000)
	if l.histogram.TotalCount() != 1000 {
		t.Errorf("got %d values, want 1000", l.histogram.TotalCount())
	}
}
