package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"treadle/loop/disbatch/mongotest"
)

// dciProcess is a built command interface on a fake MongoDB.
type dciProcess struct {
	*process
	url string
}

// startDCI starts one with these further lines of configuration and flags.
func startDCI(t *testing.T, lines string, flags ...string) *dciProcess {
	t.Helper()
	return startDCIBy(t, func(args ...string) *process { return start(t, false, args...) }, lines, flags...)
}

// startDCIBy is startDCI with another way to run treadle.
func startDCIBy(t *testing.T, run func(args ...string) *process, lines string, flags ...string) *dciProcess {
	t.Helper()
	fake, err := mongotest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Stop)
	config := filepath.Join(t.TempDir(), "config.json")
	text := fmt.Sprintf("{ # a test's\n\"mongohost\": %q, \"database\": \"d\", \"plugins\": [\"A::B\", \"C\"], %s }", fake.Address(), lines)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &dciProcess{process: run(append([]string{"disbatch", "web", "--config", config, "--listen", "127.0.0.1:0"}, flags...)...)}
	line := d.until("protocol=disbatch")
	d.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(line)
	d.drain()
	return d
}

// says runs a command and wants its output, in which * is anything, and exit code.
func (d *dciProcess) says(want string, code int, args ...string) string {
	d.t.Helper()
	out, errs, got := treadle(d.t, `[{"n":1},{"n":2}]`, append([]string{"disbatch", args[0], "--url", d.url}, args[1:]...)...)
	if !like(out+errs, want) || got != code {
		d.t.Errorf("%q: exit code %d\n%s%s\nwant exit code %d\n%s", args, got, out, errs, code, want)
	}
	return out
}

// TestDisbatchCommands uses every command of the command line as a user does.
func TestDisbatchCommands(t *testing.T) {
	t.Parallel()
	d := startDCI(t, "")
	id := strings.TrimSpace(d.says("*\n", 0, "create-queue", "demo", "A::B"))
	d.says("A::B\nC\n", 0, "plugins")
	d.says("[\"A::B\",\"C\"]\n", 0, "plugins", "--json")
	d.says("", 0, "update-queue", "demo", "threads", "4", "sort", "fifo")
	d.says("{\"MongoDB::UpdateResult\":{\"matched_count\":1,*}}\n", 0, "update-queue", id, "name", "a/b c", "--json")
	d.says("*\n", 0, "create-task", "a/b c", "user", "alice", "text", "two words")
	d.says("*\n*\n", 0, "create-tasks", id, `[{"user":"bob"},{"user":"carol"}]`)
	d.says("*\n*\n", 0, "create-tasks", id, "@-")
	d.says("*\n", 0, "create-tasks", id, "--collection", "queues", `{"filter":{"name":"a/b c"},"params":{"q":"document.name"}}`)
	table := "ID                        NAME   PLUGIN  THREADS  QUEUED  RUNNING  COMPLETED\n" + id + "  a/b c  A::B          4       6        0          0\n"
	d.says(table, 0, "queues")
	d.says(table, 0, "status")
	d.says(`[{"completed":0,"id":"`+id+`",*}]`+"\n", 0, "status", "--json")
	d.says("6\n", 0, "search", "--count")
	d.says("1\n", 0, "search", `{"params.user":"bob"}`, "--count")
	d.says(`[{"_id":{"$oid":"*"},"queue":{"$oid":"`+id+`"},"status":-2,*"params":{"q":"a/b c"}}]`+"\n", 0, "search", `{"params.q":"a/b c"}`)
	d.says("[\n   {\n      \"_id\": {*", 0, "search", "--pretty", "--terse", "--options", `{"limit":1}`)
	d.says("ID  *PARAMETERS\n*{\"n\":2}\n*", 0, "search", "--table", `{"params.n":{"$gt":1}}`)
	d.says("ID  NODE  LAST SEEN  MAXTHREADS\n", 0, "nodes")
	d.says("[]\n", 0, "nodes", "--json")
	d.says("", 0, "delete-queue", id)
	d.says("ID  NAME  PLUGIN  THREADS  QUEUED  RUNNING  COMPLETED\n", 0, "queues")

	d.says("treadle: queue not found\n", 1, "delete-queue", "a/b c")
	d.says("treadle: queue not found\n", 1, "create-task", "x", "a", "b")
	d.says("treadle: params must be a JSON array of task params objects with key/value pairs\n", 1, "create-task", "x")
	d.says("treadle: Unknown plugin: No, see treadle disbatch plugins\n", 1, "create-queue", "x", "No")
	d.says("treadle: unknown param: colour\n", 1, "update-queue", "x", "colour", "red")
	d.says("treadle: limit cannot exceed 100\n", 1, "search", "--options", `{"limit":101}`)
	d.says("treadle: \"b\" has no value: names and values come in pairs\n", 2, "create-task", "x", "a", "1", "b")
	d.says("treadle: filter: \"{\" is not JSON\n", 2, "search", "{")
	d.says("treadle: the tasks are not JSON\n", 2, "create-tasks", "x", "[")
	d.says("treadle: -H or TREADLE_DISBATCH_URL: \"unix:///s\" is neither a host nor host:port nor http://host:port nor https://host:port\n", 2, "plugins", "--url", "unix:///s")
	d.says("treadle: cannot reach http://127.0.0.1:1: connection refused (is `treadle disbatch web` running? -H or TREADLE_DISBATCH_URL names it)\n", 3, "plugins", "--url", "http://127.0.0.1:1")
	if out, errs, code := treadle(t, "", "disbatch", "--count", "--url="+d.url, "search", "{}"); code != 0 || out != "6\n" {
		t.Errorf("with its options before the command: exit code %d, %s%s", code, out, errs)
	}
	d.signal(syscall.SIGTERM)
	d.Wait()
	if code := d.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ends with exit code %d", code)
	}
}

