package main

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"treadle/loop/client"
	"treadle/loop/journal"
)

func TestStatusTable(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	f := func(rows []client.Queue, want string) {
		t.Helper()
		var got bytes.Buffer
		if err := writeTable(&got, rows, now); err != nil || got.String() != want {
			t.Errorf("got\n%s%v, want\n%s", got.String(), err, want)
		}
	}
	f(nil, "FUNCTION  WORKERS  JOBS  RUNNING  NEXT\n")
	f([]client.Queue{
		{Func: "resize", Workers: 12, Jobs: 123456, Running: 12, Next: 0},
		{Func: "größe", Jobs: 1, Next: 1_000_090},
		{Func: "idle", Workers: 1, Jobs: 1, Running: 1, Next: 1_000_000},
		{Func: "a\nb\x1b", Jobs: 1, Next: 5_000_000_000},
	}, ""+
		"FUNCTION    WORKERS    JOBS  RUNNING        NEXT\n"+
		"resize           12  123456       12         now\n"+
		"größe             0       1        0    in 1m30s\n"+
		"idle              1       1        1           -\n"+
		"\"a\\nb\\x1b\"        0       1        0  2128-06-11\n")
	locked := int64(3)
	f([]client.Queue{{Func: "f", Jobs: 5, Locked: &locked}}, ""+
		"FUNCTION  WORKERS  JOBS  RUNNING  LOCKED  NEXT\n"+
		"f               0     5        0       3   now\n")
	n := func(v int64) *int64 { return &v }
	f([]client.Queue{{Func: "f", Workers: 1, Jobs: 15, Running: 1, Locked: n(2), Delayed: n(3), Waiting: n(4)}}, ""+
		"FUNCTION  WORKERS  JOBS  RUNNING  READY  DELAYED  LOCKED  WAITING  NEXT\n"+
		"f               1    15        1      5        3       2        4   now\n")
	f([]client.Queue{{Func: "f", Failed: n(2)}, {Func: "g", Failed: n(0)}}, ""+
		"FUNCTION  WORKERS  JOBS  RUNNING  FAILED  NEXT\n"+
		"f               0     0        0       2     -\n"+
		"g               0     0        0       0     -\n")
	f([]client.Queue{{Func: "g", Failed: n(0)}}, ""+
		"FUNCTION  WORKERS  JOBS  RUNNING  NEXT\n"+
		"g               0     0        0     -\n")
	f([]client.Queue{{Func: "f", Jobs: 5, Running: 2, Locked: &locked, Next: math.MinInt64}, {Func: "g", Jobs: 6, Running: 2, Locked: &locked, Next: math.MinInt64}}, ""+
		"FUNCTION  WORKERS  JOBS  RUNNING  LOCKED  NEXT\n"+
		"f               0     5        2       3     -\n"+
		"g               0     6        2       3   now\n")
}

func TestStatusJSON(t *testing.T) {
	t.Parallel()
	f := func(rows []client.Queue, want string) {
		t.Helper()
		var got bytes.Buffer
		if err := writeLines(&got, statusRows(rows)); err != nil || got.String() != want {
			t.Errorf("got %s, %v, want %s", got.String(), err, want)
		}
	}
	f(nil, "")
	f([]client.Queue{{Func: "a<b", Workers: 1, Jobs: 2, Running: 1, Next: 9}}, `{"function":"a<b","workers":1,"jobs":2,"running":1,"next":9}`+"\n")
	locked := int64(0)
	f([]client.Queue{{Func: "f", Locked: &locked}}, `{"function":"f","workers":0,"jobs":0,"running":0,"locked":0,"next":null}`+"\n")
	n := func(v int64) *int64 { return &v }
	f([]client.Queue{{Func: "f", Workers: 1, Jobs: 15, Running: 1, Locked: n(2), Delayed: n(3), Waiting: n(4), Next: 9}},
		`{"function":"f","workers":1,"jobs":15,"running":1,"ready":5,"delayed":3,"locked":2,"waiting":4,"next":9}`+"\n")
	f([]client.Queue{{Func: "f", Failed: n(2)}}, `{"function":"f","workers":0,"jobs":0,"running":0,"failed":2,"next":null}`+"\n")
}

