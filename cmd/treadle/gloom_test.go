package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// gloom is one shell at one server that speaks Gloom and Periodic.
type gloom struct {
	t   *testing.T
	dir string
	*process
}

func serveGloom(t *testing.T) gloom {
	t.Helper()
	g := gloom{t: t, dir: t.TempDir()}
	t.Setenv("TREADLE_HOST", g.path("p"))
	t.Setenv("TREADLE_GLOOM_MASTERS", g.path("m"))
	t.Setenv("TREADLE_GLOOM_SLAVES", g.path("s"))
	g.serve()
	return g
}

func (g *gloom) path(name string) string { return filepath.Join(g.dir, name) }

func (g *gloom) serve() {
	g.t.Helper()
	g.process = start(g.t, false, "serve", "--periodic", "unix://"+g.path("p"), "--http", "off", "--data", "none",
		"--gloom-masters", "unix://"+g.path("m"), "--gloom-slaves", "unix://"+g.path("s"), "--dwork", "off", "--kts46", "off", "--kts46-json", "off")
	g.until("gloom-slaves")
}

// work starts a worker of type t with a shell script.
func (g *gloom) work(script string, flags ...string) *process {
	g.t.Helper()
	return start(g.t, false, append(append([]string{"gloom", "work", "t"}, flags...), "--", "sh", "-c", script)...)
}

// gets runs a command that works, and fails one that does not; want and says are
// regular expressions.
func (g *gloom) gets(want, says string, args ...string) {
	g.t.Helper()
	out, errs, code := treadle(g.t, `"from stdin"`, args...)
	matches, err := regexp.MatchString("^(?s:"+want+")$", out)
	said, sayErr := regexp.MatchString("^(?s:"+says+")$", errs)
	if !matches || !said || err != nil || sayErr != nil || (code == 0) != (says == "") || code > 1 {
		g.t.Errorf("%q: exit code %d, stdout %q, stderr %q; want %q and %q", args, code, out, errs, want, says)
	}
}

func TestGloom(t *testing.T) {
	g := serveGloom(t)
	submit := func(want, says string, args ...string) {
		t.Helper()
		g.gets(want, says, append([]string{"gloom", "submit", "t"}, args...)...)
	}
	g.gets("", `.*that is the port of the other role \(the server answered invalid_action: "not_a_master"\)\n`, "gloom", "submit", "t", "1", "--masters", g.path("s"))
	g.gets("", `.*that is the port of the other role \(the server answered invalid_action: "not_a_slave"\)\n`, "gloom", "work", "t", "--slaves", g.path("m"), "--", "true")
	worker := g.work(`case "$0" in bad*) echo no; exit 3; esac; cat; test "$0" = plain || echo`, "--thread", "2")
	submit("\\[1, {\"b\":2 ,\"a\":\"ü\"}\\]\n", "", ` [1, {"b":2 ,"a":"ü"}] `)
	submit("\"hello\"\n", "", "hello")
	submit("\"from stdin\"\n", "", "@-")
	submit("42\n", "", "@"+config(t, "42\n"), "--id", "plain", "--priority=-5")
	submit("", `treadle: cannot read the workload: .*\n`, "@/nowhere/file")
	submit("", `treadle: cannot run the job "bad" at unix://.*: the job failed \(the server answered job_failed\)\n`, "1", "--id", "bad")
	for range 4 {
		worker.until(`"t" "bad" failed: exit status 3`)
	}
	submit("null\n", "", "null") // the worker is there again
	worker.stop()

	skipping := g.work(`cat; echo , $0; false`, "--skip-fail")
	submit(`"1, id\\n"`+"\n", "", "1", "--id", "id")
	skipping.until(`"t" "id" failed: exit status 1`)
	skipping.stop()

	submit("", "", "1", "--id", "x", "--no-wait") // cleared at once: nobody takes it
	waits := start(t, false, "gloom", "submit", "t", "1", "--id", "x")
	user{t, g.path("p")}.eventually(`.*\nt +0 +1 +0 +1 +0 +0 +0 +now\n`, "status")
	const exists = `a job with this id exists already \(the server answered id_exists\)\n`
	submit("", `treadle: cannot run the job "x" at .*: `+exists, "1", "--id", "x")
	submit("", `treadle: cannot submit the job "x" at .*: `+exists, "1", "--id", "x", "--no-wait")
	waits.signal(syscall.SIGINT)
	waits.until("interrupted")
	waits.exit(exitInterrupted)
	user{t, g.path("p")}.eventually(`FUNCTION +WORKERS +JOBS +RUNNING +NEXT\n`, "status")
}

