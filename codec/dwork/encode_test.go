package dwork

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestAppend holds what is written to protobuf's own encoder.
func TestAppend(t *testing.T) {
	f := func(got []byte, message string) {
		t.Helper()
		if want := text(t, message); !bytes.Equal(got, want) {
			t.Errorf("%s: got %x, want %x", message, got, want)
		}
	}
	b := func(s string) []byte { return []byte(s) }
	long := strings.Repeat("n", 300)
	log := AppendLog(AppendLog(nil, LogEntry{Ready, 1}), LogEntry{Stolen, 1795239303402178})
	deps := AppendSucc(AppendPred(nil, Dep{b("p"), nil}), Dep{b(long), b("")})

	f(AppendType(nil, Error), `type: Error`)
	f(AppendN(AppendName(AppendType(nil, OK), b("dhub: 1 active tasks, 0 ready.")), 0), `type: OK name: "dhub: 1 active tasks, 0 ready." n: 0`)
	f(AppendLocation(AppendN(AppendType(nil, Steal), -1), b("w")), `type: Steal n: -1 location: "w"`)
	f(AppendName(AppendType(nil, Lookup), nil), `type: Lookup name: ""`)
	f(AppendTask(AppendType(nil, NotFound), b("a"), b("")), `type: NotFound task { name: "a" origin: "" }`)
	f(AppendTask(AppendTask(AppendType(nil, Transfer), b("a"), b("h"), log), b(long), b("h")),
		`type: Transfer task { name: "a" origin: "h" log { state: Ready time: 1 } log { state: Stolen time: 1795239303402178 } } task { name: "`+long+`" origin: "h" }`)
	f(AppendLocation(AppendTask(AppendType(nil, OK), b("a"), b("h"), deps, log), b("w")),
		`type: OK task { name: "a" origin: "h" pred { name: "p" } succ { name: "`+long+`" location: "" } log { state: Ready time: 1 } log { state: Stolen time: 1795239303402178 } } location: "w"`)
	f(AppendTask(AppendType(nil, OK), nil, nil, AppendLog(nil, LogEntry{Pending, -1})), `type: OK task { name: "" origin: "" log { state: Pending time: -1 } }`)
}

// TestAppendKeeps checks that encoders add to what is there.
func TestAppendKeeps(t *testing.T) {
	var q Query
	if err := q.parse(text(t, everything), maxFields); err != nil {
		t.Fatal(err)
	}
	if got := rewrite([]byte("before"), &q); string(got) != "before"+string(text(t, everything)) {
		t.Errorf("got %q", got)
	}
}

// block returns a message with that many tasks as the bench sends them.
func block(tb testing.TB, head string, tasks int) []byte {
	var s strings.Builder
	s.WriteString(head)
	for i := range tasks {
		fmt.Fprintf(&s, ` task { name: "task-%08d" origin: "host-1" }`, i)
	}
	return text(tb, s.String())
}

// TestNoAllocations reads and writes without a byte of memory, the growth of the caller's slice aside.
func TestNoAllocations(t *testing.T) {
	in := block(t, `type: Complete location: "w"`, 16)
	full := text(t, everything)
	var q Query
	var out []byte
	f := func(what string, fn func()) {
		t.Helper()
		fn()
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	f("Decode", func() {
		if Decode(in, &q) != nil || q.Count != 16 {
			t.Fatal("not decoded")
		}
	})
	f("the parts", func() {
		names := 0
		if q.parse(full, maxFields) != nil {
			t.Fatal("not decoded")
		}
		for task := range q.Tasks {
			for d := range task.Pred {
				names += len(d.Name)
			}
			for d := range task.Succ {
				names += len(d.Name)
			}
			for e := range task.Log {
				names += int(e.State)
			}
		}
		if names != 3+int(Stolen+Recorded) {
			t.Fatal(names)
		}
	})
	f("a reply", func() {
		out = AppendType(out[:0], Transfer)
		var log [24]byte
		entry := AppendLog(log[:0], LogEntry{Stolen, 1795239303402178})
		for task := range q.Tasks {
			out = AppendTask(out, task.Name, task.Origin, entry)
		}
	})
}

// TestLengths reads names of all sizes of length prefix, short and long messages behind them.
func TestLengths(t *testing.T) {
	for _, size := range []int{0, 1, 127, 128, 129, 200, 255, 256, 300, 1 << 14, 1 << 21} {
		want := bytes.Repeat([]byte("n"), size)
		in := AppendLocation(AppendTask(AppendType(nil, Complete), want, want), want)
		var q Query
		if err := Decode(in, &q); err != nil || !bytes.Equal(q.Location, want) || q.Count != 1 {
			t.Errorf("%d bytes: %v, %d tasks", size, err, q.Count)
			continue
		}
		for task := range q.Tasks {
			if !bytes.Equal(task.Name, want) || !bytes.Equal(task.Origin, want) || cap(task.Name) != size {
				t.Errorf("%d bytes: the name has %d, the origin %d", size, len(task.Name), len(task.Origin))
			}
		}
	}
}
