package dwork

import (
	"fmt"
	"strings"
	"testing"

	codec "treadle/codec/dwork"
	"treadle/sched"
)

// TestLargeRequest: a request may have maxParts parts. One more is refused as a whole.
func TestLargeRequest(t *testing.T) {
	parts := func(n int, part []byte) []byte { return []byte(strings.Repeat(string(part), n)) }
	dep, entry := codec.AppendPred(nil, codec.Dep{Name: []byte("p")}), codec.AppendLog(nil, codec.LogEntry{})
	ok, no := string(codec.AppendType(nil, codec.OK)), string(codec.AppendType(nil, codec.Error))
	f := func(what string, create []byte, n int) {
		t.Helper()
		r := newTestHub(t, Options{})
		if got := r.reply(codec.AppendTask(create, []byte("one more"), nil)); got != no {
			t.Errorf("%s: one more is answered %x", what, got)
		}
		if active, _ := r.sched.Backlog(queue); active != 0 {
			t.Errorf("%s: a refused request created %d tasks", what, active)
		}
		if got := r.reply(create); got != ok {
			t.Errorf("%s: answered %x", what, got)
		}
		if active, _ := r.sched.Backlog(queue); active != n {
			t.Errorf("%s: %d tasks, want %d", what, active, n)
		}
	}
	most := maxParts - taskParts
	f("dependencies", codec.AppendTask(codec.AppendType(nil, codec.Create), []byte("t"), nil, parts(most, dep)), 1)
	f("log entries", codec.AppendTask(codec.AppendType(nil, codec.Create), []byte("t"), nil, parts(most, entry)), 1)
	create := codec.AppendType(nil, codec.Create)
	for i := range maxParts / taskParts {
		create = codec.AppendTask(create, fmt.Append(nil, i), nil)
	}
	f("tasks", create, maxParts/taskParts)
}

// TestLongLocation: a worker with too long a location is refused.
func TestLongLocation(t *testing.T) {
	r := newTestHub(t, Options{})
	r.ask(`type: Create task { name: "a" origin: "o" }`)
	for n, want := range map[int]string{maxLocation: "type:NotFound", maxLocation + 1: "type:Error"} {
		location := strings.Repeat("w", n)
		for _, request := range []string{`type: Complete task { name: "b" origin: "" }`, `type: Transfer task { name: "b" origin: "" }`} {
			if got := r.ask(request + ` location: "` + location + `"`); !strings.HasPrefix(got, want) {
				t.Errorf("%s from %d bytes: %.80s, want %s", request, n, got, want)
			}
		}
	}
	if got := r.ask(`type: Steal location: "` + strings.Repeat("v", maxLocation+1) + `"`); got != "type:Error" {
		t.Errorf("a steal is answered %.80s", got)
	}
	if len(r.workers) != 1 {
		t.Errorf("%d workers are known, want 1", len(r.workers))
	}
}

// TestGraphOfLongNames: the graph cuts long names.
func TestGraphOfLongNames(t *testing.T) {
	r := newTestHub(t, Options{})
	long := strings.Repeat("\x00", 1<<20)
	r.reply(codec.AppendTask(codec.AppendType(nil, codec.Create), []byte("p"), nil))
	r.reply(codec.AppendTask(codec.AppendType(nil, codec.Create), []byte("begin"+long+"end"), nil, codec.AppendPred(nil, codec.Dep{Name: []byte("p")})))
	var line []byte
	for cursor, done := (sched.Cursor{}), false; !done; {
		cursor, done = r.sched.WalkTasks(cursor, sched.WalkBatch, Space, func(v *sched.TaskView) { line = appendDotTask(line, v) })
	}
	if got := string(line); len(got) > 20*maxDotName || strings.Count(got, `"begin`) != 2 || strings.Count(got, `end (1048584 bytes)"`) != 2 {
		t.Errorf("%d bytes: %.200q", len(got), got)
	}
}
