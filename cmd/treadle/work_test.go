package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"treadle/loop/client"
)

// TestWorkSaysWhatItDoes: where it waits, which limit holds, a line for each job when asked, and how many it
// finishes after the first signal.
func TestWorkSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, fifo := filepath.Join(dir, "s"), filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, socket)
	u := user{t, socket}
	begins := func(want string, args ...string) *process {
		t.Helper()
		p := start(t, false, append([]string{"-H", socket, "work"}, args...)...)
		if line := p.until("waiting"); line != `treadle: waiting for jobs of "f" at unix://`+socket+"; "+want {
			t.Errorf("%q: %s, want %s", args, line, want)
		}
		return p
	}
	begins("a command may take 10m, unless its job says otherwise, and is then killed", "f", "--", "cat").stop()
	begins("a command may take 1m30s (--timeout), and is then killed", "f", "--timeout", "90", "--", "cat").stop()
	for _, long := range []string{"0", "11m"} {
		p := start(t, false, "-H", socket, "work", "f", "--timeout", long, "--", "cat")
		p.until("waiting")
		p.until("longer than the server's 10m, or its own time-out, is handed out again meanwhile, and its result does not count")
		p.stop()
	}
	u.gets("", "config set timeout 0")
	begins("a command may take as long as its job says, if it does", "f", "--", "cat").stop()
	u.gets("", "config set timeout 600")

	worker := begins("a command may take 10m, unless its job says otherwise, and is then killed", "f", "-v", "--thread", "2", "--", "sh", "-c", `test "$0" = quick || read line < `+fifo)
	u.gets("", "submit f quick")
	if line := worker.until("quick"); !regexp.MustCompile(`^treadle: "f" "quick" is done in [0-9]+ms$`).MatchString(line) {
		t.Errorf("of a job it says %s", line)
	}
	u.gets("", "submit f a")
	u.gets("", "submit f b")
	u.eventually(`.*\nf +1 +2 +2 .*`, "status")
	worker.signal(syscall.SIGINT)
	worker.until("taking no more jobs, finishing 2 jobs; a second signal kills what runs")
	gate, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	if _, err := gate.WriteString("\n\n"); err != nil {
		t.Fatal(err)
	}
	worker.exit(0)
}

// TestWorkEndsOnTime: a command, and all that it has started, ends at its job's own time-out, else at the server's,
// unless --timeout says otherwise; then it is said that the result comes too late.
func TestWorkEndsOnTime(t *testing.T) {
	longFor(t)
	t.Parallel()
	for _, framing := range []string{"auto", "2018"} {
		t.Run(framing, func(t *testing.T) {
			t.Parallel()
			worksOnTime(t, framing)
		})
	}
}

// worksOnTime is TestWorkEndsOnTime in one framing.
func worksOnTime(t *testing.T, framing string) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket)
	u := user{t, socket}
	work := func(flags ...string) *process {
		args := append([]string{"-H", socket, "--framing", framing, "work", "f"}, flags...)
		return start(t, false, append(args, "--", "sh", "-c", `case $0 in slow*) sleep 60 & wait;; late) sleep 3;; esac`)...)
	}
	worker := work()
	u.gets("", "submit f slow-own --timeout 1")
	worker.until(`"f" "slow-own" failed: it took longer than its time-out of 1s and was killed`)
	u.gets("", "remove f slow-own")
	worker.stop()
	u.gets("", "config set timeout 1")
	worker = work()
	u.gets("", "submit f slow")
	worker.until(`"f" "slow" failed: it took longer than its time-out of 1s and was killed`)
	u.gets("", "remove f slow")
	u.gets("", "submit f late --timeout 60")
	u.eventually(`.*\nf +1 +0 .*`, "status") // it had the time
	worker.stop()

	worker = work("--timeout", "2", "-v")
	u.gets("", "submit f slow --timeout 60")
	worker.until(`"f" "slow" failed: it took longer than 2s and was killed`)
	u.gets("", "remove f slow")
	worker.stop()
	worker = work("--timeout", "0")
	u.gets("", "submit f late")
	line := worker.until(`"f" "late" took `)
	if !strings.HasSuffix(line, "longer than its time-out of 1s: it has been handed out again meanwhile, and this result does not count") {
		t.Errorf("of a result that comes too late it says %s", line)
	}
	worker.stop()
}

// TestWorkLimits: jobs of other protocols have no time-out, which a Treadle shows and another server cannot.
func TestWorkLimits(t *testing.T) {
	t.Parallel()
	f := func(timeout time.Duration, own int32, sendsTimeout bool, limit, given time.Duration) {
		t.Helper()
		p := &workerPool{workCmd: &workCmd{Timeout: timeout}}
		l, g := p.runLimit(serverLimits{timeout: time.Minute, sendsTimeout: sendsTimeout}, &client.Job{Timeout: own})
		if l != limit || g != given {
			t.Errorf("--timeout %v, own %d, sent %v: %v, %v, want %v, %v", timeout, own, sendsTimeout, l, g, limit, given)
		}
	}
	f(ownTimeout, 7, true, 7*time.Second, 7*time.Second)
	f(ownTimeout, 7, false, 7*time.Second, 7*time.Second)
	f(ownTimeout, 0, true, 0, 0)
	f(ownTimeout, 0, false, time.Minute, time.Minute)
	f(0, 7, true, 0, 7*time.Second)
	f(0, 0, false, 0, time.Minute)
	f(time.Hour, 0, false, time.Hour, time.Minute)
}

