package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"treadle/loop/setting"
)

// TestTypos: a usage error is one line with the remedy, and exit code 2.
func TestTypos(t *testing.T) {
	t.Parallel()
	f := func(says string, args ...string) {
		t.Helper()
		out, errs, code := treadle(t, "", args...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "treadle: ") || !strings.Contains(errs, says) {
			t.Errorf("%q: exit code %d, %q, %q; want 2 and one line that says %q", args, code, out, errs, says)
		}
	}
	f("FUNC is empty", "submit", "", "n")
	f("FUNC is empty", "run", "", "n")
	f("NAME is empty", "submit", "f", "")
	f("FUNC is empty", "work", "", "--", "cat")
	f("TYPE is empty", "gloom", "work", "", "--", "cat")
	f("TYPE is empty", "gloom", "submit", "", "1")
	f("TASK is empty", "dwork", "create", "")

	serverless := []string{"serve", "journal check x", "disbatch node", "disbatch web"}
	for _, command := range append([]string{"gloom submit t 1", "dwork status", "kts46 status", "disbatch queues"}, serverless...) {
		args := strings.Fields(command)
		name := strings.Join(args[:min(2, len(args))], " ")
		if slices.Contains(serverless, command) {
			f("-H (--host) changes nothing for treadle "+name, append([]string{"-H", "127.0.0.1:1"}, args...)...)
		}
		f("--crc changes nothing for treadle "+name, append([]string{"--crc"}, args...)...)
	}
	f("--periodic and --bind say where it listens", "serve", "-H", "127.0.0.1:1")

	f("unknown flag --threads (did you mean --thread?): the command follows --, as in treadle work", "work", "f", "--threads", "2", "--", "cat")
	f("unknown flag --threads (did you mean --thread?): the command follows --, as in treadle gloom work", "gloom", "work", "f", "--threads=2", "--", "cat")
	f("unknown flag --job (did you mean --jobs?): the command follows --, as in treadle dwork work", "dwork", "work", "--job", "2", "--", "cat")
	f("unknown flag --frob: the command follows --", "work", "f", "--frob", "--", "cat")

	f("-w (--workload) needs a value, DATA (see treadle submit --help)", "submit", "f", "n", "-w")
	f("-w (--workload) needs a value, DATA, and got the flag --later; a value that begins with - is written --workload=--later", "submit", "f", "n", "-w", "--later", "5")
	f("-H (--host) needs a value, ADDR", "status", "-H")
	f("--later needs a value, TIME", "submit", "f", "n", "--later")
	f("--later: -5s is negative", "submit", "f", "n", "--later", "-5")
	f("--later: -5s is negative", "submit", "f", "n", "--later=-5")
	f("--drain: -5m is negative", "serve", "--drain=-5m")
	f("--dwork-lease: -1h is negative", "serve", "--dwork-lease=-1h")
	f("--dwork-remember: -1s is negative", "serve", "--dwork-remember=-1")
	f("--kts46-restart-after: -1s is negative", "serve", "--kts46-restart-after", "-1")
	f("--min-free: -1 is negative", "serve", "--min-free", "-1")
	f("a value that begins with - is written --priority=-1", "gloom", "submit", "t", "1", "--priority", "-1")
	f("a value that begins with - is written --timeout=-1s", "work", "f", "--timeout", "-1s", "--", "cat")
	f("--timeout: -1m is negative", "run", "f", "n", "--timeout=-1m")
	f("--wait: -1s is negative", "run", "f", "n", "--wait=-1s")
	f("--wait: -1s is negative", "recv", "f", "n", "--wait=-1s")
	f("--timeout: -2s is negative; -1s is the job's own time-out", "work", "f", "--timeout=-2", "--", "cat")
	f(`--later: "soon" is not a time: write seconds (90), or units as in 500ms, 90s, 5m or 1h30m`, "submit", "f", "n", "--later", "soon")
	f("1.5s is no whole number of seconds", "submit", "f", "n", "--later", "1.5s")
	f("--timeout: 1000000h is too long: at most 596523h14m7s", "submit", "f", "n", "--timeout", "1000000h")
	f(`"5m" is no value of "max-patch": write a number from 0 to 4294967295`, "config", "set", "max-patch", "5m")
	f(`"soon" is no value of "timeout": write a number from 0 to 4294967295, or a time as 90s, 5m or 1h30m`, "config", "set", "timeout", "soon")
	f("timeout: -5s is negative", "config", "set", "timeout", "--", "-5")
	f("timeout: -5 is negative (see treadle config set --help)", "config", "set", "timeout", "-5")
	f("keepalive: -5m is negative (see treadle config set --help)", "config", "set", "keepalive", "-5m")
	f(`"refusing" is read only`, "config", "set", "refusing", "1")
	f(`"max-frame" is read only`, "config", "set", "max-frame", "1")
	f("unknown flag -5; an argument that begins with - follows --, as in treadle submit -- -5 (see", "submit", "f", "-5")
	f("unknown flag -r; an argument that begins with - follows --, as in treadle dwork create -- -r (see", "dwork", "create", "-rf")
	f("unknown flag -x, did you mean", "status", "-x")
	f(`"timeout" is a setting of the running server: treadle config set timeout VALUE (see treadle serve --help)`, "serve", "--timeout", "1h")
	f("--data: it is empty; name a directory, or none", "serve", "--data", "")
	f("--only: gloom,dwork leaves kts46 out, and --kts46-json gives it an address: name kts46 here too, or leave the address out", "serve", "--data", "none", "--only", "gloom,dwork", "--kts46-json", "tcp://127.0.0.1:0")
	f("--only: it is empty; name periodic, gloom, dwork, kts46, beanstalk or faktory", "serve", "--data", "none", "--only", "")
	f(`--only must be one of "periodic","gloom","dwork","kts46","beanstalk","faktory" but got "beanstalkd"`, "serve", "--data", "none", "--only", "periodic,beanstalkd")
	f("--shards: 0 is not between 1 and 4096", "serve", "--data", "none", "--shards", "0")
	f(`--bind: "0.0.0.0:99" is no host: write a name or an IP address alone`, "serve", "--data", "none", "--bind", "0.0.0.0:99")
	f(`--gloom-masters: "off" stands beside other addresses`, "serve", "--data", "none", "--gloom-masters", "off", "--gloom-masters", "tcp://127.0.0.1:0")

	// An error about a value of the file names the file and the line.
	g := func(text, says string) {
		t.Helper()
		file := config(t, text)
		f("--config "+file+" line 3: "+says, "serve", "--config", file, "--data", "none")
	}
	g("# one\n\nmax-frame = 5\n", "max-frame: 5 bytes is not between 1KiB and 2147482623 bytes")
	g("# one\n\nlog-level = \"loud\"\n", "log-level must be one of")
	g("# one\n\nonly = [\"gloom\"]\ndwork = \"tcp://127.0.0.1:0\"\n", "only: gloom leaves dwork out, and --dwork gives it an address")
	g("# one\n\nhandshake-timeout = 0\n", "handshake-timeout: 0s is too short")
	g("# one\n\nperiodic = [\"a\",\n\"b\"]\n", `periodic: "a" is neither tcp://host:port nor tls://host:port nor unix:///path`)
	f("--max-frame: 6 bytes is not between", "serve", "--config", config(t, "max-frame = 5\n"), "--max-frame", "6")
}

