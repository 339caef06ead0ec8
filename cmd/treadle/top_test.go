package main

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"treadle/loop/client"
)

// frames are what a program writes to a terminal, cut at a sequence.
type frames struct {
	in   io.Reader
	held string
}

func newFrames(in io.Reader) *frames { return &frames{in: in} }

// read reads once; false: the terminal has ended.
func (f *frames) read() bool {
	buffer := make([]byte, 4096)
	n, err := f.in.Read(buffer)
	f.held += string(buffer[:n])
	return err == nil
}

// next returns the text between two of the sequences.
func (f *frames) next(t *testing.T, sequence string) string {
	t.Helper()
	for {
		if _, behind, found := strings.Cut(f.held, sequence); found {
			if frame, _, whole := strings.Cut(behind, sequence); whole {
				f.held = behind[len(frame):]
				return frame
			}
		}
		if !f.read() {
			t.Fatalf("the terminal ended with %q", f.held)
		}
	}
}

// until returns the first frame of treadle top that has a text, as lines.
func (f *frames) until(t *testing.T, text string) []string {
	t.Helper()
	for {
		frame := strings.ReplaceAll(strings.ReplaceAll(f.next(t, firstLine), clearLine, ""), clearBehind, "")
		if strings.Contains(frame, text) {
			return strings.Split(frame, "\r\n")
		}
	}
}

// rest returns what comes until the terminal ends.
func (f *frames) rest() string {
	for f.read() {
	}
	return f.held
}

// column returns the queues of a frame in their order.
func column(lines []string) (names []string) {
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "QUEUE ") })
	for _, line := range lines[at+1:] {
		if name, rest, ok := strings.Cut(line, " "); ok && strings.Contains(rest, " ") && line != topKeys && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// topTerminal is a terminal on which treadle top runs, and the hand at its keys.
type topTerminal struct {
	*testing.T
	master, terminal *os.File
	before           unix.Termios
	cmd              *exec.Cmd
	*frames
}

func newTopTerminal(t *testing.T) *topTerminal {
	x := &topTerminal{T: t}
	x.master, x.terminal = openTerminal(t)
	x.before = x.modes()
	x.size(24, 120)
	return x
}

func (x *topTerminal) size(lines, columns uint16) {
	x.Helper()
	if err := unix.IoctlSetWinsize(int(x.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns}); err != nil {
		x.Fatal(err)
	}
}

func (x *topTerminal) modes() unix.Termios {
	x.Helper()
	m, err := unix.IoctlGetTermios(int(x.master.Fd()), unix.TCGETS)
	if err != nil {
		x.Fatal(err)
	}
	return *m
}

// begin starts treadle top.
func (x *topTerminal) begin(o user, every string) {
	x.Helper()
	x.cmd = exec.Command(binary, "-H", o.host, "top", "--every", every)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = x.terminal, x.terminal, x.terminal
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { _ = x.cmd.Process.Kill() })
	x.frames = newFrames(x.master)
}

func (x *topTerminal) press(key string) {
	x.Helper()
	if _, err := io.WriteString(x.master, key); err != nil {
		x.Fatal(err)
	}
}

// ends waits for the end of the program, and checks that the terminal is as before.
func (x *topTerminal) ends() {
	x.Helper()
	for !strings.Contains(x.held, leaveScreen) && x.read() {
	}
	if err := x.cmd.Wait(); err != nil || !strings.HasSuffix(strings.TrimSpace(x.held), leaveScreen) {
		x.Errorf("it ends with %v, %q", err, x.held)
	}
	if after := x.modes(); after != x.before {
		x.Errorf("the terminal has %+v, had %+v", after, x.before)
	}
}

// TestTop presses the keys of treadle top, and looks at its frames. It leaves the terminal as it was.
func TestTop(t *testing.T) {
	t.Parallel()
	server, o, u := operated(t)
	for _, job := range []string{"alpha 1", "beta 1", "beta 2", "gamma 1 --later 1h"} {
		u.gets("", "submit "+job)
	}
	x := newTopTerminal(t)
	x.begin(o, "100ms")
	lines := x.until(t, "gamma")
	if got := strings.Join(column(lines), " "); got != "beta alpha gamma" || lines[len(lines)-1] != topKeys || !strings.HasPrefix(lines[1], "jobs     3 ready  0 running  1 delayed") {
		t.Errorf("by ready jobs: %q\n%s", got, strings.Join(lines, "\n"))
	}
	x.press("n")
	for strings.Join(column(lines), " ") != "alpha beta gamma" {
		lines = x.until(t, "gamma")
	}
	x.press("?")
	if lines = x.until(t, topKeyHelp[0]); slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "QUEUE") }) {
		t.Errorf("the help is beside the queues: %q", lines)
	}
	x.press("?")
	x.until(t, "gamma")
	x.press(" ")
	held := x.until(t, "[held]")
	u.gets("", "submit delta 1")
	for range 5 {
		if lines = x.until(t, "treadle"); !slices.Equal(lines, held) {
			t.Errorf("a held frame changes from %q to %q", held, lines)
		}
	}
	x.press(" ")
	x.until(t, "delta")
	x.size(9, 40)
	for lines = x.until(t, "treadle"); len(lines) != 9; {
		lines = x.until(t, "treadle")
	}
	for _, line := range lines {
		if len(line) > 40 {
			t.Errorf("a terminal of 40 columns has the line %q", line)
		}
	}
	server.stop()
	x.size(24, 200)
	x.until(t, "[cannot connect to unix://")
	x.press("q")
	x.ends()
}