// TestWorkNames: a name that a command would take for an option does not reach it, unless the command says where
// options end; the environment has it in any case. One with a NUL byte reaches nobody.
func TestWorkNames(t *testing.T) {
	t.Parallel()
	f := func(c child, name, script, want, fails string) {
		t.Helper()
		var out, errs bytes.Buffer
		c.name, c.con = name, &console{out: &out, err: &errs}
		c.command = append([]string{"sh", "-c", script}, c.command...)
		r := c.run(t.Context())
		failed := ""
		if r.err != nil {
			failed = r.err.Error()
		}
		if out.String() != want || !strings.Contains(failed, fails) || (failed == "") != (fails == "") {
			t.Errorf("%q: %q, %q, %q; want %q, %q", name, out.String(), errs.String(), failed, want, fails)
		}
	}
	const option, nul = "its name begins with -, which the command may take for an option: end the command with --, or use", "its name has a NUL byte"
	const show = `echo "$0:$1:$TREADLE_FUNC:$TREADLE_NAME:$TREADLE_TIMEOUT"`
	f(child{function: "f"}, "n", show, "n::f:n:0\n", "")
	f(child{function: "f", timeout: time.Minute}, "n", show, "n::f:n:60\n", "")
	f(child{}, "-rf", show, "", option)
	f(child{}, "-", show, "", option)
	f(child{command: []string{"--"}}, "-rf", show, "--:-rf::-rf:0\n", "")
	f(child{command: []string{"x"}, noName: true}, "-rf", show, "x:::-rf:0\n", "")
	f(child{}, "a\x00b", show, "", nul)
	f(child{command: []string{"--"}}, "-\x00", show, "", nul)
	f(child{command: []string{"x"}, noName: true}, "a\x00b", show, "x::::0\n", "")
}

// TestBackoff: failures in a row are each waited behind, twice as long, up to a limit; a success ends that.
func TestBackoff(t *testing.T) {
	t.Parallel()
	var b backoff

	b.restAfter(t.Context(), true)
	if b.rest != 0 {
		t.Errorf("a success is waited behind for %v", b.rest)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		if b.restAfter(done, false); b.rest != want*time.Millisecond {
			t.Errorf("a failure is waited behind for %v, want %v", b.rest, want*time.Millisecond)
		}
	}
	b.restAfter(done, true)
	if b.restAfter(done, false); b.rest != firstRest {
		t.Errorf("after a success it is %v", b.rest)
	}
}

// TestWorkDoesNotSpin: a job that fails at once is not tried as often as the server hands it out.
func TestWorkDoesNotSpin(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket)
	c, err := client.Dial(patient(t), socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Submit(patient(t), &client.Job{Func: "f", Name: "a\x00b"}); err != nil {
		t.Fatal(err)
	}
	worker := start(t, false, "-H", socket, "work", "f", "--", "true")
	began := time.Now()
	tries := 0
	for tries < 5 && worker.lines.Scan() {
		tries += strings.Count(worker.lines.Text(), `"f" "a\x00b" failed: its name has a NUL byte`)
	}
	if least := (100 + 200 + 400 + 800) * time.Millisecond; tries < 5 || time.Since(began) < least {
		t.Errorf("%d tries in %v, want 5 in %v at least", tries, time.Since(began), least)
	}
	worker.stop()
}

// TestWholeLines: the lines of commands that run at once are not mixed.
func TestWholeLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := newLines(&console{out: &out, err: &out}, 2)
	var writers sync.WaitGroup
	for _, letter := range "abcdefgh" {
		writers.Go(func() {
			to, errs, end := l.open()
			for range 200 {
				for range 10 {
					_, _ = to.Write([]byte(string(letter)))
				}
				_, _ = to.Write([]byte("\n" + strings.Repeat(string(letter), 5)))
				_, _ = errs.Write([]byte(strings.Repeat(string(letter), 3) + "\n"))
				_, _ = to.Write([]byte(strings.Repeat(string(letter), 5) + "\n"))
			}
			_, _ = to.Write([]byte("end of " + string(letter)))
			end()
		})
	}
	writers.Wait()
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 8*(3*200+1)+1 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines[:len(lines)-1] {
		if c := line[:1]; line != strings.Repeat(c, 10) && line != strings.Repeat(c, 3) && !strings.HasPrefix(line, "end of ") {
			t.Errorf("a line is %q", line)
		}
	}
	out.Reset()
	to, _, end := l.open()
	long := strings.Repeat("x", maxWhole+1)
	_, _ = to.Write([]byte(long))
	if out.String() != long {
		t.Errorf("%d of %d bytes of a long line have passed", out.Len(), len(long))
	}
	end()
	direct, _, _ := newLines(&console{out: &out}, 1).open()
	if direct != &out {
		t.Error("one command does not print straight through")
	}
}
