package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// binary is the program, built once for the tests that use it as a user does.
var binary string

// TestMain: no test may leave a goroutine behind, gnet's own pool aside.
func TestMain(m *testing.M) {
	flag.Parse()
	for _, name := range []string{"test.fuzz", "test.list"} { // neither runs the program, and each of the fuzzer's processes would build it
		if flag.Lookup(name).Value.String() != "" {
			os.Exit(m.Run())
		}
	}
	dir, err := os.MkdirTemp("", "treadle-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "treadle")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot build: %v\n%s", err, out)
		os.RemoveAll(dir)
		os.Exit(1)
	}
	for _, name := range []string{"TREADLE_HOST", "PERIODIC_PORT", "PERIODIC_PATH", "TREADLE_DWORK", "TREADLE_KTS46", "TREADLE_HTTP", "TREADLE_ADMIN", "TREADLE_GLOOM_MASTERS", "TREADLE_GLOOM_SLAVES", "TREADLE_DISBATCH_URL", "TREADLE_DISBATCH_USERNAME", "TREADLE_DISBATCH_PASSWORD"} {
		os.Unsetenv(name)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// longFor leaves out a test that takes seconds of a processor, or longer than everybody should wait after each change:
// `make long` has it, `make test` has not.
func longFor(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short")
	}
}

// patience bounds a test that hangs; nothing waits for it otherwise.
const patience = 2 * time.Minute

// lifetime ends a server that hangs, or that its test has lost; none needs half of it, even in twentyfold attacks.
const lifetime = 5 * time.Minute

// process is a running treadle.
type process struct {
	t *testing.T
	*exec.Cmd
	lines *bufio.Scanner // of standard error, or of standard output with stdout
	rest  io.Closer

	timer   *time.Timer   // kills it when it runs for longer than lifetime
	drained chan struct{} // closed when drain has read to the end; nil: it does not
}

// start runs treadle and reads one of its outputs line by line.
func start(t *testing.T, stdout bool, args ...string) *process {
	t.Helper()
	return startCommand(t, stdout, binary, args...)
}

// startCommand is start for a command that ends in running treadle.
func startCommand(t *testing.T, stdout bool, command string, args ...string) *process {
	t.Helper()
	return startBy(t, stdout, exec.Command(command, args...), (*exec.Cmd).Start)
}

// startBy is startCommand for a command with its own way to begin.
func startBy(t *testing.T, stdout bool, cmd *exec.Cmd, begin func(*exec.Cmd) error) *process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = w
	if stdout {
		cmd.Stdout, cmd.Stderr = w, os.Stderr
	}
	if err := begin(cmd); err != nil {
		t.Fatal(err)
	}
	w.Close()
	timer := time.AfterFunc(lifetime, func() {
		t.Errorf("%v is killed: it runs for %v now", cmd.Args, lifetime)
		cmd.Process.Kill()
	})
	p := &process{t: t, Cmd: cmd, lines: bufio.NewScanner(r), rest: r, timer: timer}
	t.Cleanup(func() {
		cmd.Process.Kill()
		p.Wait()
		r.Close()
	})
	return p
}

// Wait waits for the end of the process, whose lifetime no longer counts then.
func (p *process) Wait() error {
	defer p.timer.Stop()
	return p.Cmd.Wait()
}

// until reads lines up to the first that contains text, and returns that line.
func (p *process) until(text string) string {
	p.t.Helper()
	for p.lines.Scan() {
		if strings.Contains(p.lines.Text(), text) {
			return p.lines.Text()
		}
	}
	p.t.Fatalf("%v ended without saying %q", p.Args, text)
	return ""
}

