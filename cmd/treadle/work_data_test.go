package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWorkDataLines: the convention of the original's periodic-run --work-data, however the output is cut.
func TestWorkDataLines(t *testing.T) {
	t.Parallel()
	f := func(out string, want []string, result string) {
		t.Helper()
		for size := 1; size <= len(out)+1; size++ {
			var got []string
			w := &workData{most: 100, publish: func(_ context.Context, b []byte) { got = append(got, string(b)) }}
			for piece := range slices.Chunk([]byte(out), size) {
				w.take(t.Context(), piece)
			}
			w.end(t.Context())
			if !slices.Equal(got, want) || string(w.result) != result || w.err != nil {
				t.Errorf("%q in pieces of %d: data %q, result %q, %v; want %q, %q", out, size, got, w.result, w.err, want, result)
			}
		}
	}
	f("WORKDATA one\nWORKDATA two\nWORKDONE all\n", []string{"one", "two"}, "all")
	f("WORKDATA:one\nWORKDONE", []string{"one"}, "")
	f("WORKDATA\nWORKDATA \nWORKDATAx\nWORKDATA last", []string{"", "", "", "last"}, "")
	f("WORKDATA a\nother\nWORKDATA late\nWORKDONE late\n", []string{"a"}, "\nother")
	f("\nWORKDONE late\n", nil, "\n")
	f("work", nil, "\nwork")
	f("", nil, "")
	w := &workData{most: 3}
	w.take(t.Context(), []byte("abc"))
	w.take(t.Context(), []byte("d\n"))
	if w.end(t.Context()); w.err == nil || w.result != nil {
		t.Errorf("a line that is too long: %q, %v", w.result, w.err)
	}
}

// TestWorkData: treadle run --data prints what a command of treadle work --work-data sends, and its result; without --
// before the command, too. A command that fails sends no result.
func TestWorkData(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket)
	u := user{t, socket}
	script := config(t, `#!/bin/sh
echo "WORKDATA one of $1"
echo "WORKDATA two"
echo "WORKDONE all"
test "$1" != bad
`)
	worker := start(t, false, "-H", socket, "work", "f", "--data", "--work-data", "sh", script)
	worker.until("waiting")
	u.gets("Data: one of n\nData: two\nResult: all\n", "run f n --data")
	u.gets("all", "run f n")
	u.fails(`treadle: cannot run "f" "bad" at .*: the job failed, took longer than its time-out, or a policy of its queue ended it: treadle job show .* "bad" says what becomes of it\n`, "run f bad")
	u.gets("", "remove f bad")
	worker.stop()
	if _, errs, code := treadle(t, "", "-H", socket, "--framing", "2018", "work", "f", "--work-data", "cat"); code != 2 || !strings.Contains(errs, "need the framing of today") {
		t.Errorf("in 2018: exit code %d, %s", code, errs)
	}
}

// TestLaterLine: the last line of standard error puts a job off only when that was asked for.
func TestLaterLine(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket)
	u := user{t, socket}
	worker := start(t, false, "-H", socket, "work", "f", "-v", "--later-line", "--", "sh", "-c", "echo 3600 >&2")
	worker.until("waiting")
	u.gets("", "submit f n")
	worker.until(`"f" "n" is put off by 3600 s`)
	worker.stop()
	u.gets("", "remove f n")
	worker = start(t, false, "-H", socket, "work", "f", "-v", "--", "sh", "-c", "echo 3600 >&2")
	worker.until("waiting")
	u.gets("", "submit f n")
	worker.until(`"f" "n" is done in `)
	worker.stop()
}
