package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	siteconfig "treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	sitestore "treadle/loop/disbatch/store"
)

// nodeSite is a fake MongoDB with a configuration for built nodes.
type nodeSite struct {
	t      *testing.T
	config string
	store  *sitestore.Store
}

// newNodeSite makes one whose plugins are shell scripts by name; what stands in lines goes
// into the configuration too.
func newNodeSite(t *testing.T, lines string, scripts map[string]string) *nodeSite {
	t.Helper()
	fake, err := mongotest.Start()
	must(t, err)
	t.Cleanup(fake.Stop)
	s := &nodeSite{t: t}
	s.config = filepath.Join(t.TempDir(), "config.json")
	text := fmt.Sprintf("# a site's\n{ \"mongohost\": %q, \"database\": \"d\", # its database\n%s \"treadle_plugins\": {", fake.Address(), lines)
	for name, script := range scripts {
		text += fmt.Sprintf("%q: {\"kind\": \"exec\", \"command\": [\"/bin/sh\", \"-c\", %q]},\n", name, script)
	}
	must(t, os.WriteFile(s.config, []byte(text+"},\n}\n"), 0o600))
	c, err := siteconfig.Read(s.config)
	must(t, err)
	s.store, err = sitestore.Open(c.Connection(siteconfig.ComponentWeb))
	must(t, err)
	t.Cleanup(s.store.Close)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// queue makes a queue with room for so many tasks at once, and tasks with these payloads.
func (s *nodeSite) queue(name, plugin string, limit int, params ...any) {
	s.t.Helper()
	_, err := s.store.InsertQueue(s.t.Context(), name, plugin)
	must(s.t, err)
	q, err := s.store.Queue(s.t.Context(), name)
	must(s.t, err)
	_, err = s.store.InsertTasks(s.t.Context(), &q, params)
	must(s.t, err)
	_, err = s.store.UpdateQueue(s.t.Context(), &q, sitestore.QueueChange{Limit: &limit})
	must(s.t, err)
}

// node starts a built node and waits until it is ready.
func (s *nodeSite) node(args ...string) *process {
	s.t.Helper()
	p := start(s.t, false, append([]string{"disbatch", "node", "--config", s.config, "--node", "me"}, args...)...)
	p.until("the Disbatch node is ready")
	return p
}

// tasks waits until there are so many tasks of a status, and returns them.
func (s *nodeSite) tasks(status, want int) []sitestore.Task {
	s.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(patience); ; <-ticker.C {
		found, err := s.store.Search(s.t.Context(), map[string]any{"status": status}, sitestore.SearchOptions{})
		must(s.t, err)
		if len(found) == want {
			return found
		}
		if time.Now().After(end) {
			all, _ := s.store.Search(s.t.Context(), map[string]any{}, sitestore.SearchOptions{})
			s.t.Fatalf("%d tasks have status %d, want %d of %v", len(found), status, want, all)
		}
	}
}

func output(task sitestore.Task, name string) string {
	text, _ := task.Raw.Lookup(name).StringValueOK()
	return text
}

// TestDisbatchNode: the built node does tasks of a command and of the Demo, counts them, and
// ends with 0 when it is told to.
func TestDisbatchNode(t *testing.T) {
	t.Parallel()
	s := newNodeSite(t, "", map[string]string{"Count": "echo done; wc -c >&2"})
	s.queue("count", "Count", 2, map[string]string{"a": "b"})
	s.queue("demo", "Disbatch::Plugin::Demo", 2, map[string]string{"commands": "abc"})
	p := start(t, false, "disbatch", "node", "--config", s.config, "--node", "me", "--http", "127.0.0.1:0")
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(p.until("protocol=http"))
	p.until("the Disbatch node is ready")
	if done := s.tasks(sitestore.StatusSucceeded, 1)[0]; output(done, "stdout") != "done\n" || output(done, "stderr") == "0\n" || done.Node != "me" {
		t.Errorf("the command ended as %s", done.Raw)
	}
	if done := s.tasks(sitestore.StatusFailed, 1)[0]; output(done, "stdout") == "" || output(done, "stderr") == "" {
		t.Errorf("the Demo ended as %s", done.Raw)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(patience); ; <-ticker.C { // an end is written first and counted then
		r, err := http.Get(url + "/metrics")
		must(t, err)
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		must(t, err)
		if strings.Contains(string(text), `treadle_disbatch_tasks_total{end="succeeded"} 1`) && strings.Contains(string(text), "treadle_disbatch_claims_total 2\n") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the metrics are\n%s", text)
		}
	}
	p.stop()
}

// runnerOf is the process that runs the commands of a node.
func runnerOf(t *testing.T, p *process) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for _, name := range all {
		text, _ := os.ReadFile(name)
		_, rest, _ := strings.Cut(string(text), ") ") // state, parent
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(p.Process.Pid) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			must(t, err)
			return pid
		}
	}
	t.Fatal("the node has no runner")
	return 0
}