// TestDisbatchUsers: only the users of the file have access.
func TestDisbatchUsers(t *testing.T) {
	t.Parallel()
	users := filepath.Join(t.TempDir(), "users")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# who\n\nann:a:b\r\n")
	d := startDCI(t, `"treadle_web": {"users": {"bob": "c"}}`, "--users", users)
	d.says("A::B\nC\n", 0, "plugins", "--username", "ann", "--password", "a:b")
	d.says("treadle: 401 Unauthorized: give --username and --password\n", 5, "plugins")
	d.says("treadle: 401 Unauthorized: give --username and --password\n", 5, "plugins", "--username", "bob", "--password", "c")
	response, err := http.Get(d.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("the page: %s", response.Status)
	}
	config := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"ann\n": "line 1: want NAME:PASSWORD", "ann:\n": "line 1: want", "# nobody\n": "names no user"} {
		write(text)
		if _, errs, code := treadle(t, "", "disbatch", "web", "--config", config, "--users", users); code != 2 || !strings.Contains(errs, "--users: ") || !strings.Contains(errs, want) {
			t.Errorf("users %q: exit code %d, %s", text, code, errs)
		}
	}
}

// TestDisbatchWebCannotStart: one line says why.
func TestDisbatchWebCannotStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := filepath.Join(t.TempDir(), "config.json")
	f := func(text string, code int, want string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, errs, got := treadle(t, "", "disbatch", "web", "--config", config, "--listen", taken.Addr().String())
		if got != code || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %q, want %d and %s", text, got, errs, code, want)
		}
	}
	f("{\n\"plugins\": [}", 2, config+": line 2")
	f(`{"treadle_web": {"users": []}}`, 2, config)
	f(`{"mongohost": "mongodb://"}`, 2, config+": mongohost")
	f(`{"attributes": {"ssl": {"SSL_ca_file": "/nowhere"}}}`, 2, config+": attributes: ssl: cannot read SSL_ca_file")
	f("{}", 1, "cannot listen on "+taken.Addr().String()+" (--listen, or treadle_web: listen): address already in use")
}
