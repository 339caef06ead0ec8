package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// operated is a server with an operators' interface, and its users there and at Periodic's socket.
func operated(t *testing.T, more ...string) (server *process, operator, client user) {
	t.Helper()
	dir := t.TempDir()
	socket, admin := filepath.Join(dir, "s"), filepath.Join(dir, "admin")
	server = serve(t, socket, append([]string{"--admin", "unix://" + admin}, more...)...)
	return server, user{t, admin}, user{t, socket}
}

// TestWrongValues: values of rules and cron entries that cannot work have the exit code of a usage error; a mistyped
// key names the nearest one.
func TestWrongValues(t *testing.T) {
	t.Parallel()
	server, o, _ := operated(t)
	o.ends(exitUsage, `treadle: queue "mail", retrys: there is no such key; .*, did you mean "retries"\?\n`, "queue set mail retrys=3")
	o.ends(exitUsage, `treadle: queue "mail", retries: "abc" is no number .* [0-9]+\n`, "queue set mail retries=abc")
	o.ends(exitUsage, `treadle: .*99.*\n`, "cron add bad @every-99 b")
	o.ends(exitUsage, `treadle: .*"Mars/X" is no time zone.*\n`, "cron add z @daily b --zone Mars/X")
	o.ends(exitNotFound, "treadle: .*\n", "cron remove bad")
	server.stop()
}

// TestQueueList: queue list shows the queues of all protocols, with --json an object on each line, and queue show one
// of them with its policy, or a policy alone.
func TestQueueList(t *testing.T) {
	t.Parallel()
	server, o, u := operated(t)
	o.gets(`QUEUE +WORKERS +READY +DELAYED +RUNNING +LOCKED +WAITING +FAILED +DONE +PAUSED\n`, "queue list")
	o.gets(``, "queue list --json")
	for _, job := range []string{"mail.a 1", "mail.a 2", "mail.b 1 --later 1h", "zoo 1"} {
		u.gets("", "submit "+job)
	}
	u.gets(`{"queue":"zoo","name":"1","state":"submitted"}\n`, "submit zoo 1 --json")
	u.gets(`{"queue":"zoo","name":"","name_b64":"/w==","state":"submitted"}\n`, "submit zoo \xff --later 1h --json")
	u.gets("", "remove zoo \xff")
	o.gets(`mail.a: .*\n`, "queue pause mail.a --why moving --by ana")
	o.gets(`QUEUE .*\nmail.a +0 +2 +0 +0 +0 +0 +0 +0 +hand-out\nmail.b +0 +0 +1 +0 +0 +0 +0 +0 +-\nzoo +0 +1 +0 +0 +0 +0 +0 +0 +-\n`, "queue list")
	o.gets(`QUEUE .*\nmail.a .*\nmail.b .*\n`, "queue list --prefix mail.")
	o.gets(`QUEUE .* PAUSED +PAUSED-BY +WHY\nmail.a .*hand-out +ana +moving\nmail.b .*\n`, "queue list -o wide --prefix mail.")
	out, errs, code := treadle(t, "", "-H", o.host, "queue", "list", "--json", "--limit", "2")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 2 || errs != `{"note":"there are more than 2 queues: --limit shows more, --prefix others"}`+"\n" {
		t.Errorf("two queues as JSON: exit code %d, %q, %q", code, out, errs)
	}
	for i, name := range []string{"mail.a", "mail.b"} {
		var q struct{ Queue string }
		if err := json.Unmarshal([]byte(lines[min(i, len(lines)-1)]), &q); err != nil || q.Queue != name {
			t.Errorf("line %d is %s, %v", i, lines[i], err)
		}
	}
	o.gets(`workers +0\nready +2\ndelayed +0\nrunning +0\nlocked +0\nwaiting +0\nfailed +0\ndone +0\npaused +hand-out by ana: moving\n\nKEY +VALUE +SOURCE +RULE\npaused +hand-out .*`, "queue show mail.a")
	o.gets(`{"queue":"mail.a",.*"ready":2,.*"policy":\[{"key":"paused",.*\]}\n`, "queue show mail.a --json")
	o.gets(`(?s).*\nno rule is for zoo\n`, "queue show zoo")
	o.ends(exitNotFound, "treadle: there is no queue of that name.*\n", "queue show nobody")
	o.gets(`later: retries="3"\n`, "queue set later retries=3")
	for command, want := range map[string]string{
		"queue set later retries=3": "nothing has changed", "queue resume later": "nothing has changed",
		"queue pause absent": "there is no queue absent yet: the rule waits for it",
	} {
		if _, errs, code := treadle(t, "", append([]string{"-H", o.host}, strings.Fields(command)...)...); code != 0 || errs != "treadle: "+want+"\n" {
			t.Errorf("%s: exit code %d, %q, want the note %q", command, code, errs, want)
		}
	}
	o.gets(`mail.\*: .*`, "queue pause mail.*")
	if _, errs, code := treadle(t, "", "-H", o.host, "queue", "resume", "mail.b"); code != 0 || errs != "treadle: another rule pauses it, too: this queue alone goes on\n" {
		t.Errorf("a resume under a pause of the pattern: exit code %d, %q", code, errs)
	}
	u.gets("", "submit mail.c 1")
	o.gets(`mail.c: .*`, "queue pause mail.c --submits")
	if _, errs, code := treadle(t, "", "-H", o.host, "queue", "pause", "mail.*", "--why", "w"); code != 0 ||
		errs != "treadle: mail.b goes on: its own rule says paused=no; end that with treadle queue unset mail.b paused\n"+
			"treadle: mail.c is paused less: its own rule says paused=submits; end that with treadle queue unset mail.c paused\n" {
		t.Errorf("a pause with exceptions: exit code %d, %q", code, errs)
	}
	o.ends(exitUsage, `treadle: queue "later", retires: there is no such key; the keys are retries, .*\n`, "queue unset later retires")
	o.gets(`(?s)workers +0\n.*\nretries +3 +run time +later\n`, "queue show later")
	o.gets(`{"queue":"later",.*"policy":\[{"key":"retries","value":"3",.*\]}\n`, "queue show later --json")
	server.stop()
}

