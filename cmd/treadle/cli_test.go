package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"treadle/loop"
)

// parse reads a command line without running it.
func parse(t *testing.T, args ...string) (*cli, error) {
	t.Helper()
	c := &cli{}
	parser, err := newParser(c, &console{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return c, err
}

// config writes a configuration file and returns its path.
func config(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "treadle.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestArgumentsAreBytes: Names, workloads and commands are bytes: what is no UTF-8 reaches the server as it is.
func TestArgumentsAreBytes(t *testing.T) {
	t.Parallel()
	const text = "\xff\xfe é \x80"
	submit, err := parse(t, "submit", text, "n"+text, "-w", text)
	if s := &submit.Submit; err != nil || s.Func != text || s.Name != "n"+text || s.Workload != text {
		t.Errorf("submit: got %+v, %v", s, err)
	}
	work, err := parse(t, "work", text, "--lock-name="+text, "--", "cat", text)
	if w := &work.Work; err != nil || w.Func != text || w.LockName != text || w.Command[1] != text {
		t.Errorf("work: got %+v, %v", w, err)
	}
	gloom, err := parse(t, "gloom", "submit", text, text, "--id", text)
	if g := &gloom.Gloom.Submit; err != nil || g.Type != text || g.Body != text || g.ID != text {
		t.Errorf("gloom submit: got %+v, %v", g, err)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	f := func(text string, want int) {
		t.Helper()
		c, err := parse(t, "serve", "--max-outbound", text)
		if got := c.Serve.MaxOutbound; err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	f("0", 0)
	f("67108864", 64<<20)
	f("64MiB", 64<<20)
	f("64 MiB", 64<<20)
	f("64m", 64<<20)
	f("64M", 64<<20)
	f("1k", 1024)
	f("1KiB", 1024)
	f("2g", 2<<30)
	f("5b", 5)
	for _, bad := range []string{"", "m", "-1", "1.5m", "64MB", "64mm", "1t", "9223372036854775808", "9007199254740992k", "0x10"} {
		if c, err := parse(t, "serve", "--max-outbound="+bad); err == nil {
			t.Errorf("%q was taken for %d", bad, c.Serve.MaxOutbound)
		}
	}
}

func TestServeOptions(t *testing.T) {
	t.Parallel()
	f := func(args []string, want loop.Options) {
		t.Helper()
		c, err := parse(t, append([]string{"serve"}, args...)...)
		if err != nil {
			t.Errorf("%q: %v", args, err)
			return
		}
		got, err := c.Serve.options()
		want.Periodic.Grace = orDefault(want.Periodic.Grace, time.Second)
		want.Gloom.JSON = orDefault(want.Gloom.JSON, "lax")
		want.MaxFrame, want.Gloom.MaxFrame = orDefault(want.MaxFrame, 64<<20), orDefault(want.Gloom.MaxFrame, 64<<20)
		want.Data, want.Sync = orDefault(want.Data, "./treadle-data"), orDefault(want.Sync, "always")
		want.SyncInterval, want.MinFree = orDefault(want.SyncInterval, 50*time.Millisecond), orDefault(want.MinFree, 256<<20)
		want.Periodic.Grab, want.Periodic.Shutdown = orDefault(want.Periodic.Grab, "hold"), orDefault(want.Periodic.Shutdown, "on")
		want.Periodic.CRC = orDefault(want.Periodic.CRC, "2023")
		want.HandshakeTimeout, want.FrameTimeout = orDefault(want.HandshakeTimeout, 10*time.Second), orDefault(want.FrameTimeout, 100*time.Second)
		want.Dwork.MaxFrame, want.Dwork.MaxSteal = orDefault(want.Dwork.MaxFrame, 16<<20), orDefault(want.Dwork.MaxSteal, 65536)
		want.Dwork.Idle, want.Dwork.Restart = orDefault(want.Dwork.Idle, "exit"), orDefault(want.Dwork.Restart, "keep")
		want.Dwork.Stop, want.Dwork.Complete = orDefault(want.Dwork.Stop, "exit"), orDefault(want.Dwork.Complete, "any")
		want.Kts46.Timeout, want.Kts46.TimeoutUnit = orDefault(want.Kts46.Timeout, 5*time.Second), orDefault(want.Kts46.TimeoutUnit, "s")
		want.Beanstalk.MaxJob = orDefault(want.Beanstalk.MaxJob, 65535)
		want.Cluster.Clock = orDefault(want.Cluster.Clock, time.Minute)
		want.Pprof, want.TLS.Min = orDefault(want.Pprof, "off"), orDefault(want.TLS.Min, "1.2")
		want.Web.Web, want.Web.Payload = orDefault(want.Web.Web, "read-write"), orDefault(want.Web.Payload, "show")
		want.Web.Docs, want.Web.Topics = pages, topics
		want.MetricsMaxQueues = orDefault(want.MetricsMaxQueues, 500)
		want.Shards = orDefault(want.Shards, 16)
		want.MaxAPIConnections = orDefault(want.MaxAPIConnections, 1024)
		want.Drain, want.Version = orDefault(want.Drain, 10*time.Second), version
		want.Bind, want.Explicit = orDefault(want.Bind, "127.0.0.1"), true
		want.MinFree, want.Drain = max(want.MinFree, 0), max(want.Drain, 0) // -1 stands for a zero that was given
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\n got %+v, %v\nwant %+v", args, got, err, want)
		}
	}
	f(nil, loop.Options{})
	f([]string{"--periodic", "tcp://a:1", "--periodic=unix:///x,y"}, loop.Options{Periodic: loop.PeriodicOptions{Listen: []string{"tcp://a:1", "unix:///x,y"}}})
	f([]string{"--bind", "0.0.0.0", "--periodic-grab", "document", "--periodic-crc=2019", "--periodic-shutdown=off", "--periodic-grace=3s", "--http", "off", "--pprof=on"},
		loop.Options{Bind: "0.0.0.0", Periodic: loop.PeriodicOptions{Grab: "document", CRC: "2019", Shutdown: "off", Grace: 3 * time.Second}, HTTP: "off", Pprof: "on"})
	f([]string{"--allow-host", "a.example", "--allow-host=b,c"}, loop.Options{AllowHosts: []string{"a.example", "b,c"}})
	f([]string{"--gloom-masters", "tcp://a:1", "--gloom-masters=tcp://b:2", "--gloom-slaves", "off", "--gloom-max-frame=1KiB", "--gloom-json=strict"},
		loop.Options{Gloom: loop.GloomOptions{Masters: []string{"tcp://a:1", "tcp://b:2"}, Slaves: []string{"off"}, MaxFrame: 1 << 10, JSON: "strict"}})
	f([]string{"--kts46", "off", "--kts46-json", "tcp://a:1", "--kts46-timeout=1m", "--kts46-timeout-unit=ms", "--kts46-restart-after=2m", "--kts46-databases", "a:1,b:2", "--kts46-mongodb", "mongodb://c"},
		loop.Options{Kts46: loop.Kts46Options{Listen: []string{"off"}, JSON: []string{"tcp://a:1"}, Timeout: time.Minute, TimeoutUnit: "ms", RestartAfter: 2 * time.Minute, Databases: []string{"a:1", "b:2"}, MongoDB: "mongodb://c"}})
	f([]string{"--dwork", "off", "--dwork-max-frame=1m", "--dwork-max-steal=7", "--dwork-idle=notfound", "--dwork-stop=notfound", "--dwork-complete=holder", "--dwork-restart=ready", "--dwork-lease=1m", "--dwork-remember=2m"},
		loop.Options{Dwork: loop.DworkOptions{Listen: []string{"off"}, MaxFrame: 1 << 20, MaxSteal: 7, Idle: "notfound", Stop: "notfound", Complete: "holder", Restart: "ready", Lease: time.Minute, Remember: 2 * time.Minute}})
	f([]string{"--data", "none", "--sync=interval", "--sync-interval", "1s", "--min-free=1g"},
		loop.Options{Data: loop.NoData, Sync: "interval", SyncInterval: time.Second, MinFree: 1 << 30})
	f([]string{"--metrics-max-queues=7"}, loop.Options{MetricsMaxQueues: 7})
	f([]string{"--min-free=0"}, loop.Options{MinFree: -1})
	f([]string{"--loops=2", "--shards=3", "--max-connections=4", "--max-api-connections=9", "--max-frame=5m", "--max-outbound=6m"},
		loop.Options{Loops: 2, Shards: 3, MaxConnections: 4, MaxAPIConnections: 9, MaxFrame: 5 << 20, MaxOutbound: 6 << 20})
	f([]string{"--handshake-timeout=1s", "--frame-timeout=2m", "--drain=0s"},
		loop.Options{HandshakeTimeout: time.Second, FrameTimeout: 2 * time.Minute, Drain: -1})

	only := loop.Options{Beanstalk: loop.BeanstalkOptions{Listen: []string{"tcp://0.0.0.0:11300"}}, Faktory: loop.FaktoryOptions{Listen: []string{"tcp://a:1"}}, Bind: "0.0.0.0"}
	only.Periodic.Listen, only.Gloom.Masters, only.Gloom.Slaves, only.Dwork.Listen, only.Kts46.Listen, only.Kts46.JSON = off, off, off, off, off, off
	f([]string{"--only", "beanstalk,faktory", "--bind=0.0.0.0", "--faktory=tcp://a:1"}, only)
	f([]string{"--only", "periodic,dwork", "--dwork=tcp://a:1", "--gloom-slaves=off"}, loop.Options{
		Gloom: loop.GloomOptions{Masters: off, Slaves: off}, Dwork: loop.DworkOptions{Listen: []string{"tcp://a:1"}}, Kts46: loop.Kts46Options{Listen: off, JSON: off},
	})

	file := config(t, `
periodic = ["tcp://a:1", "unix:///x,y"]
periodic-grab = "document"
max-frame = "1MiB"
max-outbound = 3000000
gloom-masters = "off"
gloom-slaves = ["tcp://a:2"]
gloom-max-frame = "2MiB"
loops = 2
drain = "30s"
log-level = "debug"
`)
	fromFile := loop.Options{
		Periodic: loop.PeriodicOptions{Listen: []string{"tcp://a:1", "unix:///x,y"}, Grab: "document"},
		Gloom:    loop.GloomOptions{Masters: []string{"off"}, Slaves: []string{"tcp://a:2"}, MaxFrame: 2 << 20},
		MaxFrame: 1 << 20, MaxOutbound: 3000000, Loops: 2, Drain: 30 * time.Second,
	}
	f([]string{"--config", file}, fromFile)
	over := fromFile
	over.Periodic.Listen, over.Loops, over.Drain = []string{"tcp://b:2"}, 1, 10*time.Second
	f([]string{"--loops=1", "--config", file, "--periodic", "tcp://b:2", "--drain=10s"}, over)
	f([]string{"--config", config(t, `allow-host = ["a.example", "b.example"]`)}, loop.Options{AllowHosts: []string{"a.example", "b.example"}})
	f([]string{"--config", config(t, `periodic = "off"`)}, loop.Options{Periodic: loop.PeriodicOptions{Listen: []string{"off"}}})
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// TestConfigAllMistakes: all mistakes of the rules are named at once, in the order of the lines. A wrong value of a key
// does not count as a missing one.
func TestConfigAllMistakes(t *testing.T) {
	t.Parallel()
	path := config(t, `[queue.g]
fair = "key"
kee = "json a"
rate = "0/s"
[queue.a]
weights = "a=2"
[queue.b]
key = "x"
fair = "key"
`)
	_, err := parse(t, "serve", "--config", path)
	if err == nil {
		t.Fatal("the file was accepted")
	}
	for _, want := range []string{
		"2: queue \"g\", fair: it does nothing without a key", "3: queue \"g\", kee: there is no such key",
		"4: queue \"g\", rate: a rate of 0", "6: queue \"a\", weights: it does nothing without a key",
		"6: queue \"a\", weights: it does nothing without fair", "8: queue \"b\", key: \"x\" is no key",
	} {
		_, rest, found := strings.Cut("\n"+err.Error(), "\n--config "+path+" line "+want)
		if !found {
			t.Fatalf("got %v, want %q next", err, want)
		}
		_, rest, _ = strings.Cut(rest, "\n")
		err = errors.New(rest)
	}
	if err.Error() != "" {
		t.Errorf("left is %v", err)
	}
}

func TestConfigMistakes(t *testing.T) {
	t.Parallel()
	f := func(text string, parts ...string) {
		t.Helper()
		path := config(t, text)
		_, err := parse(t, "serve", "--config", path)
		if err == nil {
			t.Errorf("%q was accepted", text)
			return
		}
		for _, part := range append(parts, path) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q does not say %q", text, err, part)
			}
		}
	}
	f("loops = 1\nshard = 2\n", `unknown setting "shard"`, "line 2")
	f("\n\n[server]\nloops = 1\n", `unknown setting "server`, "line ")
	f("config = \"x\"\n", `unknown setting "config"`, "line 1")
	f("host = \"x\"\n", `unknown setting "host"`, "line 1")
	f("loops = = 1\n", "line 1")
	f("loops = 1\nloops = 2\n", "loops", "line 2")
	f("loops = \"many\"\n", "loops: ", "many")
	f("\nloops = 1.5\n", "line 2: loops: 1.5 cannot be its value")
	f("loops = [\"1\"]\n", "loops: [1] cannot be its value")
	f("\n\ndrain = \"x\"\n", "line 3: drain: ", "is not a time: write seconds (90), or units")
	f("max-frame = \"64MB\"\n", "line 1: max-frame: ", "is not a size")
	f("periodic = [1]\n", "periodic: [1] cannot be its value")
	f("queue = 1\n", "queue is a table of tables")
	f("[queue]\nmail = 3\n", "line 2: what is said of a queue stands in a table")
	f("[queue.\"mail.*\"]\nretries = 3\nbackoff = \"soon\"\n", `line 3: queue "mail.*", backoff: "soon" is no time`)
	f("loops = 1\n[queue.a]\nrate = \"0/s\"\n", `line 3: queue "a", rate: a rate of 0`)
	f("[queue.a]\ncolor = \"red\"\n", "line 2: ", "the keys are retries,")
	f("[queue.a]\nretries = [1]\n", "line 2: [1] cannot be its value")
	f("[queue.a]\nretries = 1\nfair = \"key\"\n", `line 3: queue "a", fair: it does nothing without a key`)
	f("[queue.a]\nkey-concurrency = 2\n", `line 2: queue "a", key-concurrency: it does nothing without a key`)
	f("[queue.a]\nkey = \"json user\"\n[queue.b]\nweights = \"gold=3\"\n", `line 4: queue "b", weights: it does nothing without a key`)
	f("[queue.\"*\"]\nkey = \"json user\"\n[queue.b]\nweights = \"gold=3\"\n", `line 4: queue "b", weights: it does nothing without fair`)
	f("cron = 1\n", "each cron entry is a table [[cron]]")
	f("[cron]\nname = \"a\"\n", "each cron entry is a table [[cron]]")
	const entry = "loops = 1\n[[cron]]\nname = \"a\"\nqueue = \"q\"\nschedule = \"@daily\"\n"
	f("[[cron]]\nname = \"a\"\nqueue = \"q\"\nschedule = \"0 0 30 2 *\"\n", `line 4: cron entry "a", schedule: "0 0 30 2 *" never runs`)
	f(entry+"[[cron]]\nname = \"b\"\nqueue = \"q\"\n", `line 6: cron entry "b", schedule: "" is no schedule`)
	f(entry+"zone = \"Mars/Base\"\n", `line 6: cron entry "a", zone: "Mars/Base" is no time zone`)
	f(entry+"missed = \"twice\"\n", `line 6: cron entry "a", missed: it is once or skip`)
	f(entry+"overlap = \"\"\n\npriority = \"high\"\n", `line 8: priority: high cannot be its value: write a number`)
	f(entry+"workload = 3\n", `line 6: workload: 3 cannot be its value: write a text in quotes`)
	f(entry+"color = \"red\"\n", `line 6: unknown key "color" of a cron entry; the keys are missed, name,`)
	f(entry+"[queue.a]\nretries = 1\n"+entry[len("loops = 1\n"):], `line 9: cron entry "a", name: line 3 has an entry of this name`)
	_, err := parse(t, "serve", "--config", "/nowhere/treadle.toml")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	_, err = parse(t, "serve", "--config", config(t, `log-level = "loud"`))
	if err == nil || !strings.Contains(err.Error(), "line 1: log-level must be one of") {
		t.Errorf("a wrong level: %v", err)
	}
}

// TestConfigLines: the lines of a large file are counted once. Counted anew for each key, they take longer than a
// test may.
func TestConfigLines(t *testing.T) {
	t.Parallel()
	const n = 50_000
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "[[cron]]\nname = \"c%d\"\n\n[queue.q%d]\nretries = 3\n", i, i)
	}
	file := []byte(text.String())
	if line := cronLines(file)[cronLine{n - 1, "name"}]; line != 5*n-3 {
		t.Errorf("the last name is in line %d, want %d", line, 5*n-3)
	}
	if line := ruleLines(file)[ruleKey{fmt.Sprint("q", n-1), "retries"}]; line != 5*n {
		t.Errorf("the last key is in line %d, want %d", line, 5*n)
	}
	if line := linesOf(file)["name"]; line != 5*n-3 {
		t.Errorf("the last name of any table is in line %d, want %d", line, 5*n-3)
	}
}

// TestConfigRules reads the rules for queues of a configuration file.
func TestConfigRules(t *testing.T) {
	t.Parallel()
	c, err := parse(t, "serve", "--config", config(t, "loops = 1\n[queue.\"mail.*\"]\nretries = 3\nbackoff = \"1s..1h x2\"\n[queue.b]\npaused = \"both\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []loop.PolicyRule{
		{Pattern: "b", Values: map[string]string{"paused": "both"}},
		{Pattern: "mail.*", Values: map[string]string{"retries": "3", "backoff": "1s..1h x2"}},
	}
	if !reflect.DeepEqual(c.sources.rules, want) {
		t.Errorf("got %+v, want %+v", c.sources.rules, want)
	}
}

// TestConfigCron reads the cron entries of a configuration file.
func TestConfigCron(t *testing.T) {
	t.Parallel()
	c, err := parse(t, "serve", "--config", config(t, "[[cron]]\nname = \"a\"\nqueue = \"q\"\nschedule = \"@daily\"\nzone = \"UTC\"\npriority = 7\n[queue.a]\nretries = 1\n[[cron]]\nname = \"b\"\nqueue = \"q\"\nschedule = \"@hourly\"\nworkload = \"w\"\nmissed = \"skip\"\noverlap = \"queue\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []loop.CronEntry{
		{Name: "a", Queue: "q", Schedule: "@daily", Zone: "UTC", Priority: 7},
		{Name: "b", Queue: "q", Schedule: "@hourly", Workload: "w", Missed: "skip", Overlap: "queue"},
	}
	if !reflect.DeepEqual(c.sources.cron, want) || len(c.sources.rules) != 1 {
		t.Errorf("got %+v and %+v, want %+v", c.sources.cron, c.sources.rules, want)
	}
}

func TestHost(t *testing.T) {
	f := func(treadle, periodic string, args []string, want string) {
		t.Helper()
		t.Setenv("TREADLE_HOST", treadle)
		t.Setenv("PERIODIC_PORT", periodic)
		for name, value := range map[string]string{"TREADLE_HOST": treadle, "PERIODIC_PORT": periodic} {
			if value == "" {
				os.Unsetenv(name)
			}
		}
		c, err := parse(t, append(args, "ping")...)
		if err != nil || c.host() != want {
			t.Errorf("%q %q %q: got %q, %v, want %q", treadle, periodic, args, c.host(), err, want)
		}
	}
	f("", "", nil, loop.DefaultPeriodic)
	f("", "unix:///p", nil, "unix:///p")
	f("t:1", "unix:///p", nil, "t:1")
	f("t:1", "unix:///p", []string{"-H", "h:2"}, "h:2")
	f("t:1", "", []string{"--host=h:2"}, "h:2")
}

// TestHostOfProtocols: -H names the server for the commands of every protocol, as do their older flags; then their
// variables do, and a TREADLE_HOST that is a host alone.
func TestHostOfProtocols(t *testing.T) {
	f := func(command, flag, variable, standard string, got func(c *cli) string) {
		t.Helper()
		wants := func(want, host, own string, args ...string) {
			t.Helper()
			t.Setenv("TREADLE_HOST", host)
			t.Setenv(variable, own)
			c, err := parse(t, append(args, strings.Fields(command)...)...)
			if err != nil || got(c) != want {
				t.Errorf("%s, %q, TREADLE_HOST=%s %s=%s: got %q, %v; want %q", command, args, host, variable, own, got(c), err, want)
			}
		}
		wants(standard, "", "")
		wants("h", "", "", "-H", "h")
		wants("h:2", "a", "b:1", "--host=h:2")
		wants("b:1", "a", "b:1")
		wants("a", "a", "")
		wants("::1", "::1", "")
		wants(standard, "a:5000", "")
		wants(standard, "unix:///tmp/periodic.sock", "")
		words := strings.Fields(command)
		command = strings.Join(append([]string{words[0], words[1], flag + "=o:3"}, words[2:]...), " ")
		wants("o:3", "a", "b:1")
	}
	f("gloom submit t 1", "--masters", "TREADLE_GLOOM_MASTERS", "tcp://127.0.0.1:9998", func(c *cli) string { return c.Gloom.Submit.Masters })
	f("gloom work t -- cat", "--slaves", "TREADLE_GLOOM_SLAVES", "tcp://127.0.0.1:9999", func(c *cli) string { return c.Gloom.Work.Slaves })
	f("dwork status", "--server", "TREADLE_DWORK", "tcp://127.0.0.1:6125", func(c *cli) string { return c.Dwork.Server })
	f("dwork graph -", "--http", "TREADLE_HTTP", "127.0.0.1:5001", func(c *cli) string { return c.Dwork.Graph.HTTP })
	f("kts46 status", "--server", "TREADLE_KTS46", "tcp://127.0.0.1:46210", func(c *cli) string { return c.Kts46.Server })
	f("disbatch queues", "--url", "TREADLE_DISBATCH_URL", "http://localhost:8080", func(c *cli) string { return c.Disbatch.Queues.URL })
}

// TestHTTPBase: commands that speak HTTP take what -H takes, sockets aside, and URLs.
func TestHTTPBase(t *testing.T) {
	t.Parallel()
	f := func(address, want string) {
		t.Helper()
		if got, _, err := httpBase(address, "-H", "80"); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", address, got, err, want)
		}
	}
	f("a", "http://a:80")
	f("a:1", "http://a:1")
	f("tcp://a:1", "http://a:1")
	f("::1", "http://[::1]:80")
	f("[::1]", "http://[::1]:80")
	f("https://a/jobs/", "https://a/jobs")
	f("udp://a:1", "")
	f("unix:///tmp/s", "")
	f("/tmp/s", "")
}

func TestWorkArguments(t *testing.T) {
	t.Parallel()
	f := func(args string, command string) {
		t.Helper()
		c, err := parse(t, append([]string{"work"}, strings.Fields(args)...)...)
		if err != nil || strings.Join(c.Work.Command, " ") != command || c.Work.Func != "echo" {
			t.Errorf("%s: got %q, %v, want %q", args, c.Work.Command, err, command)
		}
	}
	f("echo -- cat", "cat")
	f("echo cat -n", "cat -n")
	f("echo --data --thread 4 -- cat --data -n", "cat --data -n")
	f("--thread 4 echo -- sh -c -- x", "sh -c -- x")
	for _, bad := range []string{"echo", "echo --", "echo --thread 0 -- cat", "echo --broadcast --thread 2 -- cat", "echo --timeout -1 -- cat",
		"echo --lock-count 2 -- cat", "echo --lock-name x --lock-count 0 -- cat", "echo --lock-name x --lock-count 32768 -- cat",
		"echo --broadcast --stream -- cat", "echo --broadcast --lock-name x -- cat", "echo --lock-name " + strings.Repeat("x", 256) + " -- cat",
	} {
		if c, err := parse(t, append([]string{"work"}, strings.Fields(bad)...)...); err == nil {
			t.Errorf("%s was accepted as %+v", bad, c.Work)
		}
	}
}

func TestWorkload(t *testing.T) {
	t.Parallel()
	f := func(w, want string) {
		t.Helper()
		got, err := readWorkload(w, strings.NewReader("from stdin"))
		if err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v, want %q", w, got, err, want)
		}
	}
	f("text", "text")
	f("@-", "from stdin")
	f("@"+config(t, "in a file"), "in a file")
	if _, err := readWorkload("@/nowhere/file", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