// TestGloomMeetsPeriodic: both protocols do each other's jobs.
func TestGloomMeetsPeriodic(t *testing.T) {
	g := serveGloom(t)
	worker := g.work(`cat; echo $0 >&2`, "--timeout", "60")
	user{t, g.path("p")}.eventually(`.*\nt +1 .*`, "status") // a run without a worker is refused
	g.gets("hello", "", "run", "t", "name", "-w", "hello")
	worker.until("name")
	g.gets(`\[1\]`, "", "run", "t", "name", "-w", "[1]")
	worker.stop()
	periodic := start(t, false, "work", "t", "--data", "--", "sh", "-c", `cat; echo " $0"`)
	g.gets("\"\\[1\\] id\\\\n\"\n", "", "gloom", "submit", "t", "[1]", "--id", "id")
	periodic.stop()
}

// TestGloomWorkSignals: a worker finishes its job after the first signal, and kills it after the second, and the job
// goes to the next. A worker outlives its server.
func TestGloomWorkSignals(t *testing.T) {
	g := serveGloom(t)
	fifo := g.path("fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	submit := func() *process { t.Helper(); return start(t, true, "gloom", "submit", "t", "1") }
	work := func() *process { t.Helper(); return g.work("echo started >&2; cat "+fifo, "--thread", "2") }
	release := func() {
		t.Helper()
		gate, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gate.WriteString("[2]"); err != nil {
			t.Fatal(err)
		}
		gate.Close()
	}
	worker, master := work(), submit()
	worker.until("started")
	worker.signal(syscall.SIGTERM)
	release()
	master.until("[2]")
	master.exit(0)
	worker.exit(0)

	worker, master = work(), submit()
	worker.until("started")
	worker.signal(syscall.SIGTERM)
	worker.signal(syscall.SIGINT)
	if said := worker.until("killed"); said != "treadle: the running commands were killed" {
		t.Error(said)
	}
	worker.exit(exitInterrupted)
	worker = work()
	worker.until("started")
	release()
	master.until("[2]")
	master.exit(0)

	g.signal(syscall.SIGKILL)
	worker.until("trying again until the server is back")
	g.serve()
	master = submit()
	worker.until("started")
	release()
	master.until("[2]")
	worker.signal(syscall.SIGTERM)
	var said []string
	for worker.lines.Scan() {
		said = append(said, worker.lines.Text())
	}
	if len(said) > 0 {
		t.Errorf("the worker said %q", said)
	}
	worker.exit(0)
}

func TestGloomWorkArguments(t *testing.T) {
	t.Parallel()
	f := func(args string, command string) {
		t.Helper()
		c, err := parse(t, append([]string{"gloom", "work"}, strings.Fields(args)...)...)
		if w := &c.Gloom.Work; err != nil || strings.Join(w.Command, " ") != command || w.Type != "echo" || w.Slaves != "tcp://127.0.0.1:9999" {
			t.Errorf("%s: got %+v, %v, want %q", args, w, err, command)
		}
	}
	f("echo -- cat", "cat")
	f("echo --thread 4 --timeout 5 -- cat --thread", "cat --thread")
	for _, bad := range []string{"echo", "echo --", "echo --thread 0 -- cat", "echo --timeout -1 -- cat"} {
		if c, err := parse(t, append([]string{"gloom", "work"}, strings.Fields(bad)...)...); err == nil {
			t.Errorf("%s was accepted as %+v", bad, c.Gloom.Work)
		}
	}
	c, err := parse(t, "gloom", "submit", "echo", "1", "--no-wait", "--priority=-5")
	if s := &c.Gloom.Submit; err != nil || s.Wait || s.Priority != -5 || s.Masters != "tcp://127.0.0.1:9998" {
		t.Errorf("got %+v, %v", s, err)
	}
}
