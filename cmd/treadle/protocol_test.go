package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// linesEdits are what one more protocol changes in existing files, as the page
// "Adding a protocol" shows it: file, text and what it becomes.
var linesEdits = []struct{ file, before, after string }{
	{"loop/protocols.go", "\t\"treadle/loop/protocol\"\n", "\t\"treadle/loop/lines\"\n\t\"treadle/loop/protocol\"\n"},
	{"loop/protocols.go", "return []protocol.Protocol{\n", "return []protocol.Protocol{\n\t\tlines.New(host{s}, o.Lines),\n"},
	{"loop/protocols.go", "\tgloom.Spaces(),\n", "\tgloom.Spaces(),\n\tlines.Spaces(),\n"},
	{"loop/options.go", "\tPeriodic PeriodicOptions", "\tLines    []string        `name:\"lines\" sep:\"none\" placeholder:\"ADDR\" help:\"Address of the protocol lines.\"`\n\tPeriodic PeriodicOptions"},
}

// TestAddedProtocol: a protocol is added with one folder and edits to two existing files.
// Its jobs are done by clients of other protocols, and theirs by its own.
func TestAddedProtocol(t *testing.T) {
	longFor(t)
	t.Parallel()
	program, socket := buildLines(t), filepath.Join(t.TempDir(), "s")
	s := startCommand(t, false, program, "serve", "--periodic", "unix://"+socket, "--lines", "tcp://127.0.0.1:0", "--gloom-masters", "off", "--gloom-slaves", "off",
		"--dwork", "off", "--kts46", "off", "--kts46-json", "off", "--data", "none", "--http", "off", "--log-format", "json")
	var listening struct{ Address string }
	if err := json.Unmarshal([]byte(s.until(`"protocol":"lines"`)), &listening); err != nil {
		t.Fatal(err)
	}
	s.drain()
	client, worker := dialLines(t, listening.Address), dialLines(t, listening.Address)
	worker.asks("work echo", "ok")
	worker.asks("next")
	client.asks("put echo a some words", "ok")
	worker.hears("job echo a some words")
	worker.asks("done other words", "ok")
	client.hears("result a other words")
	worker.asks("done again", "error no job to finish")
	worker.asks("what", "error no such request")

	worker.asks("next")
	done := make(chan string)
	go func() {
		out, errs, code := treadle(t, "", "-H", "unix://"+socket, "run", "echo", "b", "-w", "from Periodic")
		done <- fmt.Sprintf("%d %s%s", code, out, errs)
	}()
	worker.hears("job echo b from Periodic")
	worker.asks("done to Periodic", "ok")
	if got := strings.TrimSpace(<-done); got != "0 to Periodic" {
		t.Errorf("run: %q", got)
	}
	work := start(t, true, "-H", "unix://"+socket, "work", "upper", "--data", "--", "sh", "-c", "tr a-z A-Z")
	client.asks("put upper c small", "ok")
	client.hears("result c SMALL")
	work.signal(os.Interrupt)
	s.signal(os.Interrupt)
	s.exit(0)
}

// buildLines builds the program with the edits, in copies that the compiler is shown.
func buildLines(t *testing.T) string {
	t.Helper()
	dir, replace, edited := t.TempDir(), map[string]string{}, map[string]string{}
	show := func(path, content string) {
		copied := filepath.Join(dir, strings.ReplaceAll(path, "/", "-"))
		if err := os.WriteFile(copied, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		at, err := filepath.Abs(filepath.Join("../..", path))
		if err != nil {
			t.Fatal(err)
		}
		replace[at] = copied
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, e := range linesEdits {
		if edited[e.file] == "" {
			edited[e.file] = read(filepath.Join("../..", e.file))
		}
		if strings.Count(edited[e.file], e.before) != 1 {
			t.Fatalf("%s does not have once: %s", e.file, e.before)
		}
		edited[e.file] = strings.Replace(edited[e.file], e.before, e.after, 1)
	}
	if len(edited) > 2 {
		t.Errorf("edits to %d existing files", len(edited))
	}
	for file, text := range edited {
		show(file, text)
	}
	show("loop/lines/lines.go", read("testdata/lines/lines.go"))
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "treadle")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", list, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("cannot build: %v\n%s", err, out)
	}
	return program
}

// linesClient is a client of the protocol.
type linesClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dialLines(t *testing.T, address string) *linesClient {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &linesClient{t, conn, bufio.NewReader(conn)}
}

// asks sends a line and reads the answers.
func (c *linesClient) asks(line string, answers ...string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(line + "\n")); err != nil {
		c.t.Fatal(err)
	}
	for _, a := range answers {
		c.hears(a)
	}
}

func (c *linesClient) hears(want string) {
	c.t.Helper()
	got, err := c.in.ReadString('\n')
	if err != nil || got != want+"\n" {
		c.t.Fatalf("%q, %v; want %q", got, err, want)
	}
}
