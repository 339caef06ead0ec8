package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCRC is a day in the framing of 2019.
func TestCRC(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, dump := filepath.Join(dir, "s"), filepath.Join(dir, "jobs.dump")
	serve(t, socket, "--periodic-crc", "2026")
	u := user{t, socket}
	u.gets(`unix://.* answered in .*s\n`, "--crc ping")
	u.gets(``, "--crc submit echo now -w hello")
	for _, command := range []string{"status", "status --crc"} { // the framing makes no difference
		u.gets(`FUNCTION +WORKERS +JOBS +RUNNING +READY +DELAYED +LOCKED +WAITING +NEXT\necho +0 +1 +0 +1 +0 +0 +0 +now\n`, command)
		u.gets(`{.*"running":0,"ready":1,"delayed":0,"locked":0,"waiting":0,"failed":0,"next":[0-9]+}\n`, command+" --json")
	}
	u.gets(``, "--crc dump "+dump)
	u.gets(``, "--crc drop echo")
	u.tells("treadle: 1 job is loaded\n", "--crc load "+dump)
	u.gets("600\n", "--crc config get timeout")
	if _, errs, code := treadle(t, "", "-H", socket, "--crc", "run", "nobody", "n"); code != 1 || !strings.Contains(errs, "no worker for this function is connected") {
		t.Errorf("run without a worker: exit code %d, %q", code, errs)
	}
	worker := start(t, false, "-H", socket, "--crc", "work", "echo", "--data", "--", "sh", "-c", `cat; echo " by $0" >&2; test "$0" != bad`)
	worker.until(" by now")
	u.gets(`hello`, "run echo plain -w hello")
	u.gets(`hello`, "--crc run echo crc -w hello")
	u.fails(`treadle: cannot run "echo" "bad" at .*: the job failed, took longer than its time-out, or a policy of its queue ended it: treadle job show .* "bad" says what becomes of it\n`, "--crc run echo bad -w hello") // it goes on failing
	u.gets(``, "--crc remove echo bad")
}

// TestRecv: recv prints a command's output while the command runs, with every way of its worker to send.
func TestRecv(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, goOn := filepath.Join(dir, "s"), filepath.Join(dir, "on")
	serve(t, socket)
	if out, errs, code := treadle(t, "", "-H", socket, "recv", "f", goOn); code != 1 || out != "" || !strings.Contains(errs, "no worker for this function is connected") {
		t.Errorf("recv without a worker: exit code %d, %q, %q", code, out, errs)
	}
	worker := start(t, false, "-H", socket, "work", "f", "--stream", "--data", "--",
		"sh", "-c", `echo started >&2; until test -e "$0"; do echo tick; done; printf EOF; echo end`)
	u := user{t, socket}
	u.gets(``, "submit f "+goOn)
	worker.until("started")
	recv := start(t, true, "-H", socket, "recv", "f", goOn)
	recv.until("tick") // and the command runs on
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	recv.until("EOFend")
	recv.exit(0)
	u.gets(`EOFend\n`, "run f "+goOn)
	if _, errs, code := treadle(t, "", "-H", socket, "recv", "f", "nothing", "--wait", "1"); code != 1 || !strings.Contains(errs, "no answer in time") {
		t.Errorf("recv of nothing: exit code %d, %q", code, errs)
	}
}

// eventually runs a command until its output matches a regular expression.
func (u user) eventually(want, args string) {
	u.t.Helper()
	end := time.Now().Add(patience)
	for {
		out, _, _ := treadle(u.t, "", append([]string{"-H", u.host}, strings.Fields(args)...)...)
		if ok, err := regexp.MatchString("^(?s:"+want+")$", out); ok || err != nil {
			return
		}
		if time.Now().After(end) {
			u.t.Fatalf("%s: stdout %q for %v; want %q", args, out, patience, want)
		}
	}
}

// TestLockNames: of three jobs and three threads two run at a time, and the one
// that waits does not keep its thread.
func TestLockNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, fifo := filepath.Join(dir, "s"), filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, socket)
	u := user{t, socket}
	worker := start(t, false, "-H", socket, "work", "f", "--thread", "3", "--lock-name", "L", "--lock-count", "2", "--",
		"sh", "-c", `echo started >&2; read line < `+fifo)
	for _, name := range []string{"a", "b", "c"} {
		u.gets(``, "submit f "+name)
	}
	u.eventually(`.*\nf +1 +3 +2 +0 +0 +1 +0 +-\n`, "status")
	gate, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	for _, status := range []string{`f +1 +2 +2 +0 +0 +0 +0 +-`, `f +1 +1 +1 +0 +0 +0 +0 +-`, `f +1 +0 +0 +0 +0 +0 +0 +-`} {
		worker.until("started")
		if _, err := gate.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
		u.eventually(`.*\n`+status+`\n`, "status")
	}
	worker.stop()
}

// TestRelaySlow: a command's output waits for a slow receiver, all of it, however long after the command's end: the
// time for what the command has left behind is over here at once.
func TestRelaySlow(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	var r *relay
	r, err := newRelay(time.Nanosecond, func(b []byte) {
		<-time.After(10 * time.Millisecond)
		got.Write(b)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	want := strings.Repeat("0123456789", relaySize/4) // more than two pieces
	go func() {
		_, _ = io.WriteString(r.writeEnd, want)
		r.finish()
	}()
	<-r.done
	if got.String() != want {
		t.Errorf("%d bytes arrived of %d", got.Len(), len(want))
	}
}

// TestRelayLeftBehind: a process that the command has left behind and that holds
// its output open is not waited for, whether it prints or not.
func TestRelayLeftBehind(t *testing.T) {
	t.Parallel()
	r, err := newRelay(10*time.Millisecond, func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	fd, err := syscall.Dup(int(r.writeEnd.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	r.finish()
}
