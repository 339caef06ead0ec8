package interop

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"treadle/codec/faktory"
)

var (
	faktoryOriginal  = flag.Bool("faktory.original", false, "build the original Faktory and compare with it, as make soak does")
	faktoryRewrite   = flag.Bool("faktory.rewrite", false, "write the replies of the original Faktory to the golden file")
	faktorySequences = flag.Int("faktory.sequences", 10, "random sequences of commands that Faktory and Treadle are compared by")
	faktorySeed      = flag.Uint64("faktory.seed", 0, "the first seed of these; 0: from the clock")
)

// original builds the original Faktory, the tool of go.mod. Building it takes longer than the tests: only
// -faktory.original asks for it.
func original(t *testing.T) (program string) {
	t.Helper()
	if !*faktoryOriginal {
		t.Skip("-faktory.original compares with the original Faktory")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("no redis-server on this machine, which the original Faktory needs: run `make peers`")
	}
	said, err := exec.Command("go", "tool", "-n", "faktory").Output()
	check(t, err)
	return strings.TrimSpace(string(said))
}

// startOriginal starts the original Faktory in an empty directory and returns its address.
func startOriginal(t *testing.T, program string) string {
	t.Helper()
	dir, address := t.TempDir(), strings.TrimPrefix(below(t), "tcp://")
	db, config := filepath.Join(dir, "db"), filepath.Join(dir, "config")
	check(t, os.MkdirAll(db, 0o700))
	check(t, os.MkdirAll(config, 0o700))
	cmd := exec.Command(program, "-b", address, "-w", strings.TrimPrefix(below(t), "tcp://"), "-d", db, "-c", config, "-l", "warn", "-e", "development")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it stops its redis-server
		_ = cmd.Wait()
	})
	for end := time.Now().Add(patience); ; {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			return address
		}
		if time.Now().After(end) {
			t.Fatalf("Faktory does not listen: %v\n%s", err, log.String())
		}
		time.Sleep(20 * time.Millisecond) // a poll of another program
	}
}

// faktoryConn is a connection that speaks in lines.
type faktoryConn struct {
	net.Conn
	in     []byte
	closed bool
	ended  bool // the golden file shows that it is closed
}

func dialFaktory(t *testing.T, address string) *faktoryConn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp://"))
	check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &faktoryConn{Conn: c}
}

// reply returns the next reply as a golden file shows it; empty: none has come in time.
func (c *faktoryConn) reply(t *testing.T, within time.Duration) string {
	t.Helper()
	check(t, c.SetReadDeadline(time.Now().Add(within)))
	for {
		kind, data, n, err := faktory.NextReply(c.in, 1<<26)
		check(t, err)
		switch {
		case n == 0 && c.closed:
			return ""
		case n == 0:
			var part [1 << 14]byte
			n, err := c.Read(part[:])
			if c.in = append(c.in, part[:n]...); err != nil {
				if e, ok := err.(net.Error); ok && e.Timeout() {
					return ""
				}
				c.closed = true
			}
			continue
		}
		c.in = c.in[n:]
		switch kind {
		case faktory.Null:
			return "$-1"
		case faktory.Bulk:
			return "$ " + string(data)
		}
		return string(kind) + string(data)
	}
}

// ask sends a command and returns its reply.
func (c *faktoryConn) ask(t *testing.T, command string) string {
	t.Helper()
	_, err := c.Write([]byte(command + "\r\n"))
	check(t, err)
	got := c.reply(t, patience)
	if got == "" {
		t.Fatalf("no reply to %s", command)
	}
	return got
}

var faktoryTime = regexp.MustCompile(`"[0-9]{4}-[0-9]{2}-[0-9]{2}T[^"]*"`)

// hideFaktory hides what the servers cannot have in common, as the golden test of package loop does.
func hideFaktory(reply string) string {
	reply = regexp.MustCompile(`"next_at":"[^"]*"`).ReplaceAllString(reply, `"next_at":"<chance>"`)
	if strings.HasPrefix(reply, "-ERR ") {
		return "-ERR <text>"
	}
	if strings.Contains(reply, `"failure":`) {
		reply = regexp.MustCompile(`"enqueued_at":"[^"]*"`).ReplaceAllString(reply, `"enqueued_at":"<chance>"`)
	}
	return faktoryTime.ReplaceAllString(reply, `"<time>"`)
}

