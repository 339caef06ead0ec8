package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// startFaktory starts a server of Faktory's protocol alone and returns its address.
func startFaktory(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	p := start(t, false, append([]string{"serve", "--periodic", "unix://" + filepath.Join(dir, "p"), "--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off",
		"--kts46", "off", "--kts46-json", "off", "--http", "off", "--data", "none", "--faktory", "tcp://127.0.0.1:0"}, args...)...)
	_, address, _ := strings.Cut(p.until("protocol=faktory "), "address=")
	p.drain()
	return strings.TrimSpace(address)
}

// faktoryLine is a connection of Faktory's protocol whose replies are compared line by line.
type faktoryLine struct {
	*testing.T
	net.Conn
	in *bufio.Reader
}

// dialFaktoryLine connects and reads the greeting.
func dialFaktoryLine(t *testing.T, address string) *faktoryLine {
	t.Helper()
	c := &faktoryLine{T: t, Conn: worked(net.Dial("tcp", strings.TrimPrefix(address, "tcp://")))(t)}
	t.Cleanup(func() { c.Close() })
	c.in = bufio.NewReader(c.Conn)
	c.line("+HI {\"v\":2}")
	return c
}

func (c *faktoryLine) line(want string) {
	c.Helper()
	got := worked(c.in.ReadString('\n'))(c.T)
	if strings.HasPrefix(got, "$") { // its length
		got = worked(c.in.ReadString('\n'))(c.T)
	}
	if got != want+"\r\n" {
		c.Errorf("got %q, want %q", got, want)
	}
}

// asks sends a command and checks its reply.
func (c *faktoryLine) asks(text, want string) {
	c.Helper()
	worked(io.WriteString(c, text+"\r\n"))(c.T)
	c.line(want)
}

// TestFaktoryQuiet: an operator asks a worker process to take no more jobs, and to end, by any of its connections. The
// reply to the next BEAT tells it. A client without a worker cannot be asked. The audit has each request.
func TestFaktoryQuiet(t *testing.T) {
	admin := "unix://" + filepath.Join(t.TempDir(), "admin")
	address := startFaktory(t, "--admin", admin)
	client, worker := dialFaktoryLine(t, address), dialFaktoryLine(t, address)
	client.asks(`HELLO {"v":2}`, "+OK")
	worker.asks(`HELLO {"v":2,"wid":"w1"}`, "+OK")
	worker.asks(`BEAT {"wid":"w1"}`, "+OK")
	ids := map[string]string{}
	out, errs, _ := treadle(t, "", "-H", admin, "conn", "list", "--protocol", "faktory", "--json")
	for line := range strings.Lines(out) {
		var shown struct{ ID, Role string }
		must(t, json.Unmarshal([]byte(line), &shown))
		ids[shown.Role] = shown.ID
	}
	if len(ids) != 2 {
		t.Fatalf("connections: %s%s", out, errs)
	}
	f := func(want string, code int, args ...string) {
		t.Helper()
		out, errs, got := treadle(t, "", append([]string{"-H", admin}, args...)...)
		if !like(out+errs, want) || got != code {
			t.Errorf("%q: exit code %d, %s%s", args, got, out, errs)
		}
	}
	f(ids["worker"]+" is asked\n", 0, "conn", "quiet", ids["worker"])
	worker.asks(`BEAT {"wid":"w1"}`, `{"state":"quiet"}`)
	f(ids["worker"]+" is asked\n", 0, "conn", "quiet", ids["worker"], "--end")
	worker.asks(`BEAT {"wid":"w1"}`, `{"state":"terminate"}`)
	f("*no worker that can be asked to stop*", 1, "conn", "quiet", ids["client"])
	f("*no connection has this id*", exitNotFound, "conn", "quiet", "zzzzz")
	f(fmt.Sprintf("*connections/quiet*%s*connections/quiet*%[1]s*", ids["worker"]), 0, "audit", "--json")
}
