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
	s := newStore(t)
	operator := func(s *store) user { return user{t, filepath.Join(s.dir, "admin.sock")} }
	p, u := s.serve()
	operator(s).gets("f: .*\n", "queue set f keep-results=10 unique-for=1h")
	worker := start(t, false, "-H", s.socket, "work", "f", "--data", "--", "sh", "-c", "cat; printf '\\377'")
	u.gets("", "submit f j -w hi")
	for outputOf(t, "-H", operator(s).host, "done", "list") == "QUEUE  DONE\n" {
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
		operator(s).gets(`QUEUE +DONE\nf +1\n`, "done list")
		id := strings.Fields(strings.Split(outputOf(t, "-H", operator(s).host, "done", "list", "f"), "\n")[1])[0]
		if got := outputOf(t, "-H", operator(s).host, "done", "result", "f", id); got != "hi\xff" {
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
	out, errs, code := treadle(t, "", "-H", operator(other).host, "done", "remove", "f", "99")
	if out != "0 removed\n" || code != 1 || !strings.HasSuffix(errs, "is kept no more\ntreadle: 1 finished jobs stay as they are\n") {
		t.Errorf("job 99 is removed: exit code %d, %q, %q", code, out, errs)
	}
	operator(other).gets("1 removed\n", "done remove f --all")
	operator(other).ends(exitNotFound, "treadle: the queue keeps no finished job with this id.*\n", "done result f 99")
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
