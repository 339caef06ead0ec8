package interop

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// installLimit bounds the time of npm, which fetches some hundred packages once.
const installLimit = 5 * time.Minute

// shell returns the program of MongoDB's own shell. npm installs the versions of mongosh/package-lock.json in the
// user's cache for later runs.
func shell(t *testing.T) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("no npm on this machine: MongoDB's own shell does not take part")
	}
	lock, err := os.ReadFile("mongosh/package-lock.json")
	must(t, err)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	home := filepath.Join(cache, "treadle-interop", fmt.Sprintf("mongosh-%.8x", sha256.Sum256(lock)))
	program := filepath.Join(home, "node_modules", ".bin", "mongosh")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	must(t, os.MkdirAll(filepath.Dir(home), 0o700))
	fresh, err := os.MkdirTemp(filepath.Dir(home), "installing-*")
	must(t, err)
	defer os.RemoveAll(fresh)
	must(t, os.WriteFile(filepath.Join(fresh, "package-lock.json"), lock, 0o600))
	list, err := os.ReadFile("mongosh/package.json")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(fresh, "package.json"), list, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	// Do not build or run parts of the packages: the shell needs none of their optional binaries.
	install := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund")
	install.Dir = fresh
	if said, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm cannot install MongoDB's shell: %v\n%s", err, said)
	}
	if err := os.Rename(fresh, home); err != nil {
		if _, other := os.Stat(program); other != nil { // no other process was faster
			t.Fatal(err)
		}
	}
	return program
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node runs the built program as a node until the end of the test.
func node(t *testing.T, program, name, config string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	must(t, os.WriteFile(path, []byte(config), 0o600))
	var said bytes.Buffer
	c := exec.Command(program, "disbatch", "node", "--config", path, "--node", name)
	c.Stderr = &said
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, c.Start())
	t.Cleanup(func() {
		must(t, c.Process.Signal(syscall.SIGTERM))
		if err := c.Wait(); err != nil || t.Failed() {
			t.Errorf("node %s: %v\n%s", name, err, said.String())
		}
	})
}

// printed holds the documents that the shell has printed, by collection.
type printed map[string][]map[string]any

// run runs a script in the shell on a database.
func run(t *testing.T, program, database, script string) printed {
	t.Helper()
	home := t.TempDir() // the shell keeps settings and logs there
	must(t, os.MkdirAll(filepath.Join(home, ".mongodb", "mongosh"), 0o700))
	must(t, os.WriteFile(filepath.Join(home, ".mongodb", "mongosh", "config"), []byte(`{"enableTelemetry": false, "disableGreetingMessage": true}`), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, program, "--quiet", "--norc", database, "--file", script)
	c.Env = append(os.Environ(), "HOME="+home)
	var said, errs bytes.Buffer
	c.Stdout, c.Stderr = &said, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("the shell: %v\n%s%s", err, said.String(), errs.String())
	}
	all := make(printed)
	for line := range strings.Lines(said.String()) {
		name, text, _ := strings.Cut(line, " ")
		var doc map[string]any
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatalf("the shell printed %q: %v", line, err)
		}
		all[name] = append(all[name], doc)
	}
	return all
}

// wants checks the fields of a document. A wanted value is canonical extended JSON, or a type in angle brackets for any
// value of it.
func wants(t *testing.T, doc map[string]any, fields map[string]string) {
	t.Helper()
	for name, want := range fields {
		got := doc[name]
		if wrapped, ok := got.(map[string]any); ok && strings.HasPrefix(want, "<") {
			if _, ok := wrapped[strings.Trim(want, "<>")]; ok && len(wrapped) == 1 {
				continue
			}
		}
		var value any
		if json.Unmarshal([]byte(want), &value) != nil || !reflect.DeepEqual(got, value) {
			t.Errorf("%s is %v, want %s, in %v", name, got, want, doc)
		}
	}
}

// TestShell: a node runs the tasks that MongoDB's own shell has inserted, and the shell reads the fields of the
// original, with the same types.
func TestShell(t *testing.T) {
	mongosh := shell(t)
	treadle := os.Getenv("TREADLE_BINARY")
	if treadle == "" {
		t.Fatal("TREADLE_BINARY does not name the program to test: run `make interop`")
	}
	address := start(t)
	const plugins = `"treadle_plugins": {
		"Report": {"kind": "exec", "command": ["/bin/sh", "-c", "grep -o ann || { echo nobody >&2; exit 1; }"]},
		"Long": {"kind": "exec", "command": ["/bin/sh", "-c", "yes é | head -n 300000 | tr -d '\\n'"]},
	},`
	site := fmt.Sprintf(`"mongohost": %q, "database": "d", %s`, address, plugins)
	node(t, treadle, "a", "{"+site+"}")
	node(t, treadle, "b", `{"gfs": true, `+site+"}")
	got := run(t, mongosh, "mongodb://"+address+"/d", "mongosh/site.js")
	if len(got["tasks"]) != 4 || len(got["queues"]) != 3 || len(got["tasks.files"]) != 2 || len(got["tasks.chunks"]) != 2 {
		t.Fatalf("the shell found %v", got)
	}
	ended := func(at int, by string, more map[string]string) {
		t.Helper()
		wants(t, got["tasks"][at], map[string]string{"node": `"` + by + `"`, "mtime": "<$date>", "ctime": "<$date>", "queue": "<$oid>", "complete": "true", "treadle_run": "null"})
		wants(t, got["tasks"][at], more)
	}
	ended(0, "a", map[string]string{"status": `{"$numberInt": "1"}`, "stdout": `"ann\n"`, "stderr": `""`, "params": `{"user": "ann"}`})
	ended(1, "a", map[string]string{"status": `{"$numberInt": "2"}`, "stdout": `""`, "stderr": `"nobody\n"`})
	ended(2, "a", map[string]string{"status": `{"$numberInt": "2"}`, "parameters": `{"commands": "abc"}`})
	ended(3, "b", map[string]string{"status": `{"$numberInt": "1"}`, "stdout": "<$oid>", "stderr": "<$oid>"})
	for _, n := range got["nodes"] {
		wants(t, n, map[string]string{"timestamp": "<$date>", "_id": "<$oid>"})
	}
	for _, f := range got["tasks.files"] {
		wants(t, f, map[string]string{"uploadDate": "<$date>", "chunkSize": `{"$numberInt": "261120"}`})
		if owner := f["metadata"].(map[string]any)["task_id"]; !reflect.DeepEqual(owner, got["tasks"][3]["_id"]) {
			t.Errorf("the file is of task %v: %v", owner, f)
		}
	}
	file := got["tasks.files"][0]
	wants(t, file, map[string]string{"filename": `"stdout"`, "length": `{"$numberLong": "600000"}`, "md5": fmt.Sprintf(`"%x"`, md5.Sum([]byte(strings.Repeat("é", 300000))))})
	for n, characters := range []string{"261120", "38880"} {
		wants(t, got["tasks.chunks"][n], map[string]string{"type": `"string"`, "n": fmt.Sprintf(`{"$numberInt": "%d"}`, n), "characters": `{"$numberInt": "` + characters + `"}`})
		if !reflect.DeepEqual(got["tasks.chunks"][n]["files_id"], file["_id"]) {
			t.Errorf("chunk %d is of another file: %v", n, got["tasks.chunks"][n])
		}
	}
}