// TestHelpAndVersion: they are found under the words that other programs have for them.
func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	same := func(a, b string) {
		t.Helper()
		wantOut, wantErrs, wantCode := treadle(t, "", strings.Fields(a)...)
		out, errs, code := treadle(t, "", strings.Fields(b)...)
		if out != wantOut || errs != wantErrs || code != wantCode || code != 0 {
			t.Errorf("%s: exit code %d, %q, %q; want that of %s", b, code, out, errs, a)
		}
	}
	same("--help", "help")
	same("submit --help", "help submit")
	same("gloom work --help", "help gloom work")
	same("job priority --help", "job priority mail.news name --help") // a priority is missing
	for _, word := range []string{"version", "-v", "-V"} {
		same("--version", word)
	}
	if _, errs, code := treadle(t, "", "help", "frob"); code != 2 || !strings.Contains(errs, "frob") {
		t.Errorf("help of nothing: exit code %d, %q", code, errs)
	}
}

// TestSpans: times are written in the same ways everywhere.
func TestSpans(t *testing.T) {
	t.Parallel()
	f := func(text string, want time.Duration, spelled string) {
		t.Helper()
		got, err := parseDuration(text)
		if err != nil || got != want || setting.FormatDuration(got) != spelled {
			t.Errorf("%q: %v, %v, spelled %s; want %v, %s", text, got, err, setting.FormatDuration(got), want, spelled)
		}
	}
	f("0", 0, "0s")
	f("90", 90*time.Second, "1m30s")
	f(" 600 ", 10*time.Minute, "10m")
	f("-1", -time.Second, "-1s")
	f("500ms", 500*time.Millisecond, "500ms")
	f("1h30m", 90*time.Minute, "1h30m")
	f("2h", 2*time.Hour, "2h")
	f("10h20m0s", 10*time.Hour+20*time.Minute, "10h20m")
	for _, bad := range []string{"", "5x", "m", "1.5", "9223372036854775807", "-9223372036854775808", "1e3s"} {
		if d, err := parseDuration(bad); err == nil {
			t.Errorf("%q is taken for %v", bad, d)
		}
	}
	for _, long := range []string{"999999999h", "-999999999h", "9223372036854775807", "99999999999999999999"} {
		if _, err := parseDuration(long); err == nil || !strings.Contains(err.Error(), "is too long a time: at most 292 years") {
			t.Errorf("%q: %v", long, err)
		}
	}
	c, err := parse(t, "serve", "--drain", "7", "--frame-timeout=2m", "--config", config(t, "handshake-timeout = 3\ndwork-lease = \"4m\"\n"))
	if s := &c.Serve; err != nil || s.Drain != 7*time.Second || s.FrameTimeout != 2*time.Minute || s.HandshakeTimeout != 3*time.Second || s.Dwork.Lease != 4*time.Minute {
		t.Errorf("%v: %v %v %v %v", err, c.Serve.Drain, c.Serve.FrameTimeout, c.Serve.HandshakeTimeout, c.Serve.Dwork.Lease)
	}
}