// TestFaktoryImport moves the jobs of the original Faktory to Treadle: each job keeps its set, its time and its
// failure.
func TestFaktoryImport(t *testing.T) {
	theirs := startOriginal(t, original(t))
	_, ours := faktoryServer(t, "tcp://127.0.0.1:0", "none")
	var conns [2]*faktoryConn
	for n, address := range [2]string{theirs, ours} {
		conns[n] = dialFaktory(t, address)
		conns[n].ask(t, `HELLO {"v":2}`) // the greeting
		conns[n].reply(t, patience)
	}
	asks := func(c *faktoryConn, pairs ...string) {
		t.Helper()
		for ; len(pairs) > 1; pairs = pairs[2:] {
			if got := c.ask(t, pairs[0]); !strings.Contains(got, pairs[1]) {
				t.Fatalf("%s gives %s, want %s", pairs[0], got, pairs[1])
			}
		}
	}
	const ready = 600 // more than are moved together
	for i := range ready {
		asks(conns[0], fmt.Sprintf(`PUSH {"jid":"ready-%04d","jobtype":"T","args":[%d]}`, i, i), "+OK")
	}
	asks(conns[0],
		`PUSH {"jid":"timed-01","jobtype":"T","args":[],"at":"2199-01-02T03:04:05Z"}`, "+OK",
		`PUSH {"jid":"fails-01","jobtype":"T","args":[],"queue":"f"}`, "+OK",
		`FETCH f`, "fails-01", `FAIL {"jid":"fails-01","errtype":"E","message":"first"}`, "+OK",
		`PUSH {"jid":"dead-001","jobtype":"T","args":[],"queue":"f","retry":-1}`, "+OK",
		`FETCH f`, "dead-001", `FAIL {"jid":"dead-001","errtype":"E","message":"last"}`, "+OK",
		`PUSH {"jid":"killed-1","jobtype":"K","args":[],"at":"2199-01-02T03:04:05Z"}`, "+OK",
		`MUTATE {"cmd":"kill","target":"scheduled","filter":{"jobtype":"K"}}`, "+OK",
		`INFO`, `"sets":{"dead":2,"retries":1,"scheduled":1,"working":0}`,
	)
	said, err := exec.Command(os.Getenv("TREADLE_BINARY"), "import", "faktory", theirs, "--to", ours, "--move").CombinedOutput()
	if err != nil || !strings.Contains(string(said), fmt.Sprint(ready+4, "  moved")) {
		t.Fatalf("%v: %s", err, said)
	}
	asks(conns[0], "INFO", `"sets":{"dead":0,"retries":0,"scheduled":0,"working":0}`)
	asks(conns[1],
		"INFO", `"sets":{"dead":2,"retries":1,"scheduled":1,"working":0}`,
		"FETCH default", `"jid":"ready-0000"`,
		`MUTATE {"cmd":"requeue","target":"retries"}`, "+OK",
		"FETCH f", `"retry_count":0,"remaining":25`, `ACK {"jid":"fails-01"}`, "+OK",
		`MUTATE {"cmd":"requeue","target":"dead","filter":{"jids":["dead-001"]}}`, "+OK",
		"FETCH f", `"message":"last","errtype":"E"`,
		`MUTATE {"cmd":"requeue","target":"scheduled"}`, "+OK",
		"FETCH default", `"jid":"ready-0001"`,
	)
}

// TestFaktoryCaptured plays the scenes of the golden file on the original Faktory: it must give what stands there.
func TestFaktoryCaptured(t *testing.T) {
	const path = "../../loop/testdata/faktory/captured.txt"
	text, err := os.ReadFile(path)
	check(t, err)
	program := original(t)
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	var got, names []string
	var address string
	conns := make(map[string]*faktoryConn)
	for i, line := range want {
		peer, command, isCommand := strings.Cut(line, " > ")
		wait, isWait := strings.CutPrefix(line, "-- ")
		switch {
		case strings.HasPrefix(line, "### "):
			conns, names = make(map[string]*faktoryConn), nil
			address = startOriginal(t, program)
		case isReply(line):
			continue // what was given before
		case isWait:
			d, err := time.ParseDuration(wait)
			check(t, err)
			time.Sleep(d)
		case isCommand && len(peer) == 1:
			if conns[peer] == nil {
				conns[peer] = dialFaktory(t, address)
				names = append(names, peer)
			}
			_, err := conns[peer].Write([]byte(command + "\r\n"))
			check(t, err)
		default:
			got = append(got, line)
			continue
		}
		got = append(got, line)
		expected := make(map[string]int)
		for _, reply := range want[i+1:] {
			if !isReply(reply) {
				break
			}
			expected[reply[:1]]++
		}
		for _, name := range names {
			got = append(got, conns[name].rest(t, name, expected[name])...)
		}
	}
	if *faktoryRewrite {
		check(t, os.WriteFile(path, []byte(strings.Join(got, "\n")+"\n"), 0o644))
		return
	}
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Fatalf("line %d is\n%s\nand Faktory gives\n%s", i+1, want[i], got[i])
		}
	}
	if len(want) != len(got) {
		t.Errorf("%d lines, and Faktory gives %d", len(want), len(got))
	}
}

// isReply reports whether a line of a golden file shows a reply.
func isReply(line string) bool { return len(line) > 4 && line[1:4] == " < " }

// rest returns the replies that have come, as a golden file shows them. It waits for the expected ones; when a file is
// written nobody knows how many these are.
func (c *faktoryConn) rest(t *testing.T, name string, expected int) (lines []string) {
	t.Helper()
	for !c.ended {
		wait := patience
		switch {
		case *faktoryRewrite && len(lines) == 0:
			wait = 300 * time.Millisecond
		case *faktoryRewrite || len(lines) >= expected:
			wait = 10 * time.Millisecond // for what nobody expects
		}
		got := c.reply(t, wait)
		switch {
		case got != "":
			lines = append(lines, name+" < "+hideFaktory(got))
			continue
		case c.closed:
			c.ended = true
			lines = append(lines, name+" < (closed)")
		}
		break
	}
	return lines
}