// TestDisbatchNodeGivesBack: SIGTERM queues again what is claimed and has not begun, and what
// runs is written without the node.
func TestDisbatchNodeGivesBack(t *testing.T) {
	t.Parallel()
	s, open := newGatedSite(t)
	s.queue("a", "Wait", 3, map[string]int{"n": 1})
	p := s.node()
	s.tasks(sitestore.StatusRunning, 1)
	runner := runnerOf(t, p)
	must(t, syscall.Kill(runner, syscall.SIGSTOP)) // now nothing begins
	defer syscall.Kill(runner, syscall.SIGCONT)
	s.queue("b", "Wait", 2, map[string]int{"n": 2}, map[string]int{"n": 3})
	s.tasks(sitestore.StatusClaimed, 2)
	p.signal(syscall.SIGTERM)
	p.ends(0)
	for _, task := range s.tasks(sitestore.StatusQueued, 2) {
		if task.Node != "" {
			t.Errorf("a task that was given back is %s", task.Raw)
		}
	}
	must(t, syscall.Kill(runner, syscall.SIGCONT))
	open()
	if done := s.tasks(sitestore.StatusSucceeded, 1)[0]; output(done, "stdout") != "through\n" {
		t.Errorf("what ran ended as %s", done.Raw)
	}
	s.tasks(sitestore.StatusQueued, 2)
}

// newGatedSite makes a site with a plugin Wait, of whose tasks open lets one through. At the
// end of the test all are.
func newGatedSite(t *testing.T) (s *nodeSite, open func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gate")
	must(t, syscall.Mkfifo(path, 0o600))
	gate, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	s = newNodeSite(t, "", map[string]string{"Wait": "read word <" + path + "; echo $word"})
	t.Cleanup(func() { must(t, gate.Close()) })
	return s, func() {
		t.Helper()
		_, err := gate.WriteString("through\n")
		must(t, err)
	}
}

// ends waits for the end of a node, whose runner may live on and keep its log open.
func (p *process) ends(want int) {
	p.t.Helper()
	p.Wait()
	if got := p.ProcessState.ExitCode(); got != want {
		p.t.Fatalf("%v: exit code %d (%v), want %d", p.Args, got, p.ProcessState, want)
	}
}

// TestDisbatchNodeKilled: a running task outlives a node that is killed, and its end is
// written; the next node of the name goes on.
func TestDisbatchNodeKilled(t *testing.T) {
	t.Parallel()
	s, open := newGatedSite(t)
	s.queue("a", "Wait", 1, map[string]int{"n": 1}, map[string]int{"n": 2})
	p := s.node()
	s.tasks(sitestore.StatusRunning, 1)
	p.signal(syscall.SIGKILL)
	p.ends(-1)
	open()
	if done := s.tasks(sitestore.StatusSucceeded, 1)[0]; output(done, "stdout") != "through\n" {
		t.Errorf("what ran ended as %s", done.Raw)
	}
	next := s.node()
	s.tasks(sitestore.StatusRunning, 1)
	open()
	s.tasks(sitestore.StatusSucceeded, 2)
	next.stop()
}

// TestDisbatchNodeDuplicateName: a second node of one name does not start, one of another name does.
func TestDisbatchNodeDuplicateName(t *testing.T) {
	t.Parallel()
	s := newNodeSite(t, "", nil)
	first := s.node()
	first.drain()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for { // until it is known: the test has a time-out
		if nodes, err := s.store.Nodes(t.Context()); err != nil || len(nodes) > 0 {
			must(t, err)
			break
		}
		<-ticker.C
	}
	_, errs, code := treadle(t, "", "disbatch", "node", "--config", s.config, "--node", "me")
	if want := "treadle: node me: another process is this node: stop it, or give this one a name of its own with --node\n"; code != 1 || errs != want {
		t.Errorf("exit code %d, %q", code, errs)
	}
	other := start(t, false, "disbatch", "node", "--config", s.config, "--node", "other")
	other.until("the Disbatch node is ready")
	other.stop()
	first.stop()
}

