package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"

	"treadle/loop/client"
)

// TestHelp: every flag of every command is in its help, and says its default
// when it takes a value.
func TestHelp(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	con := console{in: strings.NewReader(""), out: &out, err: &out}
	parser, err := newParser(&cli{}, &con, "")
	if err != nil {
		t.Fatal(err)
	}
	err = kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		command, ok := node.(*kong.Node)
		if !ok || command.Type != kong.CommandNode {
			return next(nil)
		}
		out.Reset()
		args := strings.Fields(command.Path())
		if code := run(append(args, "--help"), con); code != 0 {
			t.Errorf("%q --help: exit code %d", args, code)
		}
		help := strings.Join(strings.Fields(out.String()), " ")
		for _, flag := range command.Flags {
			if flag.Hidden { // an older name of another flag
				continue
			}
			name := "--" + flag.Name
			if flag.Tag.Negatable != "" {
				name = "--[no-]" + flag.Name
			}
			if !strings.Contains(help, name) {
				t.Errorf("%q: --%s is not in the help", args, flag.Name)
			}
			if !flag.IsBool() && !strings.Contains(flag.Help, "(default: ") {
				t.Errorf("%q: --%s does not say its default: %q", args, flag.Name, flag.Help)
			}
		}
		if !strings.Contains(help, "treadle "+args[0]) || command.Parent == parser.Model.Node && strings.Count(help, "treadle "+args[0]) < 2 {
			t.Errorf("%q: no example in the help", args)
		}
		return next(nil)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// user is one shell at one server.
type user struct {
	t    *testing.T
	host string
}

// gets runs a command that works and checks what it prints; want is a regular
// expression.
func (u user) gets(want, args string) {
	u.t.Helper()
	out, errs, code := treadle(u.t, "from stdin", append([]string{"-H", u.host}, strings.Fields(args)...)...)
	if ok, err := regexp.MatchString("^(?s:"+want+")$", out); !ok || err != nil || code != 0 || errs != "" {
		u.t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %q", args, code, out, errs, want)
	}
}

// tells runs a command that works, prints nothing and says something.
func (u user) tells(want, args string) { u.t.Helper(); u.ends(0, want, args) }

// fails runs a command that does not work.
func (u user) fails(want, args string) { u.t.Helper(); u.ends(1, want, args) }

// ends runs a command that prints nothing on standard output; want is a regular expression for standard error.
func (u user) ends(want int, says, args string) {
	u.t.Helper()
	out, errs, code := treadle(u.t, "from stdin", append([]string{"-H", u.host}, strings.Fields(args)...)...)
	if ok, err := regexp.MatchString("^(?s:"+says+")$", errs); !ok || err != nil || code != want || out != "" {
		u.t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %d and %q", args, code, out, errs, want, says)
	}
}

// TestUser runs the commands of a user's first day.
func TestUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, dump := filepath.Join(dir, "s"), filepath.Join(dir, "jobs.dump")
	serve(t, socket)
	u := user{t, socket}
	u.gets(`unix://.* answered in .*s\n`, "ping")
	u.gets(`FUNCTION +WORKERS +JOBS +RUNNING +NEXT\n`, "status")
	u.gets(``, "submit echo now -w hello")
	u.gets(``, "submit echo later --later 3600 --timeout 7 -w @-")
	u.gets(`.*\necho +0 +2 +0 +1 +1 +0 +0 +now\n`, "status")
	u.gets(`{"function":"echo",.*"jobs":2,.*"delayed":1,.*}\n`, "status --json")
	u.gets(``, "dump "+dump)
	u.gets(`\x00{7}\x02\x04echo.*`, "dump -")
	u.gets(``, "remove echo now")
	u.ends(exitNotFound, `treadle: no job "nothing" of function "echo" at .*\n`, "remove echo nothing")
	u.gets(`.*\necho +0 +1 +0 +0 +1 +0 +0 +in .*\n`, "status")
	u.gets(``, "drop echo")
	u.gets(`FUNCTION +WORKERS +JOBS +RUNNING +NEXT\n`, "status")
	u.tells("treadle: 2 jobs are loaded\n", "load "+dump)
	u.gets(`.*\necho +0 +2 +0 +1 +1 +0 +0 +now\n`, "status")

	worker := start(t, false, "-H", socket, "work", "echo", "--data", "--thread", "2", "--", "sh", "-c", `cat; echo " by $0" | tr -d '\n'; test "$0" != bad`)
	worker.until("waiting for jobs") // before that, run answers that nobody does the job
	u.gets(`hello by first`, "run echo first -w hello")
	u.gets(` by empty`, "run echo empty")
	if _, errs, code := treadle(t, "", "-H", socket, "drop", "echo"); code != 1 || !strings.Contains(errs, "workers serve it (1)") {
		t.Errorf("drop with a worker: exit code %d, %q", code, errs)
	}
	u.gets(``, "submit echo bad")
	worker.until(`"echo" "bad" failed: exit status 1`)
	worker.stop()

	u.gets("600\n", "config get timeout")
	u.gets("", "config set timeout 33")
	u.gets("33\n", "config get timeout")
	if _, errs, code := treadle(t, "", "-H", socket, "config", "set", "nonsense", "1"); code != exitNotFound || !strings.Contains(errs, "nonsense") {
		t.Errorf("an unknown setting: exit code %d, %q", code, errs)
	}
	u.fails(`treadle: no result of "nobody" "n" in 1s: no worker serves "nobody"; the job stays queued .*\n`, "--framing 2018 run nobody n --wait 1")
}

