package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// run1 runs a shell script as treadle work would for one job.
func run1(c child, script string) (result outcome, out, stderr string) {
	var o, e bytes.Buffer
	c.command, c.con = []string{"sh", "-c", script, "script"}, &console{out: &o, err: &e}
	c.name, c.input = "the name", []byte("the workload")
	result = c.run(context.Background())
	return result, o.String(), e.String()
}

func TestChild(t *testing.T) {
	t.Parallel()
	f := func(c child, script, data, out, stderr, fails string, later int64) {
		t.Helper()
		r, o, e := run1(c, script)
		failed := ""
		if r.err != nil {
			failed = r.err.Error()
		}
		if string(r.data) != data || o != out || e != stderr || failed != fails || r.later != later {
			t.Errorf("%s: got %q, %d, %q; stdout %q, stderr %q", script, r.data, r.later, failed, o, e)
		}
	}
	f(child{}, `cat; echo " $1"`, "", "the workload the name\n", "", "", -1)
	f(child{keep: true}, `cat; echo " $1"`, "the workload the name\n", "", "", "", -1)
	f(child{}, `true`, "", "", "", "", -1)
	f(child{}, `exit 3`, "", "", "", "exit status 3", -1)
	f(child{}, `echo no >&2; exit 3`, "", "", "no\n", "exit status 3", -1)
	f(child{}, `echo 30 >&2`, "", "", "30\n", "", 30)
	f(child{keep: true}, `echo x; printf 'wait\n 7 ' >&2`, "x\n", "", "wait\n 7 ", "", 7)
	f(child{}, `echo 30 >&2; echo done >&2`, "", "", "30\ndone\n", "", -1)
	published := ""
	publish := func(_ context.Context, data []byte) { published += string(data) }
	f(child{publish: publish}, `cat; exit 3`, "", "", "", "exit status 3", -1)
	f(child{publish: publish, keep: true}, `echo "; $1"; echo 7 >&2`, "; the name\n", "", "7\n", "", 7)
	if want := "the workload; the name\n"; published != want {
		t.Errorf("published %q, want %q", published, want)
	}
	f(child{timeout: time.Second}, `sleep 60 & sleep 60`, "", "", "", "it took longer than 1s and was killed", -1)
	f(child{timeout: time.Second, jobs: true}, `sleep 60 & sleep 60`, "", "", "", "it took longer than its time-out of 1s and was killed", -1)
}

// TestChildKilled: a command that is killed takes along what it has started: its grandchild no longer holds the other
// end of a pipe.
func TestChildKilled(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	opened := make(chan *os.File, 1)
	go func() {
		defer cancel()
		r, err := os.Open(fifo) // waits for the grandchild
		if err != nil {
			t.Error(err)
		}
		opened <- r
	}()
	var out, stderr bytes.Buffer
	c := &child{command: []string{"sh", "-c", "sleep 300 > $0 & wait"}, name: fifo, con: &console{out: &out, err: &stderr}}
	if r := c.run(ctx); r.err == nil {
		t.Error("a killed command counts as done")
	}
	r := <-opened
	defer r.Close()
	r.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(r); err != nil {
		t.Errorf("what the command had started still runs: %v", err)
	}
}

func TestLastLine(t *testing.T) {
	t.Parallel()
	f := func(text string, want int64) {
		t.Helper()
		for step := 1; step <= len(text)+1; step++ {
			var l lastLine
			for rest := text; rest != ""; {
				n := min(step, len(rest))
				fmt.Fprint(&l, rest[:n])
				rest = rest[n:]
			}
			if got := l.seconds(); got != want {
				t.Errorf("%q in pieces of %d: got %d, want %d", text, step, got, want)
			}
		}
	}
	f("", -1)
	f("5", 5)
	f("5\n", 5)
	f("x\n5\n\n  \n", 5)
	f("5\nx", -1)
	f("-5\n", -1)
	f("5 s\n", -1)
	f("9223372036854775807\n", 9223372036854775807)
	f("9223372036854775808\n", -1)
	f(strings.Repeat("0", 70)+"5\n", -1)
	f(strings.Repeat(" ", 70)+"5\n6", 6)
}

func TestResultTooLarge(t *testing.T) {
	t.Parallel()
	r, _, _ := run1(child{keep: true}, `head -c 67108864 /dev/zero`)
	if r.err == nil || !strings.Contains(r.err.Error(), "larger than") {
		t.Errorf("got %v and %d bytes", r.err, len(r.data))
	}
}