// TestDisbatchTask: the task runner is called as the original calls its own, and refuses what
// is no claimed task.
func TestDisbatchTask(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, called := filepath.Join(dir, "task_runner"), filepath.Join(dir, "called")
	s := newNodeSite(t, fmt.Sprintf("\"task_runner\": %q, \"plugins\": [\"Old\"], \"gfs\": \"auto\",", script), nil)
	inner := newNodeSite(t, "", map[string]string{"Old": "echo old"})
	inner.shares(s)
	must(t, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\necho \"$@\" >%s\nexec %s disbatch task --config %s \"$3\" \"$4\" \"$5\" \"$6\" --quiet\n", called, binary, inner.config), 0o700))
	s.queue("q", "Old", 1, map[string]int{"n": 1})
	p := s.node()
	done := s.tasks(sitestore.StatusSucceeded, 1)[0]
	p.stop()
	if output(done, "stdout") != "old\n" {
		t.Errorf("the task ended as %s", done.Raw)
	}
	words, err := os.ReadFile(called)
	must(t, err)
	if want := fmt.Sprintf("--config %s --task %s --gfs auto\n", s.config, done.ID.Hex()); string(words) != want {
		t.Errorf("the runner was called with %q, want %q", words, want)
	}
	f := func(code int, want string, args ...string) {
		t.Helper()
		_, errs, got := treadle(t, "", append([]string{"disbatch", "task", "--config", s.config}, args...)...)
		if got != code || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%q: exit code %d, %q, want %d and %s", args, got, errs, code, want)
		}
	}
	f(1, "has status 1: only a claimed one, -1, can be run", "--task", done.ID.Hex())
	f(1, "not found", "--task", strings.Repeat("0", 24))
	f(2, "not the 24 hexadecimal digits", "--task", "x")
	f(2, "say false, true or auto", "--task", done.ID.Hex(), "--gfs", "maybe")
	f(2, "--task")
}

// TestDisbatchBadConfig: a configuration that cannot work is one line that names it.
func TestDisbatchBadConfig(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.json")
	f := func(text, want string) {
		t.Helper()
		if text == "" {
			_ = os.Remove(config)
		} else {
			must(t, os.WriteFile(config, []byte(text), 0o600))
		}
		for _, args := range [][]string{
			{"disbatch", "node", "--config", config}, {"disbatch", "task", "--task", "571fac85ee63413233049fbd", "--config", config},
			{"serve", "--data", "none", "--http", "off", "--disbatch", config},
		} {
			_, errs, code := treadle(t, "", args...)
			if code != 2 || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "treadle: ") || !strings.Contains(errs, config) || !strings.Contains(errs, want) {
				t.Errorf("%s, %s: exit code %d, %q, want %s", args[:2], text, code, errs, want)
			}
		}
	}
	f("", "no such file")
	f("{\n\"plugins\": [}", "line 2")
	f(`{"mongohost": 1}`, "mongohost")
	f(`{"activequeues": 7}`, "activequeues")
	f(`{"treadle_plugins": {"A": {"kind": "exec", "command": "ls"}}}`, "command")
	f(`{"treadle_plugins": {"A": {"kind": "exec"}}}`, "needs a command")
	f(`{"treadle_node": {"reclaim_after": "soon"}}`, "reclaim_after")
	f("[]", "the configuration: a value of the kind")
}

// TestDisbatchTaskRunners: nodes of 2016 and 2018 call this program in the place of their task runner, by a link of
// that name or by its own, with or without the command, which may stand behind the options.
func TestDisbatchTaskRunners(t *testing.T) {
	longFor(t)
	t.Parallel()
	link := filepath.Join(t.TempDir(), "task_runner")
	must(t, os.Symlink(binary, link))
	f := func(t *testing.T, lines, program, before, after string) sitestore.Task {
		t.Helper()
		script := filepath.Join(t.TempDir(), "runner")
		s := newNodeSite(t, fmt.Sprintf("\"task_runner\": %q, \"plugins\": [\"Old\"], %s", script, lines), nil)
		inner := newNodeSite(t, lines, map[string]string{"Old": "echo old"})
		inner.shares(s)
		must(t, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nexec %s %s \"$@\" --config %s %s\n", program, before, inner.config, after), 0o700))
		s.queue("q", "Old", 1, map[string]int{"n": 1})
		p := s.node()
		defer p.stop()
		return s.tasks(sitestore.StatusSucceeded, 1)[0]
	}
	of2016 := "\"schema\": 2016, \"gfs\": false, \"testing\": true,"
	for _, c := range []struct{ lines, program, before, after string }{
		{"", binary, "disbatch task", "--quiet"}, {"\"testing\": true,", binary, "", ""}, {"", binary, "disbatch", "task"}, {"", binary, "disbatch", "--quiet"}, {"", link, "", ""},
		{of2016, binary, "", ""}, {of2016, link, "", ""}, {of2016, binary, "disbatch", "task"},
		{"", binary, "", "--gfs --quiet"},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			want := "old\n"
			if strings.Contains(c.after, "--gfs") {
				want = ""
			}
			if done := f(t, c.lines, c.program, c.before, c.after); output(done, "stdout") != want {
				t.Errorf("the task ended as %s", done.Raw)
			}
		})
	}
}

// shares has a site's configuration name the database of another.
func (s *nodeSite) shares(other *nodeSite) {
	s.t.Helper()
	text, err := os.ReadFile(other.config)
	must(s.t, err)
	own, err := os.ReadFile(s.config)
	must(s.t, err)
	host := regexp.MustCompile(`"mongohost": "[^"]*"`)
	must(s.t, os.WriteFile(s.config, host.ReplaceAll(own, host.Find(text)), 0o600))
}