// TestConn: connections are shown with what they do, and closed by their ids.
func TestConn(t *testing.T) {
	t.Parallel()
	server, o, u := operated(t)
	start(t, true, "-H", u.host, "work", "f", "--", "cat")
	row := regexp.MustCompile(`(?m)^(\S+) +periodic +worker +unix:\S+ +\S+ +\S+ +0 +\d+ +0 +f$`)
	var found []string
	for end := time.Now().Add(20 * time.Second); found == nil && time.Now().Before(end); {
		out, _, _ := treadle(t, "", "-H", o.host, "conn", "list")
		found = row.FindStringSubmatch(out)
	}
	if found == nil {
		t.Fatal("the worker is not shown")
	}
	o.gets(`{"id":"`+found[1]+`","protocol":"periodic","role":"worker",.*"queues":\["f"\].*}\n`, "conn list --json --protocol periodic")
	o.gets(`ID +PROTOCOL +ROLE +REMOTE +OPEN +IDLE +IN +OUT +UNSENT +ASKS +HOLDS +QUEUES\n.*`, "conn list -o wide")
	o.gets(`ID .*\n`, "conn list --protocol gloom")
	o.gets(found[1]+" is closed\n", "conn close "+found[1])
	o.ends(exitNotFound, "treadle: connection "+found[1]+": no connection has this id.*\n", "conn close "+found[1])
	server.stop()
}

// TestWatch: --watch shows a list again and again until an interrupt. Off a terminal the lists follow each other; a
// terminal is cleared before each.
func TestWatch(t *testing.T) {
	t.Parallel()
	server, o, u := operated(t)
	watching := start(t, true, "-H", o.host, "queue", "list", "--json", "--watch=100ms")
	u.gets("", "submit f 1")
	for _, text := range []string{`"ready":1,`, `"ready":1,`} {
		watching.until(text)
	}
	u.gets("", "submit f 2")
	watching.until(`"ready":2,`)
	watching.signal(syscall.SIGINT)
	watching.exit(0)

	master, terminal := openTerminal(t)
	cmd := exec.Command(binary, "-H", u.host, "status", "--watch=100ms")
	cmd.Stdout, cmd.Stderr = terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	frames := newFrames(master)
	for range 2 {
		if frame := frames.next(t, clearScreen); !strings.Contains(frame, "FUNCTION") || strings.Count(frame, "f ") != 1 {
			t.Errorf("a frame is %q", frame)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	frames.rest()
	if err := cmd.Wait(); err != nil {
		t.Errorf("an interrupt ends it with %v", err)
	}
	server.stop()
	if _, errs, code := treadle(t, "", "-H", o.host, "queue", "list", "--watch"); code != exitUnreachable || !strings.Contains(errs, "cannot connect") {
		t.Errorf("without a server: exit code %d, %q", code, errs)
	}
}
