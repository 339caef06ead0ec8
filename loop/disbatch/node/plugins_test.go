package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// shell returns an entry of treadle_plugins that runs a script.
func shell(script, more string) string {
	return fmt.Sprintf(`{"kind": "exec", "command": ["/bin/sh", "-c", %q]%s}`, script, more)
}

// plugins returns the configuration of plugins by name.
func plugins(entries map[string]string) string {
	var all []string
	for name, entry := range entries {
		all = append(all, fmt.Sprintf("%q: %s", name, entry))
	}
	return `"treadle_plugins": {` + strings.Join(all, ", ") + "},"
}

// endOf runs a task of a plugin and returns it at its end.
func (s *site) endOf(plugin string, params ...any) store.Task {
	s.T.Helper()
	q := s.Queue(d("name", plugin+primitive.NewObjectID().Hex(), "plugin", plugin, "threads", 1))
	if len(params) == 0 {
		params = []any{d("user", "a b")}
	}
	return s.Ends(s.Fill(&q, params...)...)[0]
}

func TestExecContract(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "broken")
	must(t, os.WriteFile(broken, []byte("#!/no/such/interpreter\n"), 0o700))
	dir := t.TempDir()
	entries := map[string]string{
		"Good": shell("echo out; echo err >&2", ""), "Bad": shell("echo out; exit 3", ""),
		"Status": shell(`echo out; echo '{"status": 7, "more": 1}'`, ""), "Zero": shell(`echo '{"status": 0}'; exit 0`, ""),
		"Word": shell(`echo '{"status": "fine"}'`, ""), "NoStatus": shell(`echo '{"state": 4}'`, ""),
		"Input":  shell("cat; echo end", ""),
		"Env":    shell(`echo "$A $HOME"; pwd`, fmt.Sprintf(`, "env": {"A": "1", "HOME": "/h"}, "dir": %q`, dir)),
		"Signal": shell("echo out; echo err >&2; kill -9 $$", ""), "Broken": fmt.Sprintf(`{"kind": "exec", "command": [%q]}`, broken),
		"Bytes": shell(`printf 'a\377b\n'; printf '\376' >&2`, ""), "Long": shell("printf 123456789; printf 12345 >&2", `, "max_output": 6`),
		"Stubborn": shell(`trap "" TERM; echo begun; while :; do sleep 1; done`, `, "timeout": 0.3`),
		"Child":    shell("sleep 300 & echo out", ""),
		// In a pipeline with a closed reader SIGPIPE ends the writer without an error.
		"Pipe": shell("yes 2>words | head -n 1; cat words", fmt.Sprintf(`, "dir": %q`, dir)),
	}
	s := newSite(t, plugins(entries))
	s.node("me")
	f := func(plugin string, status int, stdout, stderr string) {
		t.Helper()
		if got := s.endOf(plugin); got.Status != status || sitetest.Stored(&got, "stdout") != stdout || !strings.Contains(sitetest.Stored(&got, "stderr"), stderr) {
			t.Errorf("%s ended as %s", plugin, got.Raw)
		}
	}
	f("Good", 1, "out\n", "err\n")
	f("Bad", 2, "out\n", "")
	f("Status", 7, "out\n", "")
	f("Zero", 2, "", "")
	f("Word", 2, "", "")
	f("NoStatus", 1, "{\"state\": 4}\n", "")
	f("Env", 1, "1 /h\n"+dir+"\n", "")
	f("Signal", 2, unableToComplete, "signal: killed\nerr")
	f("Broken", 2, unableToStart, "no such file")
	f("Bytes", 1, "a\uFFFDb\n", "\uFFFD")
	f("Long", 1, "123456", "12345\ntreadle: 3 bytes of stdout were cut")
	f("Stubborn", 2, unableToComplete, "its time-out of 300ms is over")
	f("Child", 1, "out\n", "")
	f("Pipe", 1, "y\n", "")
	var doc struct {
		ID     primitive.ObjectID `bson:"_id"`
		Status int
		Params struct{ User string }
	}
	input := s.endOf("Input")
	if err := bson.UnmarshalExtJSON([]byte(strings.TrimSuffix(sitetest.Stored(&input, "stdout"), "end\n")), false, &doc); err != nil || doc.ID != input.ID || doc.Status != -1 || doc.Params.User != "a b" {
		t.Errorf("the plugin read %q, %v", sitetest.Stored(&input, "stdout"), err)
	}
}

// TestLargeOutputGoesToGridFS: each large output goes to GridFS by its own size, as in the acceptance test of the
// original. The payload does not count.
func TestLargeOutputGoesToGridFS(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	t.Parallel()
	const large, more = 15 << 20, 15<<20 + 1
	for i, c := range []struct {
		stdout, stderr int
		out, errs      bool
	}{
		{0, 0, false, false}, {large, 0, false, false}, {large, 1, true, false}, {1, large, true, false}, {more, 0, true, false}, {0, large, false, false},
		{large, 1 << 20, true, false}, {1 << 20, large, true, false}, {7<<20 + 1, 8 << 20, true, false}, {7 << 20, 8 << 20, false, false}, {0, more, false, true}, {5, more, false, true}, {more, more, true, true},
	} {
		if out, errs := outgrown(0, c.stdout, c.stderr); out != c.out || errs != c.errs {
			t.Errorf("%d: %d and %d bytes: %v and %v go to files", i, c.stdout, c.stderr, out, errs)
		}
	}
	s := newSite(t, plugins(map[string]string{"Big": shell("head -c 9000000 /dev/zero | tr '\\0' x", "")}))
	s.node("me")
	if task := s.endOf("Big", d("a", strings.Repeat("p", 7<<20))); len(sitetest.Stored(&task, "stdout")) != 9000000 || task.Raw.Lookup("stderr").Type != bson.TypeString {
		t.Errorf("stdout is %d bytes and stderr a %s", len(sitetest.Stored(&task, "stdout")), task.Raw.Lookup("stderr").Type)
	}
	// More output than the document has room for.
	task := s.endOf("Big", d("a", strings.Repeat("p", 9<<20)))
	id, _ := task.Raw.Lookup("stdout").ObjectIDOK()
	if got, err := s.Store.ReadFile(s.Ctx, id); err != nil || len(got) != 9000000 || sitetest.Stored(&task, "stderr") != "" || task.Raw.Lookup("stderr").Type != bson.TypeString {
		t.Errorf("stdout is a file of %d bytes, %v, and stderr a %s", len(got), err, task.Raw.Lookup("stderr").Type)
	}
}

