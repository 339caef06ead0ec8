package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"treadle/codec/periodic"
)

// TestCheckDump checks that a dump cut at any byte, a dump with extra bytes, and another file are
// refused.
func TestCheckDump(t *testing.T) {
	whole := binary.BigEndian.AppendUint64(nil, 4)
	for _, j := range []periodic.Job{
		{}, {Func: []byte("f"), Name: []byte("n"), Workload: []byte("w"), Count: 3},
		{Func: bytes.Repeat([]byte("f"), 255), Timeout: 7}, {Workload: make([]byte, 3*copyBuffer), SchedAt: -1, Count: 1, Timeout: 1},
	} {
		whole = periodic.AppendJob(whole, &j)
	}
	check := func(b []byte) (int64, error) { return CheckDump(bytes.NewReader(b), int64(len(b))) }
	if n, err := check(whole); n != 4 || err != nil {
		t.Errorf("a dump: %d, %v", n, err)
	}
	if n, err := check(make([]byte, 8)); n != 0 || err != nil {
		t.Errorf("a dump of nothing: %d, %v", n, err)
	}
	refuses := func(what string, b []byte, says string) {
		t.Helper()
		_, err := check(b)
		if wrong := (*DumpError)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", what, err, says)
		}
	}
	for n := range 600 {
		refuses("a cut dump", whole[:n], "")
		refuses("a dump cut near its end", whole[:len(whole)-1-n], "")
	}
	refuses("an empty file", nil, "it has 0 bytes, and a dump has at least 8")
	refuses("a byte", []byte{0}, "it has 1 byte, and a dump has at least 8")
	refuses("a byte too many", append(append([]byte(nil), whole...), 0), "it has 1 byte behind its 4 jobs")
	refuses("a byte behind a job", append(periodic.AppendJob([]byte{0, 0, 0, 0, 0, 0, 0, 1}, &periodic.Job{}), 0), "it has 1 byte behind its 1 job,")
	refuses("a cut dump", whole[:len(whole)-1], "ends inside job 4 of 4")
	refuses("two dumps", append(append([]byte(nil), whole...), whole...), "behind its 4 jobs")
	refuses("text", []byte(strings.Repeat("time=2026 level=INFO\n", 50)), "does not begin with a number of jobs")
	refuses("a large number", append([]byte{0, 0, 0, 0, 0, 0, 0, 9}, make([]byte, 20)...), "too short")
	wrong := append([]byte(nil), whole...)
	wrong[8+minJobLen-1] = 4
	refuses("another version", wrong, "version")
	if _, err := CheckDump(iotest.ErrReader(io.ErrClosedPipe), 100); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}
