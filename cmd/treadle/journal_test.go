package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// store is a data directory and the socket of the servers that a test starts on it.
type store struct {
	t           *testing.T
	dir, socket string
}

func newStore(t *testing.T) *store {
	dir := t.TempDir()
	return &store{t, filepath.Join(dir, "data"), filepath.Join(dir, "s")}
}

// serveArgs are the arguments of a server on the directory.
func (s *store) serveArgs() []string {
	return []string{"serve", "--periodic", "unix://" + s.socket, "--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off", "--kts46", "off", "--kts46-json", "off", "--http", "off", "--data", s.dir}
}

// serve starts a server on the directory.
func (s *store) serve() (*process, user) {
	s.t.Helper()
	p := start(s.t, false, s.serveArgs()...)
	p.until("listening")
	return p, user{s.t, s.socket}
}

// says runs treadle journal and checks its exit code and its outputs; both are
// regular expressions.
func (s *store) says(code int, stdout, stderr string, args ...string) string {
	s.t.Helper()
	out, errs, got := treadle(s.t, "", append([]string{"journal"}, args...)...)
	for text, want := range map[string]string{out: stdout, errs: stderr} {
		if ok, err := regexp.MatchString("^(?s:"+want+")$", text); !ok || err != nil || got != code {
			s.t.Errorf("journal %v: exit code %d, stdout %q, stderr %q; want %d, %q, %q", args, got, out, errs, code, stdout, stderr)
			break
		}
	}
	return out
}

// refused checks that a server does not start, and its last line, which stands behind lines of the log.
func (s *store) refused(want int, texts ...string) {
	s.t.Helper()
	_, errs, code := treadle(s.t, "", s.serveArgs()...)
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	for i, line := range lines {
		if last := i == len(lines)-1; last != strings.HasPrefix(line, "treadle: ") {
			s.t.Errorf("one line is %q", line)
		}
	}
	for _, text := range texts {
		if code != want || !strings.Contains(lines[len(lines)-1], text) {
			s.t.Errorf("exit code %d, %q; want %d and one line that says %q", code, errs, want, text)
		}
	}
}

// file reads the one file of the store whose name matches.
func (s *store) file(pattern string) (path string, b []byte) {
	s.t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.dir, "store", pattern))
	if err != nil || len(paths) == 0 {
		s.t.Fatalf("no %s: %v", pattern, err)
	}
	path = paths[len(paths)-1]
	if b, err = os.ReadFile(path); err != nil {
		s.t.Fatal(err)
	}
	return path, b
}