// TestTopEnds ends treadle top by signals.
func TestTopEnds(t *testing.T) {
	t.Parallel()
	server, o, _ := operated(t)
	x := newTopTerminal(t)
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		x.begin(o, "100ms")
		x.until(t, "QUEUE")
		if err := x.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		x.ends()
	}
	server.stop()
}

// TestTopResized gives treadle top another size between two frames.
func TestTopResized(t *testing.T) {
	t.Parallel()
	server, o, _ := operated(t)
	x := newTopTerminal(t)
	x.begin(o, "1h") // so that each frame but the first is of a new size
	hangs := time.AfterFunc(patience, func() { _, _ = io.WriteString(x.master, "q") })
	for _, columns := range []uint16{0, 100, 90} {
		if columns > 0 {
			x.held = ""
			x.size(24, columns)
		}
		for !strings.Contains(x.held, topKeys) {
			if !x.read() || strings.Contains(x.held, leaveScreen) {
				t.Fatalf("no frame follows a resize: %q", x.held)
			}
		}
	}
	hangs.Stop()
	x.press("\x03")
	x.ends()
	server.stop()
}

// TestTopOnce: --once prints a frame without a terminal and its sequences; without it a terminal is needed.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	server, o, u := operated(t)
	u.gets("", "submit f 1")
	o.gets(`treadle  .*  up .*  ok\njobs +1 ready .*\nrates +0 submitted .*\njournal .*\nmemory .*\n\nQUEUE +READY .*\nf +1 +0 +0 +0 +.* +0 +0 +0 +0 +-\n`, "top --once")
	if out, _, _ := treadle(t, "", "-H", o.host, "top", "--once"); strings.Contains(out, "\x1b") {
		t.Errorf("a frame for no terminal has sequences: %q", out)
	}
	o.ends(exitUsage, "treadle: treadle top needs a terminal; --once prints a frame without one\n", "top")
	o.ends(exitUsage, "treadle: --every: 1ms is too short.*\n", "top --every 1ms")
	server.stop()
	o.ends(exitUnreachable, "treadle: cannot connect .*\n", "top --once")
}

// TestTopRates: rates are those between two looks at the same server; queues that the server sums are one line.
func TestTopRates(t *testing.T) {
	t.Parallel()
	v := &topView{sort: "submitted"}
	queue := func(name string, ready int, submitted, done uint64) client.QueueState {
		q := client.QueueState{SubmittedTotal: submitted, DoneTotal: done}
		q.Queue, q.Ready = name, ready
		return q
	}
	rest := queue("", 7, 100, 0)
	first := client.Overview{At: 10_000, Started: 1, Submitted: 1000, Queues: []client.QueueState{queue("a", 1, 10, 5), queue("b", 2, 10, 5)}, Rest: rest, RestQueues: 3}
	rest.SubmittedTotal = 104
	second := client.Overview{At: 12_000, Started: 1, Submitted: 1500, Done: 3, Queues: []client.QueueState{queue("a", 1, 12, 5), queue("b", 2, 110, 6), queue("c", 0, 5, 5)}, Rest: rest, RestQueues: 3}
	has := func(want string) {
		t.Helper()
		if got := columns(v.text(0, 0)); !like(got, want) {
			t.Errorf("got\n%s\nwant %s", got, want)
		}
	}
	v.observe(first, nil)
	has("*rates  0 submitted  0 done*")
	v.observe(second, nil)
	has("*jobs  10 ready*rates  250 submitted  1.5 done  0 failed runs, a second*\nb  2*  50  0.5  -\na  1*  1.0  0  -\nc  0*  0  0  -\n(3 more)  7*  2.0  0  -")
	v.paused = true
	v.observe(first, nil)
	v.paused = false
	has("*rates  250 submitted*")
	again := second
	again.Started, again.At, again.Submitted = 2, 13_000, 9
	v.observe(again, nil)
	has("*rates  0 submitted  0 done*")
}