func TestGFSAlwaysWritesFiles(t *testing.T) {
	s := newSite(t, `"gfs": true,`)
	s.node("me")
	task := s.endOf(config.DemoPlugin, d("commands", "ab"))
	id, ok := task.Raw.Lookup("stderr").ObjectIDOK()
	if got, err := s.Store.ReadFile(s.Ctx, id); !ok || err != nil || got != "b\n" {
		t.Errorf("stderr is %s: %q, %v", task.Raw.Lookup("stderr"), got, err)
	}
}

// TestRunnerContract: the kind runner starts programs with the arguments of the original's task runner, among them this
// program, and ends the tasks that they leave unfinished.
func TestRunnerContract(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
		return path
	}
	runner := func(path string) string { return fmt.Sprintf(`{"kind": "runner", "command": [%q]}`, path) }
	s := newSite(t, fmt.Sprintf(`"task_runner": %q, "plugins": ["Listed", %q], "gfs": "auto",`, script("listed", `echo "$@" >&2`), config.DemoPlugin),
		plugins(map[string]string{"Lazy": runner(script("lazy", "exit 0")), "Failing": runner(script("failing", "echo why >&2; exit 9")),
			"Loud": runner(script("loud", "head -c 17000000 /dev/zero | tr '\\0' x >&2; echo why >&2; exit 9"))}))
	s.node("me")
	f := func(plugin, stdout, stderr string) {
		t.Helper()
		got := s.endOf(plugin)
		want := strings.ReplaceAll(stderr, "ID", got.ID.Hex())
		if got.Status != 2 || sitetest.Stored(&got, "stdout") != stdout || !strings.Contains(sitetest.Stored(&got, "stderr"), want) {
			t.Errorf("%s ended as %s, want %q", plugin, got.Raw, want)
		}
	}
	f("Listed", unableToComplete, "--config "+s.Config.Path+" --task ID --gfs auto")
	f("Lazy", unableToComplete, "ended without finishing")
	f("Failing", unableToComplete, "ended with 9\nwhy")
	f("Loud", unableToComplete, "ended with 9\nxxx")
	f("Loud", unableToComplete, "xxxwhy\n")
	if s.Fake != nil { // FerretDB accepts documents over 16 MiB
		if got := s.endOf("Failing", d("a", strings.Repeat("p", 16<<20-235))); got.Status != 2 || sitetest.Stored(&got, "stderr") != "" {
			t.Errorf("without room for a reason it ended with status %d and %q", got.Status, sitetest.Stored(&got, "stderr"))
		}
	}

	own := newSite(t)
	text := fmt.Sprintf(`{"mongohost": %q, "database": %q, "task_runner": %q, "plugins": ["Demo", %q]}`, own.Config.MongoHost, own.Config.Database,
		script("own", fmt.Sprintf("%s=%s exec %s \"$@\"\n", runnerVariable, own.Config.Path, os.Args[0])), config.DemoPlugin)
	must(t, os.WriteFile(own.Config.Path, []byte(text), 0o600))
	var err error
	own.Config, err = config.Read(own.Config.Path)
	must(t, err)
	own.node("me")
	if got := own.endOf(config.DemoPlugin, d("commands", "ab")); got.Status != 1 || sitetest.Stored(&got, "stdout") != "a\n" || sitetest.Stored(&got, "stderr") != "b\n" {
		t.Errorf("through a task runner the demo ended as %s", got.Raw)
	}
	if got := own.endOf("Demo"); got.Status != 2 || sitetest.Stored(&got, "stdout") != unableToStart {
		t.Errorf("an unknown plugin ended as %s", got.Raw)
	}
}

func TestQueuesThatCannotRunAreIgnored(t *testing.T) {
	s := newSite(t, plugins(map[string]string{"Gone": `{"kind": "exec", "command": ["/no/such/program"]}`, "Far": `{"kind": "function"}`}))
	n := s.node("me")
	good := s.Queue(d("name", "good", "plugin", config.DemoPlugin, "threads", 1))
	for name, want := range map[string]string{"Gone": "no such file", "Far": "treadle serve --disbatch", "Other": "treadle_plugins", "../x": "no name of a plugin"} {
		q := s.Queue(d("name", "q"+want, "plugin", name, "threads", 1))
		s.Fill(&q, d("a", 1))
		s.Until("a report of "+name, func() bool {
			n.node.mu.Lock()
			defer n.node.mu.Unlock()
			return strings.Contains(n.node.conditions[subject{"queue", q.ID}], want)
		})
	}
	s.Ends(s.Fill(&good, d("commands", "a"))...)
	if n, err := s.Store.CountTasks(s.Ctx, d("status", store.StatusQueued)); err != nil || n != 4 {
		t.Errorf("%d tasks are queued, %v", n, err)
	}
}
