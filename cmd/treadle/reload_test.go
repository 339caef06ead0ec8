package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"treadle/loop/client"
	"treadle/loop/setting"
)

// TestPrecedence: a flag wins over its variable, that over the file, and that over the default, also when the winner
// is the default.
func TestPrecedence(t *testing.T) {
	file := config(t, "drain = \"1m\"\nshards = 3\ndwork = \"off\"\n")
	f := func(variable, want, source string, more ...string) {
		t.Helper()
		t.Setenv("TREADLE_SERVE_DRAIN", variable)
		c, err := parseServe(append([]string{"serve"}, more...))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.settings() {
			if s.Name == "drain" && (s.Value != want || s.Source != source) {
				t.Errorf("%q, variable %q: %s of %s, want %s of %s", more, variable, s.Value, s.Source, want, source)
			}
		}
	}
	f("", "10s", "default")
	f("", "1m", file+":1", "--config", file)
	f("10s", "10s", "TREADLE_SERVE_DRAIN", "--config", file)
	f("2m", "10s", "flag", "--config", file, "--drain=10s")
	f("2m", "3m", "flag", "--drain=3m")

	t.Setenv("TREADLE_SERVE_CONFIG", file)
	t.Setenv("TREADLE_SERVE_PERIODIC", "tcp://127.0.0.1:0, unix:///tmp/x")
	t.Setenv("TREADLE_HOST", "elsewhere") // of the clients
	c, err := parseServe([]string{"serve"})
	if err != nil || c.Serve.Shards != 3 || len(c.Serve.Periodic.Listen) != 2 || c.Serve.Periodic.Listen[1] != "unix:///tmp/x" {
		t.Errorf("the file of the variable: %+v, %v", c.Serve.Options, err)
	}
	for variable, want := range map[string]string{
		"DRAIN":     `TREADLE_SERVE_DRAIN: "soon" is not a time`,
		"LOG_LEVEL": `TREADLE_SERVE_LOG_LEVEL must be one of "debug","info","warn","error" but got "soon"`,
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variablePrefix+variable, "soon")
			if _, errs, code := treadle(t, "", "serve"); code != 2 || !strings.Contains(errs, want) {
				t.Errorf("exit code %d, %q", code, errs)
			}
		})
	}
	t.Setenv("TREADLE_SERVE_SHARDS", "5000")
	if _, errs, code := treadle(t, "", "serve", "--data", "none"); code != 2 || errs != "treadle: TREADLE_SERVE_SHARDS: 5000 is not between 1 and 4096\n" {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

// TestUnknownVariable: a variable that begins like those of settings and names none is told.
func TestUnknownVariable(t *testing.T) {
	t.Setenv("TREADLE_SERVE_DRIAN", "1s")
	p := start(t, false, quiet(filepath.Join(t.TempDir(), "s"), "--data", "none")...)
	p.until(`msg="variables that name no setting are ignored" variables=TREADLE_SERVE_DRIAN`)
	p.until("listening")
	p.stop()
}

// TestConfigCheck: everything that is wrong is named in its line, with the nearest setting.
func TestConfigCheck(t *testing.T) {
	t.Parallel()
	f := func(text string, wants ...string) {
		t.Helper()
		path := config(t, text)
		out, errs, code := treadle(t, "", "config", "check", path)
		if code != 2 || out != "" || strings.Count(errs, "\n") != len(wants) {
			t.Errorf("%q: exit code %d, %q, %q", text, code, out, errs)
		}
		for _, want := range wants {
			if !strings.Contains(errs, "treadle: --config "+path+" line "+want) {
				t.Errorf("%q: %q does not say %q", text, errs, want)
			}
		}
	}
	f("shard = 2\nloops = 1.5\ndrian = 7\ndrain = \"x\"\nsync = \"often\"\n", `1: unknown setting "shard", did you mean "shards"?`, "2: loops: 1.5 cannot be", `3: unknown setting "drian", did you mean "drain"?`, `4: drain: "x" is not a time`, `5: sync must be one of`)
	f("shards = 0\nmax-frame = 3\ndata = \"none\"\ndwork-lease = \"-1s\"\nkts46-timeout = 0\nkts46 = \"x\"\n", "1: shards: 0 is not between 1 and 4096", "2: max-frame: 3 bytes is not between", "4: dwork-lease: -1s is negative", "5: kts46-timeout: 0s is not between 1ms and", `6: kts46: "x" is neither tcp://`)
	f("drain = 20s\n", "1: drain: strings must be quoted\n")
	f("timeout = \"1h\"\n", `1: "timeout" is a setting of the running server: treadle config set timeout VALUE`)
	f("max-outbound = 5\n", "1: max-outbound: 5 bytes is below the largest frame")
	f("[queue.a]\ncolor = \"red\"\nretries = \"x\"\n[queue.b]\nrate = 7\n[[cron]]\nname = \"n\"\nschedule = \"soon\"\nqueue = \"q\"\n[[cron]]\nname = 5\nquue = \"q\"\n[[cron]]\nname = \"m\"\nschedule = \"@daily\"\nmissed = \"often\"\n",
		`2: queue "a", color: there is no such key`, `3: queue "a", retries: `, `5: queue "b", rate: `, `8: cron entry "n", schedule: `, "11: name: 5 cannot be", `12: unknown key "quue" of a cron entry, did you mean "queue"?; the keys`, `16: cron entry "m", missed: `)
	f("[queue.a]\nretrys = 3\n", `2: queue "a", retrys: there is no such key; the keys are `)
	if _, errs, _ := treadle(t, "", "config", "check", config(t, "[queue.a]\nretrys = 3\n")); !strings.HasSuffix(errs, `, did you mean "retries"?`+"\n") {
		t.Errorf("a mistyped key of a rule: %q", errs)
	}
	path := config(t, "drain = \"30s\"\n[queue.a]\nretries = 1\n")
	if out, errs, code := treadle(t, "", "config", "check", path); code != 0 || errs != "" || out != path+" is right: 1 setting, 1 rule for queues, 0 jobs of cron\n" {
		t.Errorf("a right file: exit code %d, %q, %q", code, out, errs)
	}
}

// TestConfigBounds: a file of a size or with a number of keys that would take minutes is refused, and one with as
// many cron entries as there may be is read.
func TestConfigBounds(t *testing.T) {
	t.Parallel()
	f := func(text, want string) {
		t.Helper()
		values, faults := parseConfig("FILE", []byte(text), []string{queueTable, cronTable})
		if got := fmt.Sprint(faults); want == "" && (faults != nil || len(values) != 1) || want != "" && (values != nil || !strings.Contains(got, want)) {
			t.Errorf("%.40q: %.200s, want %s", text, got, want)
		}
	}
	many := func(n int, line string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, line, i)
		}
		return b.String()
	}
	f(many(25_001, "[queue.q%d]\nretries = 1\n"), "FILE line 50001: there are more than 50000 keys and tables")
	f("queue = {"+many(50_000, "q%d = 1, ")+"z = 1}\n", "FILE line 1: there are more than 50000")
	f("queue = [{"+many(50_000, "q%d.a = {}, ")+"z = 1}]\n", "FILE line 1: there are more than 50000")
	f(many(50_001, "[[x%d]]\n"), "FILE line 50001: there are more than 50000")
	f("[[cron]]\n"+many(50_000, "q%d = 1\n"), "FILE line 50001: there are more than 50000")
	f(many(10_000, "[[cron]]\nname = \"%d\"\nschedule = \"* * * * *\"\nzone = \"UTC\"\nqueue = \"q\"\nworkload = \"w\"\nmissed = \"once\"\n"), "")
	large := config(t, strings.Repeat("#", maxConfigFile)+"\n")
	if _, errs, code := treadle(t, "", "config", "check", large); code != exitUsage || !strings.Contains(errs, "it is larger than 16MiB") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// TestConfigDefaults: the printed file has each setting, in a comment or with its default.