// TestStatusChoice: rows are sorted by name, and functions without workers and jobs are shown with --all only.
func TestStatusChoice(t *testing.T) {
	t.Parallel()
	failed := int64(1)
	rows := func() []client.Queue {
		return []client.Queue{{Func: "b", Jobs: 1}, {Func: "empty"}, {Func: "a", Workers: 1}, {Func: "B", Jobs: 1}, {Func: "c", Failed: &failed}}
	}
	f := func(all bool, want string) {
		t.Helper()
		var names []string
		for _, q := range (&statusCmd{All: all}).choose(rows()) {
			names = append(names, q.Func)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("all %v: %s, want %s", all, got, want)
		}
	}
	f(false, "B a b c")
	f(true, "B a b c empty")
}

// TestReplaceFile: a dump that fails leaves the older file as it was, and no other file.
func TestReplaceFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "jobs.dump")
	write := func(text string, err error) error {
		return replaceFile(path, func(w io.Writer) error {
			_, _ = io.WriteString(w, text)
			return err
		})
	}
	want := func(text string) {
		t.Helper()
		got, _ := os.ReadFile(path)
		entries, err := os.ReadDir(dir)
		if string(got) != text || len(entries) != 1 || err != nil {
			t.Errorf("got %q among %v, %v, want %q", got, entries, err, text)
		}
	}
	f := func(old, next string) {
		t.Helper()
		broken := errors.New("broken")
		if err := write("half", broken); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		want(old)
		if err := write(next, nil); err != nil {
			t.Fatal(err)
		}
		want(next)
	}
	if err := write("one", nil); err != nil {
		t.Fatal(err)
	}
	f("one", "two")
	file := path
	path = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, path); err != nil {
		t.Fatal(err)
	}
	f("two", "three")
	if info, err := os.Lstat(path); err != nil || info.Mode().IsRegular() {
		t.Errorf("the link is now %v, %v", info, err)
	}
	missing := filepath.Join(dir, "missing", "f")
	for path, want := range map[string]string{missing: "cannot write " + missing + ": no such file or directory", dir: "cannot write " + dir + ": it is a directory"} {
		if err := replaceFile(path, func(io.Writer) error { return nil }); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := replaceFile("/dev/null", func(w io.Writer) error { _, err := io.WriteString(w, "x"); return err }); err != nil {
		t.Errorf("a device: %v", err)
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode().IsRegular() {
		t.Errorf("/dev/null is now %v, %v", info, err)
	}
}

// TestSized: a stream without a size is spooled; a file is loaded from where it stands.
func TestSized(t *testing.T) {
	t.Parallel()
	f := func(what string, r io.Reader, want string) {
		t.Helper()
		file, size, err := sized(r)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		defer file.Close()
		got, err := io.ReadAll(file)
		if err != nil || string(got) != want || size != int64(len(want)) {
			t.Errorf("%s: got %q of %d bytes, %v, want %q", what, got, size, err, want)
		}
	}
	f("a reader", strings.NewReader("hello"), "hello")
	file, err := os.Open(config(t, "hello"))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Seek(2, io.SeekStart)
	f("a file", file, "llo")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, "piped")
	w.Close()
	defer r.Close()
	f("a pipe", r, "piped")
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, _, err := sized(dir); err == nil {
		t.Error("a directory was accepted")
	}
}

// TestLogSpellsTimes: the log has times as flags are written, 5m instead of 5m0s, and JSON has numbers.
func TestLogSpellsTimes(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"text": " drain=5m frame=1m30s max-frame=64MiB\n", "json": `"drain":300000000000,"frame":90000000000,"max-frame":67108864}` + "\n"} {
		var b strings.Builder
		newLog(&b, levelOf("info"), format).Info("m", "drain", 5*time.Minute, "frame", 90*time.Second, "max-frame", journal.Size(64<<20))
		if !strings.HasSuffix(b.String(), want) {
			t.Errorf("%s: %q, want %q at its end", format, b.String(), want)
		}
	}
}
