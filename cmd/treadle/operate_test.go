package main

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// quiet returns the arguments of a server that listens on a socket alone, and more arguments.
func quiet(socket string, more ...string) []string {
	args := []string{"serve", "--periodic", "unix://" + socket}
	for _, name := range []string{"--gloom-masters", "--gloom-slaves", "--dwork", "--kts46", "--kts46-json", "--http"} {
		if !slices.Contains(more, name) {
			args = append(args, name, "off")
		}
	}
	return append(args, more...)
}

// TestDataIsNamed: the log names the directory so that it is found from elsewhere. A second server on it says
// at once that it waits, and for whom, and has it when that has ended.
func TestDataIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := func(socket string) *process {
		cmd := exec.Command(binary, quiet(filepath.Join(dir, socket), "--data", "data")...)
		cmd.Dir = dir
		return startBy(t, false, cmd, (*exec.Cmd).Start)
	}
	data := filepath.Join(dir, "data")
	first := begin("a")
	if line := first.until("treadle is ready"); !strings.Contains(line, " data="+data+" ") {
		t.Errorf("the line %q does not name %s", line, data)
	}
	first.until("listening")
	second := begin("b")
	line := second.until("waiting for the data directory")
	if want := fmt.Sprintf("is in use by another treadle (process %d)", first.Process.Pid); !strings.Contains(line, want) || !strings.Contains(line, data) {
		t.Errorf("the line %q does not name %s and say %q", line, data, want)
	}
	first.stop()
	second.until("listening")
	second.stop()
}

// TestHangup: SIGHUP does not end a server without a file, which reads its variables again.
func TestHangup(t *testing.T) {
	t.Parallel()
	p := serve(t, filepath.Join(t.TempDir(), "s"))
	for range 2 {
		p.signal(syscall.SIGHUP)
		p.until(`msg="the configuration is read again" changes=0`)
	}
	p.stop()
}

// TestOpenAddressesAreNamed: one line says which addresses other hosts reach, and that anybody there may stop
// the server, if so; there is none when only this host does.
func TestOpenAddressesAreNamed(t *testing.T) {
	t.Parallel()
	f := func(want string, more ...string) {
		t.Helper()
		p := start(t, false, quiet(filepath.Join(t.TempDir(), "s"), append([]string{"--data", "none"}, more...)...)...)
		p.until("listening")
		p.signal(syscall.SIGTERM)
		warnings := ""
		for p.lines.Scan() {
			if line := p.lines.Text(); strings.Contains(line, "level=WARN") {
				warnings += line + "\n"
			}
		}
		if got := strings.Count(warnings, "\n"); want == "" && got > 0 || want != "" && (got != 1 || !strings.Contains(warnings, want)) {
			t.Errorf("%q: warned\n%s, want %q", more, warnings, want)
		}
		p.exit(0)
	}
	const stop = "may use this server, and stop it: there is no authentication, and --periodic-shutdown is on"
	const use = "may use this server: there is no authentication"
	f("", "--periodic", "tcp://127.0.0.1:0", "--dwork", "tcp://localhost:0", "--http", "127.0.0.1:0")
	f(stop, "--periodic", "tcp://0.0.0.0:0")
	f(use, "--periodic", "tcp://0.0.0.0:0", "--periodic-shutdown", "off")
	f(use, "--dwork", "tcp://*:0")
	f(use, "--http", ":0")
}

// TestProfiles: Go's profiles are served with --pprof on.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]int{"off": 404, "on": 200} {
		p := start(t, false, quiet(filepath.Join(t.TempDir(), "s"), "--data", "none", "--http", "127.0.0.1:0", "--pprof", setting)...)
		_, address, _ := strings.Cut(p.until("protocol=http"), "address=")
		answer, err := http.Get(address + "/debug/pprof/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		if answer.StatusCode != want {
			t.Errorf("--pprof %s: %s, want %d", setting, answer.Status, want)
		}
		p.stop()
	}
}

// TestFullDiskIsSaid: a client that submits is told in both framings that the disk is full, and /readyz says so too.
func TestFullDiskIsSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, dump := filepath.Join(dir, "s"), config(t, "\x00\x00\x00\x00\x00\x00\x00\x01\x01f\x01n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	p := start(t, false, quiet(socket, "--data", filepath.Join(dir, "data"), "--min-free", "8000000000g", "--http", "127.0.0.1:0")...)
	_, address, _ := strings.Cut(p.until("protocol=http"), "address=")
	u := user{t, socket}
	const disk = `the server refused the request \(it answered UNKNOWN\): it takes no new jobs, because the disk of its --data has less free space than --min-free: free some`
	u.gets("1\n", "config get refusing")
	for _, command := range []string{"submit f n", "run f n", "--crc submit f n"} {
		u.fails("treadle: cannot .*: "+disk+"\n", command)
	}
	u.fails("treadle: cannot load the jobs at .*: the server refused .*--min-free.*; 0 of the 1 jobs are in\n", "load "+dump)
	answer, err := http.Get(address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode != 200 || !strings.HasPrefix(string(text), "degraded: refusing new jobs") || err != nil {
		t.Errorf("/readyz: %s, %q, %v", answer.Status, text, err)
	}
	p.stop()
}
