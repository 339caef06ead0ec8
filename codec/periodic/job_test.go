package periodic

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestJobRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Job{
			Func:     rapid.SliceOfN(rapid.Byte(), 0, MaxStr8).Draw(t, "func"),
			Name:     rapid.SliceOfN(rapid.Byte(), 0, MaxStr8).Draw(t, "name"),
			Workload: rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "workload"),
			SchedAt:  rapid.Int64().Draw(t, "sched_at"),
			Count:    rapid.OneOf(rapid.Just(int32(0)), rapid.Int32()).Draw(t, "count"),
			Timeout:  rapid.OneOf(rapid.Just(int32(0)), rapid.Int32()).Draw(t, "timeout"),
		}
		record := AppendJob(nil, &want)
		for cut := range record {
			var j Job
			if n, err := ParseJob(record[:cut:cut], &j); n != 0 || !errors.Is(err, ErrTruncated) {
				t.Fatalf("cut at %d: %d, %v", cut, n, err)
			}
		}
		j := Job{Count: 3, Timeout: 4} // as an earlier record would leave it
		n, err := ParseJob(append(record, "behind"...), &j)
		if err != nil || n != len(record) {
			t.Fatalf("%d, %v, want %d", n, err, len(record))
		}
		if !bytes.Equal(j.Func, want.Func) || !bytes.Equal(j.Name, want.Name) || !bytes.Equal(j.Workload, want.Workload) ||
			j.SchedAt != want.SchedAt || j.Count != want.Count || j.Timeout != want.Timeout {
			t.Fatalf("wrote %+v, read %+v", want, j)
		}
		if cap(j.Func) != len(j.Func) || cap(j.Name) != len(j.Name) || cap(j.Workload) != len(j.Workload) {
			t.Fatal("an append to a view would write behind it")
		}
	})
}

func TestJobVersions(t *testing.T) {
	f := func(count, timeout int32, tail string) {
		t.Helper()
		want := unhex(t, "0166 016e 00000001 77"+"0000000000000001"+tail)
		j := Job{Func: []byte("f"), Name: []byte("n"), Workload: []byte("w"), SchedAt: 1, Count: count, Timeout: timeout}
		if got := AppendJob(nil, &j); !bytes.Equal(got, want) {
			t.Fatalf("written as %x, want %x", got, want)
		}
		if got := AppendJobTail(nil, 1, count, timeout); !bytes.Equal(got, want[9:]) {
			t.Fatalf("tail written as %x, want %x", got, want[9:])
		}
	}
	f(0, 0, "00")
	f(7, 0, "01 00000007")
	f(0, 10, "02 0000000a")
	f(1, 10, "03 00000001 0000000a")
	f(-1, 0, "01 ffffffff")
}

func TestParseJob(t *testing.T) {
	f := func(in string, n int, count, timeout int32, want error) {
		t.Helper()
		j := Job{Count: 99, Timeout: 99}
		got, err := ParseJob(unhex(t, in), &j)
		if got != n || !errors.Is(err, want) {
			t.Fatalf("%s: %d, %v, want %d, %v", in, got, err, n, want)
		}
		if err == nil && (j.Count != count || j.Timeout != timeout) {
			t.Fatalf("%s: count %d, timeout %d", in, j.Count, j.Timeout)
		}
	}
	f("00 00 00000000 0000000000000000 00", 15, 0, 0, nil) // empty func and name
	f("0166 016e 00000000 0000000000000000 00 00000007", 17, 0, 0, nil)
	f("0166 016e 00000000 0000000000000000 01 00000000", 21, 0, 0, nil)
	f("0166 016e 00000000 0000000000000000 02 0000000a", 21, 0, 10, nil)
	f("0166 016e 00000000 0000000000000000 03 00000001 0000000a", 25, 1, 10, nil)
	f("0166 016e 00000000 0000000000000000 04 00000001 0000000a", 0, 0, 0, ErrVersion)
	f("0166 016e 00000000 0000000000000000 ff", 0, 0, 0, ErrVersion)
	f("0166 016e 00000000 0000000000000000 01 000000", 0, 0, 0, ErrTruncated)
	f("0166 016e 00000000 0000000000000000 03 00000001", 0, 0, 0, ErrTruncated)
	f("0166 016e ffffffff 0000000000000000 00", 0, 0, 0, ErrTruncated) // a workload of 4 GiB
	f("ff66 016e 00000000 0000000000000000 00", 0, 0, 0, ErrTruncated)
	f("0166 ff6e 00000000 0000000000000000 00", 0, 0, 0, ErrTruncated)
	f("05 6162", 0, 0, 0, ErrTruncated)
	f("", 0, 0, 0, ErrTruncated)
}