func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	text, _, code := treadle(t, "", "config", "defaults")
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	plain, err := parseServe([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseServe([]string{"serve", "--config", config(t, text)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range setting.Changes(&plain.Serve, &again.Serve) {
		if c.Name != configFlag {
			t.Errorf("%s is %s, and %s by the file", c.Name, c.Before, c.After)
		}
	}
	for _, s := range setting.Of(&plain.Serve) {
		line := "\n" + s.Name + " = "
		if s.Tag.Get("default") == "" {
			line = "\n# " + s.Name + " = "
		}
		if s.Name != configFlag && strings.Count(text, line) != 1 {
			t.Errorf("the file has not once: %q", line)
		}
	}
}

// TestConfigShow: a file's settings are shown with their sources, without passwords.
func TestConfigShow(t *testing.T) {
	t.Parallel()
	file := config(t, "kts46-mongodb = \"mongodb://ana:hunter2@h:1/\"\nmax-frame = 3000000\ngloom-masters = \"off\"\n")
	out, errs, code := treadle(t, "", "config", "show", "--json", "--config", file)
	if code != 0 || errs != "" || strings.Contains(out, "hunter2") {
		t.Fatalf("exit code %d, %q, %q", code, out, errs)
	}
	got := make(map[string]client.Setting)
	for line := range strings.Lines(out) {
		var s client.Setting
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		got[s.Name] = s
	}
	for _, want := range []client.Setting{
		{Name: "kts46-mongodb", Value: "mongodb://***@h:1/", Source: file + ":1"},
		{Name: "kts46-databases", Value: "h:1", Source: "default"},
		{Name: "max-frame", Value: "3000000", Source: file + ":2"},
		{Name: "gloom-masters", Value: "off", Source: file + ":3"},
		{Name: "gloom-slaves", Value: "tcp://127.0.0.1:9999", Source: "default"},
		{Name: "run-dir", Value: "/tmp", Source: "default"},
		{Name: "drain", Value: "10s", Source: "default", Reload: true},
		{Name: "max-memory", Value: "70%", Source: "default"},
	} {
		if got[want.Name] != want {
			t.Errorf("%+v, want %+v", got[want.Name], want)
		}
	}
}

// reloaded is a server with a configuration file.
type reloaded struct {
	*process
	user
	file string
}

func serveFile(t *testing.T, text string) *reloaded {
	t.Helper()
	dir := t.TempDir()
	r := &reloaded{user: user{t, filepath.Join(dir, "admin")}, file: config(t, text)}
	r.process = start(t, false, quiet(filepath.Join(dir, "s"), "--data", filepath.Join(dir, "data"), "--admin", "unix://"+filepath.Join(dir, "admin"), "--config", r.file)...)
	r.until("listening")
	r.until("protocol=admin")
	return r
}

func (r *reloaded) write(text string) {
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.user.t.Fatal(err)
	}
}

// TestReload: all that may change does, and is told; a connection stays.
func TestReload(t *testing.T) {
	t.Parallel()
	r := serveFile(t, "drain = \"20s\"\n[queue.a]\nretries = 1\n[queue.b]\nretries = 2\n[[cron]]\nname = \"old\"\nschedule = \"@yearly\"\nqueue = \"q\"\n[[cron]]\nname = \"stays\"\nschedule = \"@yearly\"\nqueue = \"q\"\nworkload = \"w\"\n")
	socket := filepath.Join(filepath.Dir(r.host), "s")
	connection, err := client.Dial(patient(t), "unix://"+socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	r.gets("nothing has changed\n", "reload")
	r.write("drain = \"30s\"\nmin-free = \"300MiB\"\nmax-connections = 100\nmax-api-connections = 50\nlog-level = \"debug\"\n" +
		"[queue.a]\nretries = 3\n[queue.c]\nretries = 4\n[[cron]]\nname = \"new\"\nschedule = \"@yearly\"\nqueue = \"q\"\n[[cron]]\nname = \"stays\"\nschedule = \"@yearly\"\nqueue = \"p\"\nworkload = \"v\"\n")
	r.gets(`SETTING +BEFORE +AFTER
min-free +256MiB +300MiB
max-connections +0 +100
max-api-connections +1024 +50
drain +20s +30s
log-level +info +debug
cron."new" +"" +@yearly for q, 0 bytes
cron."old" +@yearly for q, 0 bytes +""
cron."stays" +@yearly for q, 1 byte +@yearly for p, 1 byte
queue."a" +retries=1 +retries=3
queue."b" +retries=2 +""
queue."c" +"" +retries=4
`, "reload")
	r.until(`msg="the configuration has changed" setting=drain before=20s after=30s`)
	r.until(`msg="the configuration is read again" changes=11`)
	if line := r.until("msg=audit by=" + userName()); !strings.Contains(line, `min-free: 256MiB -> 300MiB; max-connections: 0 -> 100; `) || !strings.Contains(line, `queue.\"c\": - -> retries=4`) {
		t.Errorf("the reload in the audit: %s", line)
	}
	r.gets(`(?s).*\nmin-free +300MiB +\S+:2\n.*\nmax-connections +100 +\S+:3\n.*\ndrain +30s +\S+:1\nmax-memory +70% +default\nlog-level +debug +.*`, "config show")
	r.gets(`QUEUES +SOURCE +KEY +VALUE\na +file +retries +3\nc +file +retries +4\n`, "queue rules")
	if out, _, _ := treadle(t, "", "-H", r.host, "cron", "list"); strings.Contains(out, "old") || !strings.Contains(out, "new ") || !strings.Contains(out, "stays ") {
		t.Errorf("the entries are\n%s", out)
	}
	if err := connection.Ping(patient(t)); err != nil {
		t.Errorf("the connection of before: %v", err)
	}
	r.write("log-level = \"error\"\n[queue.a]\nretries = 3\n")
	r.gets(`(?s).*`, "reload --json")
	r.write("")
	r.signal(syscall.SIGHUP) // its lines are notes, which the earlier level hides
	r.eventually(`no rules?.*|QUEUES +SOURCE +KEY +VALUE\n`, "queue rules")
	r.stop()
}

// TestReloadRefused: what cannot change, and a file that is wrong, leave everything as it was.
func TestReloadRefused(t *testing.T) {
	t.Parallel()
	const before = "drain = \"20s\"\n[queue.a]\nretries = 1\n"
	r := serveFile(t, before)
	f := func(text, says string) {
		t.Helper()
		r.write(text)
		r.user.ends(exitUsage, "treadle: "+says+"\n", "reload")
		r.signal(syscall.SIGHUP)
		for range 2 {
			r.until(`level=ERROR msg="the configuration is not taken, and nothing has changed"`)
		}
		r.gets(`(?s).*\ndrain +20s .*`, "config show")
		r.gets(`(?s).*\na +file +retries +1\n`, "queue rules")
	}
	f("shards = 3\nsync = \"never\"\ndrain = \"30s\"\n", "a reload cannot change sync, shards: restart the server, or take that back")
	f("drain = \"30s\"\nretries = = 1\n", "--config .* line 2: .*")
	f("drain = \"30s\"\n[queue.a]\nretries = \"x\"\n", `--config .* line 3: queue "a", retries: .*`)
	f("drain = \"30s\"\nmin-free = 7\n", `--config .* line 2: min-free: 7 bytes is less than the store needs.*`)
	f("drain = \"30s\"\n[[cron]]\nname = \"n\"\nschedule = \"x\"\nqueue = \"q\"\n", `--config .* line 4: cron entry "n", schedule: .*`)
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	r.user.ends(exitUsage, "treadle: --config .*: no such file or directory\n", "reload")
	r.write(before)
	r.gets("nothing has changed\n", "reload")
	r.stop()
}

// lineCount is a log that counts its lines.
type lineCount struct{ n atomic.Int64 }

func (l *lineCount) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}

// TestHangupStorm: a thousand SIGHUPs during a reload are one more.
func TestHangupStorm(t *testing.T) {
	t.Parallel()
	c, err := parseServe([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	var lines lineCount
	r := &runningServer{c: c, log: slog.New(slog.NewTextHandler(&lines, nil))}
	hangups, stop := notifyHangups()
	seen := make(chan os.Signal, 1000)
	signal.Notify(seen, syscall.SIGHUP)
	defer signal.Stop(seen)
	ended := make(chan struct{})
	r.mu.Lock() // a reload takes long
	go func() {
		defer close(ended)
		r.follow(hangups)
	}()
	for i := range 1000 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if <-seen; i > 0 && len(hangups) > 1 {
			t.Fatal(fmt.Sprint(len(hangups), " signals wait"))
		}
	}
	r.mu.Unlock()
	stop()
	<-ended
	if n := lines.n.Load(); n < 1 || n > 2 {
		t.Errorf("%d reloads", n)
	}
}