// TestRefusals: a request that the server cannot carry out is one line with the remedy, and exit code 1.
func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, dump := filepath.Join(dir, "s"), filepath.Join(dir, "jobs.dump")
	serve(t, socket, "--max-frame", "2m", "--gloom-max-frame", "2m")
	u := user{t, socket}
	u.ends(exitNotFound, `treadle: the server at .* does not know the setting "tiemout", did you mean "timeout"\?.*\n`, "config get tiemout")
	u.ends(exitNotFound, `treadle: the server at .* does not know the setting "tiemout", did you mean "timeout"\?.*\n`, "config set tiemout 3")
	u.ends(exitNotFound, `treadle: the server at .* does not know the setting "colour" .*\n`, "config get colour")
	u.ends(exitNotFound, `treadle: the server at .* does not know the setting "colour" .*\n`, "config set colour 0")
	u.ends(exitNotFound, `treadle: "drain" is a setting of treadle serve: .*\n`, "config set drain 5")
	u.gets("0\n", "config get refusing")
	u.gets("2097152\n", "config get max-frame")
	u.gets("", "config set timeout 5m")
	u.gets("300\n", "config get timeout")
	for _, framing := range []string{"", "--framing 2018 "} {
		u.ends(exitNotFound, `treadle: no job "b" of function "a" at .*\n`, framing+"remove a b")
		u.ends(exitNotFound, `treadle: no function "a" at .*\n`, framing+"drop a")
		u.gets("", framing+"submit a b")
		u.gets("", framing+"remove a b")
		u.gets("", framing+"drop a")
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"submit", "run", "--framing 2018 submit"} {
		u.fails(`treadle: the workload has 3MiB, and the server at .* takes requests of up to 2MiB: raise its --max-frame, or .*\n`, command+" f n -w @"+large)
	}
	u.fails(`treadle: cannot run "f" "n" at .*: no worker for this function is connected, and the job was not submitted: start one with treadle work f -- CMD\n`, "run f n")
	u.fails(`treadle: no worker serves "f": the job is queued until one does \(treadle work f -- CMD\)\n`+
		`treadle: no result of "f" "n" in 3s: no worker serves "f"; the job stays queued .*\n`, "--framing 2018 run f n --wait 3")
	worker := start(t, false, "-H", socket, "work", "g", "--", "sh", "-c", "sleep 60")
	worker.until("waiting for jobs")
	u.fails(`treadle: no result of "g" "n" in 500ms: the job goes on without this command; "g" has 1 job, \d running, and 1 worker\n`, "run g n --wait 500ms")
	worker.signal(syscall.SIGINT)
	worker.until("finishing 1 job;")
	worker.signal(syscall.SIGINT)
	worker.exit(exitInterrupted)
	u.gets("", "remove g n")
	u.gets("", "drop g")

	// A file that is no dump is not sent.
	u.fails(`treadle: cannot load .*, nothing was sent: it is no dump: .*\n`, "load "+config(t, strings.Repeat("text", 9)))
	u.gets("", "submit f m")
	u.tells("treadle: the dump leaves out 1 changed setting: treadle backup has all .*\n", "dump "+dump)
	whole, err := os.ReadFile(dump)
	if err != nil {
		t.Fatal(err)
	}
	u.fails(`treadle: cannot load .*, nothing was sent: .* cut.*\n`, "load "+config(t, string(whole[:len(whole)-1])))
	u.gets(`.*\nf +0 +2 .*`, "status")
	// When the server refuses a job in the middle of the dump, the message has the number of jobs that are in.
	huge := append([]byte("\x00\x00\x00\x00\x00\x00\x00\x02\x01f\x01x\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01f\x01y\x00\x30\x00\x00"), make([]byte, 3<<20+9)...)
	u.fails(`treadle: cannot load the jobs at .*: a job is larger than its --max-frame; 1 of the 2 jobs are in\n`, "load "+config(t, string(huge)))
}

// TestDistance: a typo is near, another word is not.
func TestDistance(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		a, b string
		want int
	}{{"timeout", "timeout", 0}, {"tiemout", "timeout", 1}, {"timout", "timeout", 1}, {"tmeouts", "timeout", 2}, {"", "abc", 3}, {"abc", "", 3}, {"foo", "timeout", 6}} {
		if got := distance(f.a, f.b); got != f.want {
			t.Errorf("%q, %q: %d, want %d", f.a, f.b, got, f.want)
		}
	}
}
