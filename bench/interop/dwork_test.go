// Package interop runs the server against clients that this project did not write. It is a module of its own: what it
// needs is no part of what ships. TREADLE_BINARY names the server to run, see `make interop`.
package interop

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// python is Debian's, because its packages are not there for another one.
const python = "/usr/bin/python3"

// run runs a client to its end and returns what it printed.
func run(t *testing.T, remedy string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s(it needs %s)", strings.Join(command, " "), err, out, remedy)
	}
	return string(out)
}

// TestDworkPython speaks as libzmq's REQ and DEALER do, with heartbeats.
func TestDworkPython(t *testing.T) {
	address := serve(t, "dwork")
	t.Log(run(t, "apt-get install python3 python3-zmq", python, filepath.Join("testdata", "dwork.py"), address))
}

// TestDworkC does a thousand tasks with a client in C.
func TestDworkC(t *testing.T) {
	const remedy = "apt-get install gcc libc6-dev libzmq3-dev"
	program := filepath.Join(t.TempDir(), "dwork")
	run(t, remedy, "gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-o", program, filepath.Join("testdata", "dwork.c"), "-lzmq")
	address := serve(t, "dwork")
	if out := run(t, remedy, program, address, "1000"); out != "1000\n" {
		t.Errorf("got %q", out)
	}
}