func (s *store) write(path string, b []byte) {
	s.t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// TestJournalInUse: a directory has one user, and every other is told which one it is.
func TestJournalInUse(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first, u := s.serve()
	u.gets("", "submit f n")
	in := `data directory ".*" is in use by another treadle \(process \d+\); stop that one, or name another directory\n`
	for _, command := range []string{"check", "repair", "export", "import"} {
		s.says(1, "", "treadle: the "+in, command, s.dir)
	}
	second := &store{t, s.dir, s.socket + "2"}
	second.refused(1, "--data: the data directory", "is in use by another treadle", "--data")
	u.gets(`.*\nf +0 +1 +0 +1 +0 +0 +0 +now\n`, "status")
	first.stop()
	// The job and its function.
	s.says(0, `directory +`+s.dir+`\nformat +4\nrecords +2\nsettings +0\nlast group +\d+\nfiles +(1 table|\d+ tables), 1 log, (\d+ bytes|\d+\.\dKiB)\n`, "", "check", s.dir)
}

// TestJournalNewer: no command changes the data directory of a newer program.
func TestJournalNewer(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	p, _ := s.serve()
	p.stop()
	path, b := s.file("FORMAT")
	if !strings.HasPrefix(string(b), "treadle journal 4, sum ") {
		t.Fatalf("the format is %q", b)
	}
	s.write(path, []byte("treadle journal none\n"))
	const garbled = `store/FORMAT does not say which version the data directory has`
	s.refused(3, "--data: ", "is damaged: "+garbled+"; run treadle journal check, then treadle journal repair")
	s.says(3, ".*damaged +"+garbled+"\n", "treadle: .* is damaged in one place; treadle journal repair .*\n", "check", s.dir)
	s.says(3, "", "treadle: .* is damaged: "+garbled+"; run treadle journal check, then treadle journal repair\n", "export", s.dir)
	s.write(path, []byte("treadle journal 5, sum 15f34b03\n"))
	newer := "has version 5, written by a newer treadle; this one knows version 4"
	s.refused(1, "--data: ", newer)
	for _, command := range []string{"check", "repair", "export", "import"} {
		s.says(1, "", "treadle: .*"+newer+"\n", command, s.dir)
	}
	s.write(path, b)
	p, _ = s.serve()
	p.stop()
}

// TestJournalMoves: what one server held, another has after export and import, to the
// byte; an import takes all or nothing.
func TestJournalMoves(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	p, u := s.serve()
	u.gets("", "submit echo now -w \xff\xfebytes")
	u.gets("", "submit größe later --later 3600 --timeout 7 -w text")
	u.gets("", "config set timeout 77")
	before, _, _ := treadle(t, "", "-H", s.socket, "dump", "-")
	p.stop()
	lines := s.says(0, `{"treadle_journal":2}\n{"kind":"setting","key":"config.timeout",.*\n{"kind":"job","seq":1,"space":1,"queue":"echo",.*"workload_base64":.*\n.*"queue":"größe","name":"later",.*"timeout":7,"workload":"text"}\n.*`, "", "export", s.dir)

	to := newStore(t)
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	s.write(file, []byte(lines+"{\"kind\":\"job\"}\n"))
	to.says(1, "", `treadle: line 7: .*\n`, "import", to.dir, file)
	s.write(file, []byte(lines))
	to.says(0, "", "", "import", to.dir, file)
	to.says(1, "", `treadle: .* is not empty \(records: 4, settings: 1\); an import needs an empty one\n`, "import", to.dir, file)
	p, u = to.serve()
	if after, _, _ := treadle(t, "", "-H", to.socket, "dump", "-"); !maps.Equal(parseDump(t, []byte(after)), parseDump(t, []byte(before))) {
		t.Errorf("the dump was %q and is %q", before, after)
	}
	u.gets("77\n", "config get timeout")
	p.stop()
	if again := to.says(0, `.+`, "", "export", to.dir); again != lines {
		t.Errorf("exported\n%s, and from there\n%s", lines, again)
	}
}

// TestPeriodicDump: a dump file that the original server wrote, in its bytes, is
// loaded, and is on disk when load comes back.
func TestPeriodicDump(t *testing.T) {
	t.Parallel()
	jobs := []string{
		"\x04echo\x05first\x00\x00\x00\x05hello\x00\x00\x00\x00\x6b\x01\x02\x03\x00",
		"\x04echo\x06second\x00\x00\x00\x00\x00\x00\x00\x00\x6b\x01\x02\x04\x01\x00\x00\x00\x05",
		"\x02f\xff\x01n\x00\x00\x00\x01\x00\x00\x00\x00\x00\x6b\x01\x02\x05\x03\x00\x00\x00\x02\x00\x00\x00\x09",
	}
	dump := "\x00\x00\x00\x00\x00\x00\x00\x03" + strings.Join(jobs, "")
	s := newStore(t)
	p, u := s.serve()
	file := filepath.Join(t.TempDir(), "periodic.dump")
	s.write(file, []byte(dump))
	u.tells("treadle: 3 jobs are loaded\n", "load "+file)
	p.signal(syscall.SIGKILL)
	p.exit(-1)
	p, _ = s.serve()
	back, _, _ := treadle(t, "", "-H", s.socket, "dump", "-")
	if len(back) != len(dump) || !strings.HasPrefix(back, dump[:8]) {
		t.Errorf("%q came back as %q", dump, back)
	}
	for _, job := range jobs {
		if !strings.Contains(back, job) {
			t.Errorf("%q is not in %q", job, back)
		}
	}
	p.stop()
}

// TestJournalDamaged: a server does not start on a damaged store, and says where it is
// damaged and what to do; the repair keeps the rest and the old store.
func TestJournalDamaged(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	p, u := s.serve()
	// With the function itself these are five records.
	for _, name := range []string{"one", "two", "three", "four"} {
		u.gets("", "submit f "+name+" -w the-workload-of-"+name)
	}
	p.signal(syscall.SIGKILL)
	p.exit(-1)
	path, b := s.file("log/*.log")
	at := bytes.Index(b, []byte("the-workload-of-two"))
	if at < 0 {
		t.Fatalf("the job is not in %s", path)
	}
	b[at] ^= 1
	s.write(path, b)
	place := "store/log/" + filepath.Base(path) + " at offset "
	s.refused(3, "--data: ", "is damaged: "+place, "run treadle journal check, then treadle journal repair")
	s.says(3, `.*records +4\n.*damaged +`+place+`\d+: .*\n`, `treadle: .* is damaged in one place; treadle journal repair .* keeps what can be read\n`, "check", s.dir)
	s.says(3, `.*"File": "store/.*\.log",.*"Offset": \d+,.*`, `.*`, "check", "--json", s.dir)
	s.says(3, ".*", `treadle: .*damaged.*\n`, "export", s.dir)
	s.refused(3, "is damaged") // still: check and export change nothing
	s.says(0, `.*records +4\n.*damaged +`+place+`.*old store +store.damaged-1\nrepaired: 4 records and 0 settings are kept; what was in one place is lost\n.*store.damaged-1.*\n`, "", "repair", s.dir)
	s.says(0, `.*records +4\n.*`, "", "check", s.dir)
	p, u = s.serve()
	u.gets(`\x00{7}\x03.*one.*three.*four.*`, "dump -")
	p.stop()
	if kept, err := os.ReadFile(strings.Replace(path, "/store/", "/store.damaged-1/", 1)); err != nil || !bytes.Equal(kept, b) {
		t.Errorf("the damaged log is not kept: %v", err)
	}
	s.says(0, `.*records +4\n.*nothing is damaged, and nothing was changed\n`, "", "repair", s.dir)
	s.says(1, "", `treadle: .*nowhere.*\n`, "check", filepath.Join(s.dir, "nowhere"))
}

// TestWriteErrorExit: a disk that takes no more ends the server at once with the
// reason and exit code 3; it has not acknowledged what it could not write.
func TestWriteErrorExit(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	p, u := s.serve()
	u.gets("", "submit f kept")
	if err := unix.Prlimit(p.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1, Max: 1}, nil); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := treadle(t, "", "-H", s.socket, "submit", "f", "lost"); code != exitUnreachable {
		t.Errorf("a submit that cannot be written: exit code %d, %q", code, errs)
	}
	p.until("treadle: the journal failed, stopping so that nothing is acknowledged that is not on disk: cannot write")
	p.exit(3)
	p, u = s.serve()
	u.gets(`.*\nf +0 +1 +0 +1 +0 +0 +0 +now\n`, "status")
	p.stop()
}

// TestSuccessorWaits: a server that starts while its killed predecessor still has the
// directory waits for it to end.
func TestSuccessorWaits(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	dying, _ := s.serve()
	kill := time.AfterFunc(500*time.Millisecond, func() { _ = dying.Process.Kill() })
	defer kill.Stop()
	s.socket += "2"
	successor, _ := s.serve()
	successor.stop()
}