// drain reads on for the rest of the process's life, so that it never waits for a reader.
func (p *process) drain() {
	p.drained = make(chan struct{})
	go func() {
		defer close(p.drained)
		for p.lines.Scan() {
		}
	}()
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end and checks the exit code.
func (p *process) exit(want int) {
	p.t.Helper()
	if p.drained != nil {
		<-p.drained
	}
	for p.lines.Scan() {
	}
	p.Wait()
	if got := p.ProcessState.ExitCode(); got != want {
		p.t.Fatalf("%v: exit code %d (%v), want %d", p.Args, got, p.ProcessState, want)
	}
}

// serve starts a server on a socket and waits until it listens.
func serve(t *testing.T, socket string, args ...string) *process {
	t.Helper()
	p := start(t, false, append([]string{"serve", "--periodic", "unix://" + socket, "--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off", "--kts46", "off", "--kts46-json", "off", "--data", "none", "--http", "off"}, args...)...)
	p.until("listening")
	return p
}

// treadle runs a command to its end: in this process, which is ten times cheaper than one of its own, if it is not a
// server.
func treadle(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	if slices.Contains(args, "serve") {
		return program(t, stdin, args...)
	}
	var out, errs bytes.Buffer
	code = run(args, console{in: strings.NewReader(stdin), out: &out, err: &errs})
	return out.String(), errs.String(), code
}

// program runs a command to its end in a process of its own.
func program(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	cmd.Wait()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestExitCodes: the exit code is 3 when no server answers, 2 for a usage error and 1 for another failure, with one
// line that says why.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	file := config(t, "x")
	f := func(args string, code int, says string) {
		t.Helper()
		words := strings.Fields(args)
		if serverless[words[0]] == "" && !slices.Contains(otherProtocols, words[0]) && words[0] != "-H" {
			words = append([]string{"-H", closed}, words...)
		}
		out, errs, got := treadle(t, "", words...)
		if got != code || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "treadle: ") || !strings.Contains(errs, says) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %d and one line that says %q", args, got, out, errs, code, says)
		}
	}
	for _, args := range []string{
		"ping", "status", "status --watch", "submit f n", "run f n", "remove f n", "drop f", "config get timeout", "config set timeout 1",
		"dump -", "dump " + file, "load " + config(t, strings.Repeat("\x00", 8)), "shutdown", "work f -- cat", "--crc ping", "recv f n", "work f --stream -- cat",
	} {
		f(args, 3, "cannot connect to tcp://"+closed+": connection refused (is `treadle serve` running? -H or TREADLE_HOST names the server)")
	}
	// One rule names the server of every protocol; the flags of earlier versions go on.
	for args, variable := range map[string]string{
		"gloom submit t 1": "TREADLE_GLOOM_MASTERS", "gloom work t -- cat": "TREADLE_GLOOM_SLAVES",
		"gloom submit t 1 --masters " + closed: "TREADLE_GLOOM_MASTERS", "gloom work t --slaves " + closed + " -- cat": "TREADLE_GLOOM_SLAVES",
		"dwork status": "TREADLE_DWORK", "dwork work -- cat": "TREADLE_DWORK", "dwork -s " + closed + " status": "TREADLE_DWORK",
		"kts46 status": "TREADLE_KTS46", "kts46 -s " + closed + " status": "TREADLE_KTS46",
	} {
		if !strings.Contains(args, closed) {
			args = "-H " + closed + " " + args
		}
		f(args, 3, "cannot connect to tcp://"+closed+": connection refused (is `treadle serve` running? -H or "+variable+" names the server)")
	}
	for _, args := range []string{"-H " + closed + " disbatch queues", "disbatch -H " + closed + " queues", "disbatch queues --url http://" + closed} {
		f(args, 3, "cannot reach http://"+closed+": connection refused (is `treadle disbatch web` running? -H or TREADLE_DISBATCH_URL names it)")
	}
	for _, args := range []string{"-H " + closed + " dwork graph -", "dwork graph - --http " + closed} {
		f(args, 3, "cannot reach http://"+closed+": connection refused (is `treadle serve` running? -H or TREADLE_HTTP names it)")
	}
	const nowhere = "255.255.255.255" // no TCP connection reaches it, and that is known at once
	for command, port := range map[string]string{
		"ping": "5000", "queue list": "5001", "gloom submit t 1": "9998", "gloom work t -- cat": "9999", "dwork status": "6125", "kts46 status": "46210",
	} {
		f("-H "+nowhere+" "+command, 3, "cannot connect to tcp://"+nowhere+":"+port+": ")
	}
	f("-H "+nowhere+" dwork graph -", 3, "cannot reach http://"+nowhere+":5001: ")
	f("-H "+nowhere+" disbatch queues", 3, "cannot reach http://"+nowhere+":8080: ")
	f("-H a dwork -s b status", 2, `the server has two names, "a" and "b": -H is enough`)
	f("gloom work t -- no-such-command", 1, "no-such-command")
	f("work f -- no-such-command", 1, "no-such-command")
	f("load /nowhere/file", 1, "/nowhere/file")
	f("submit f n -w @/nowhere/file", 1, "/nowhere/file")
	long := strings.Repeat("x", 256)
	for _, malformed := range []string{
		"-H elsewhere: ping", "-H udp://a:1 work f -- cat", "-H a:99999 --crc recv f n", "dwork status -s a:", "dwork work -s a: -- cat", "kts46 status -s a:",
		"gloom submit t 1 --masters a:", "gloom work t --slaves a: -- cat", "-H a: dwork status", "-H udp://a:1 kts46 status", "-H a:99999 gloom submit t 1",
	} {
		f(malformed, 2, "write it as host, host:port, tcp://host:port")
	}
	f("frob", 2, "frob")
	f("submit f", 2, "treadle submit --help")
	f("submit f n --frob", 2, "--frob")
	f("submit f n --later -5", 2, "--later")
	f("submit f n --later 9223372036854775807", 2, "--later")
	f("submit f n --timeout=-5", 2, "--timeout")
	f("submit f "+long, 2, "256 bytes")
	f("config set timeout -- -1", 2, "-1")
	f("work f", 2, "no command")
	f("recv f "+long, 2, "256 bytes")
	f("gloom", 2, "gloom")
	f("gloom submit t", 2, "treadle gloom submit --help")
	f("gloom work t", 2, "no command")
	f("serve --loops x", 2, "--loops")
	f("serve --loops 9999", 2, "--loops")
	f("serve --periodic nowhere", 2, "--periodic")
	f("serve --periodic-grab none", 2, "--periodic-grab")
	f("serve --max-frame 64MB", 2, "--max-frame")
	f("serve --drain -1s", 2, "--drain")
	f("serve --drain=-1s", 2, "--drain")
	f("serve --handshake-timeout 0s", 2, "--handshake-timeout")
	f("serve --sync-interval 0s", 2, "--sync-interval")
	for _, setting := range []string{"--max-frame", "--gloom-max-frame", "--dwork-max-frame"} {
		f("serve --data none "+setting+" 0", 2, setting+": 0 bytes is not between 1KiB and ")
	}
	f("serve --data binary_test.go", 2, "binary_test.go\": not a directory")
	f("serve --data none --dwork-max-steal 0", 2, "--dwork-max-steal: 0 is below 1")
	f("serve --min-free 0", 2, "--min-free: 0 bytes is less than the store needs to go on, and to start again, when the disk is full: give it at least 128MiB")
	f("serve --config "+file, 2, file+" line 1")

	if out, errs, code := treadle(t, ""); code != 2 || out != "" || !strings.Contains(errs, "treadle serve") {
		t.Errorf("no arguments: exit code %d, %q, %q", code, out, errs)
	}
	if out, errs, code := treadle(t, "", "--version"); code != 0 || !strings.HasPrefix(out, "treadle ") || errs != "" {
		t.Errorf("--version: exit code %d, %q, %q", code, out, errs)
	}
}

// TestServeSignals: the first signal drains, the second does not wait.
func TestServeSignals(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket).stop()

	server := serve(t, socket, "--drain", "60s")
	worker := start(t, true, "-H", socket, "work", "f", "--", "sh", "-c", "echo started; sleep 60")
	start(t, false, "-H", socket, "--framing", "2018", "run", "f", "n")
	worker.until("started") // so a result is owed
	server.signal(syscall.SIGTERM)
	server.until("stopping")
	server.signal(syscall.SIGINT)
	server.exit(exitInterrupted)
}

// stop is how a server normally ends.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.exit(0)
}
