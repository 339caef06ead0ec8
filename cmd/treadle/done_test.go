package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDoneOverRestart: a finished job, its result and its name are there after a restart, and after an export and an
// import, until they are removed.
func TestDoneOverRestart(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	operator := func(s *store) user { return user{t, filepath.Join(s.dir, "admin.sock")} }
	p, u := s.serve()
	operator(s).gets("f: .*\n", "queue set f keep-results=10 unique-for=1h")
	worker := start(t, false, "-H", s.socket, "work", "f", "--data", "--", "sh", "-c", "cat; printf '\\377'")
	u.gets("", "submit f j -w hi")
	for outputOf(t, "-H", operator(s).host, "job", "list", "state:done", "--json") == "" {
		time.Sleep(time.Millisecond)
	}
	if got := outputOf(t, "-H", s.socket, "run", "f", "j", "-w", "again"); got != "hi\xff" {
		t.Errorf("a run of a done job prints %q", got)
	}
	worker.stop()
	p.stop()

	check := func(s *store) {
		t.Helper()
		p, u := s.serve()
		u.gets("", "submit f j")
		u.gets(`(?s).*"jobs":0,.*`, "status --all --json")
		operator(s).gets(`ID .*\n\S+ +f +j +done .*\n`, "job list queue:f")
		id := strings.Fields(strings.Split(outputOf(t, "-H", operator(s).host, "job", "list", "queue:f"), "\n")[1])[0]
		if got := outputOf(t, "-H", operator(s).host, "job", "result", id); got != "hi\xff" {
			t.Errorf("the result is %q", got)
		}
		p.stop()
	}
	check(s)
	export := s.says(0, `.*"done_at":\d+,"result_base64":"aGn/".*`, "", "export", s.dir)
	other := newStore(t)
	file := filepath.Join(t.TempDir(), "export")
	other.write(file, []byte(export))
	other.says(0, ".*", ".*", "import", other.dir, file)
	check(other)

	p, u = other.serve()
	operator(other).gets("1 removed\n", "job remove --filter state:done --yes")
	operator(other).ends(exitNotFound, "treadle: .*\n", "job result 0.0.99")
	u.gets("", "submit f j")
	u.gets(`(?s).*"jobs":1,.*`, "status --all --json")
	p.stop()
}

// outputOf returns the standard output of a command that works.
func outputOf(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := treadle(t, "", args...)
	if code != 0 || errs != "" {
		t.Fatalf("%v: exit code %d, %q", args, code, errs)
	}
	return out
}
