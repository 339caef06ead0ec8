package node

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// perlSite makes a directory with plugins and a task runner in Perl that logs its arguments.
func perlSite(t *testing.T) (runner string) {
	t.Helper()
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip("this host has no Perl")
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(text), 0o700))
		return path
	}
	write("lib/My/Plugin.pm", "package My::Plugin; print qq{loading}; sub new { bless {} } sub run { } 1;")
	write("lib/My/Old/Task.pm", "package My::Old::Task; sub run { } 1;")
	write("lib/My/Broken.pm", "package My::Broken; use No::Such::Module; sub run { } 1;")
	write("lib/My/Idle.pm", "package My::Idle; 1;")
	return write("bin/task_runner", "#!"+perl+"\nuse strict;\nuse FindBin;\nuse lib \"$FindBin::Bin/../lib\"; # of the site\nprint STDERR qq{@ARGV};\n")
}

// TestLoadedPlugins: a node serves the queues whose plugins the task runner can load, listed in plugins or not, and no
// others. It starts a 2016 runner with 2016 arguments.
func TestLoadedPlugins(t *testing.T) {
	runner := perlSite(t)
	s := newSite(t, fmt.Sprintf(`"task_runner": %q, "quiet": 1, "plugins": ["My::Broken"],`, runner))
	n := s.node("me")
	f := func(want string, queue bson.D) {
		t.Helper()
		q := s.Queue(queue)
		task := s.Ends(s.Fill(&q, d("a", 1))...)[0]
		want = strings.NewReplacer("FILE", s.Config.Path, "ID", task.ID.Hex()).Replace(want)
		if got := sitetest.Stored(&task, "stderr"); !strings.HasSuffix(got, "\n"+want) {
			t.Errorf("the runner was called with %q, want %q", got, want)
		}
	}
	f("--config FILE --task ID --gfs auto --quiet", d("name", "a", "plugin", "My::Plugin", "threads", 1))
	f("--config FILE --plugin My::Plugin --task ID", d("name", "b", "constructor", "My::Plugin", "maxthreads", 1))
	f("--config FILE --plugin My::Old::Task --task ID", d("name", "c", "constructor", "My::Old", "maxthreads", 1))
	for plugin, want := range map[string]string{"My::Broken": "No/Such/Module", "My::Idle": "has no method run", "My::Old": "Can't locate My/Old.pm", "My::None": "My/None.pm"} {
		q := s.Queue(d("name", plugin, "plugin", plugin, "threads", 1))
		s.Fill(&q, d("a", 1))
		s.Until("a report of "+plugin, func() bool {
			n.node.mu.Lock()
			defer n.node.mu.Unlock()
			said := n.node.conditions[subject{"queue", q.ID}]
			return strings.Contains(said, want) && strings.Contains(said, runner)
		})
	}
	s.ticks(n, 2)
	if n, err := s.Store.CountTasks(s.Ctx, d("status", store.StatusQueued)); err != nil || n != 4 {
		t.Errorf("%d tasks are queued, %v", n, err)
	}
}

// TestRunnerFlags: a 2016 runner without GridFS has --nogfs, and --testing is passed on.
func TestRunnerFlags(t *testing.T) {
	f := func(want, text string, schema store.Schema) {
		t.Helper()
		c, err := config.Parse([]byte(text))
		must(t, err)
		c.Path = "F"
		site, err := store.Open(c.Connection(config.ComponentRunner))
		must(t, err)
		defer site.Close()
		p := newPerformer(site, c, slog.New(slog.DiscardHandler))
		if got := strings.Join(p.taskRunnerFlags(&assignment{Plugin: config.Plugin{Class: "P"}, Schema: schema, GFS: c.GFS}, "T"), " "); got != want {
			t.Errorf("%s is called with %s", text, got)
		}
	}
	f("--config F --plugin P --task T", `{"gfs": true, "testing": true}`, store.Schema2016)
	f("--config F --plugin P --task T --nogfs", `{"gfs": false}`, store.Schema2016)
	f("--config F --task T --gfs 0 --testing", `{"gfs": 0, "testing": "yes", "quiet": "0"}`, store.Schema2018)
	f("--config F --task T --gfs 1", `{"gfs": true}`, store.Schema2018)
}
