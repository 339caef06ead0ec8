package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestDocsAPIWorkers: the workers of the API's page do a job and report its result. A machine may lack what one needs.
func TestDocsAPIWorkers(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, worker := range []struct {
		language, file string
		needs          []string
		command        []string
	}{
		{"python", "worker.py", []string{"python3"}, []string{"python3", "worker.py"}},
		{"javascript", "worker.mjs", []string{"node"}, []string{"node", "worker.mjs"}},
		{"sh", "worker.sh", []string{"curl", "jq"}, []string{"sh", "worker.sh"}},
		{"go", "worker.go", []string{"go"}, []string{"go", "run", "worker.go"}},
	} {
		t.Run(worker.language, func(t *testing.T) {
			t.Parallel()
			for _, program := range worker.needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("this machine has no %s", program)
				}
			}
			code := regexp.MustCompile("(?s)```" + worker.language + "\n(.*?)```").FindSubmatch(page)
			if code == nil {
				t.Fatal("the page has no such worker")
			}
			s := newSession(t)
			s.begin([]string{"--data", "none"})
			defer s.end()
			s.write(worker.file, string(code[1]))
			cmd := exec.CommandContext(t.Context(), worker.command[0], worker.command[1:]...)
			cmd.Dir, cmd.Env, cmd.Stderr, cmd.SysProcAttr = s.dir, append(s.env, "GO111MODULE=off"), os.Stderr, &syscall.SysProcAttr{Setpgid: true}
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Cancel()
				_ = cmd.Wait() // it was killed
			}()
			reply, err := http.Post("http://"+s.http+"/api/v1/jobs", "application/json", strings.NewReader(`{"queue":"shout","workload":"hello","wait":"1m"}`))
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			var got struct{ State, Result string }
			text, _ := io.ReadAll(reply.Body)
			if err := json.Unmarshal(text, &got); err != nil || got.State != "done" || strings.TrimSpace(got.Result) != "HELLO" {
				t.Errorf("the %s worker: %s, %v", filepath.Base(worker.file), text, err)
			}
		})
	}
}