// TestDropWhileRunning: a function whose job is still in the hands of one who serves it no more is not dropped, and
// drop says so.
func TestDropWhileRunning(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket)
	user{t, socket}.gets("", "submit f n")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	worker, err := client.DialWorker(ctx, socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	err = worker.CanDo(ctx, "f")
	if err == nil {
		_, err = worker.Grab(ctx)
	}
	if err == nil {
		err = worker.CantDo(ctx, "f")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, errs, code := treadle(t, "", "-H", socket, "drop", "f"); code != 1 || !strings.Contains(errs, "its jobs are running (1)") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

func TestShutdownCommand(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	server := serve(t, socket)
	user{t, socket}.gets("", "shutdown")
	server.exit(0)

	server = serve(t, socket, "--periodic-shutdown", "off")
	if _, errs, code := treadle(t, "", "-H", socket, "shutdown"); code != exitForbidden || !strings.Contains(errs, "--periodic-shutdown on allows it") {
		t.Errorf("shutdown refused: exit code %d, %q", code, errs)
	}
	server.stop()
}

// TestWorkReconnects: a worker outlives its server: it says once that it is gone and once that it is back, and works
// on.
func TestWorkReconnects(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	server := serve(t, socket)
	worker := start(t, false, "-H", socket, "work", "f", "--data", "--thread", "3", "--", "echo")
	user{t, socket}.gets("one\n", "--framing 2018 run f one")
	server.signal(syscall.SIGKILL)
	worker.until("lost the server at unix://" + socket)
	serve(t, socket)
	user{t, socket}.gets("two\n", "--framing 2018 run f two")
	worker.signal(syscall.SIGTERM)
	var said []string
	for worker.lines.Scan() {
		// The result may be back before the worker has counted its job as finished.
		if line := worker.lines.Text(); !strings.HasPrefix(line, "treadle: taking no more jobs, finishing 1 job") {
			said = append(said, line)
		}
	}
	if want := fmt.Sprintf("treadle: connected to unix://%s again", socket); len(said) != 1 || said[0] != want {
		t.Errorf("the worker said %q, want %q", said, want)
	}
	worker.exit(0)
}

// TestWorkSignals: SIGTERM lets a running command finish and its result count; a second one kills the command, and its
// job waits for the next worker.
func TestWorkSignals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, fifo := filepath.Join(dir, "s"), filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, socket)
	u := user{t, socket}
	work := func() *process {
		return start(t, false, "-H", socket, "work", "f", "--thread", "2", "--", "sh", "-c", "echo started >&2; cat "+fifo)
	}
	u.gets("", "submit f one")
	worker := work()
	worker.until("started")
	worker.signal(syscall.SIGTERM)
	// Opening waits for the command to read, closing lets it go.
	gate, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	gate.Close()
	worker.exit(0)
	u.gets(`.*\nf +0 +0 +0 +0 +0 +0 +0 +-\n`, "status --all")

	u.gets("", "submit f two")
	worker = work()
	worker.until("started")
	worker.signal(syscall.SIGTERM)
	worker.signal(syscall.SIGINT)
	worker.exit(exitInterrupted)
	u.gets(`.*\nf +0 +1 +0 +1 +0 +0 +0 +now\n`, "status")
}
