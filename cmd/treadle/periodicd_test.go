package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPeriodicdArgs: the flags and variables of the original's server, and the flags of treadle serve behind them.
func TestPeriodicdArgs(t *testing.T) {
	t.Parallel()
	f := func(args, env string, want ...string) {
		t.Helper()
		got, err := periodicdArgs(strings.Fields(args), func(name string) string {
			for _, v := range strings.Fields(env) {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value
				}
			}
			return ""
		})
		switch {
		case err != nil && (len(want) != 1 || !strings.HasPrefix(err.Error(), want[0])):
			t.Errorf("%q with %q: %v, want %q", args, env, err, want)
		case err == nil && !slices.Equal(got[len(aloneFlags):], want):
			t.Errorf("%q with %q: %q, want %q", args, env, got[len(aloneFlags):], want)
		}
	}
	f("", "")
	f("-H tcp://:5000 -p :memory:", "", "--periodic=tcp://:5000", "--data=none")
	f("--host=unix:///run/p.sock --path :memory:", "", "--periodic=unix:///run/p.sock", "--data=none")
	f("--host /run/p.sock", "", "--periodic=unix:///run/p.sock")
	f("", "PERIODIC_PORT=tcp://:5000 PERIODIC_PATH=:memory:", "--periodic=tcp://:5000", "--data=none")
	f("-H tcp://a:1 --data /d", "PERIODIC_PORT=tcp://:5000", "--periodic=tcp://a:1", "--data", "/d")
	f("--log WARNING --max-cache-size 7 --name x --push-task-size=1 --drain 3", "", "--log-level=warn", "--drain", "3")
	f("--log EMERGENCY", "", "--log-level=error")
	f("-Htcp://:5000 -p:memory:", "", "--periodic=tcp://:5000", "--data=none")
	f("--hook= --auth-file= --rsa-private-path= --rsa-public-path k.pem", "")
	f("--hook udp://:1", "", `--hook "udp://:1": Treadle has no such thing`)
	f("--help", "", "--help")
	f("-H udp://:5000", "", "-H udp://:5000: Treadle serves tcp://HOST:PORT and unix:///PATH")
	f("-H", "", "-H needs a value")
	f("-p file:///var/p.db", "", `the store "file:///var/p.db" is the original's, which Treadle does not open: have the original write its jobs (periodic dump jobs), leave -p`)
	f("", "PERIODIC_PATH=cache+file://p.db", `the store "cache+file://p.db" is the original's`)
}

// TestPeriodicd: by a link of that name the program serves Periodic alone, where the container image of the original
// says.
func TestPeriodicd(t *testing.T) {
	dir := t.TempDir()
	link, socket := filepath.Join(dir, "periodicd"), filepath.Join(dir, "s")
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PERIODIC_PORT", "unix://"+socket)
	t.Setenv("PERIODIC_PATH", ":memory:")
	p := startCommand(t, false, link)
	if line := p.until("treadle is ready"); !strings.Contains(line, "data=none") {
		t.Errorf("it says %s", line)
	}
	if line := p.until("listening"); !strings.HasSuffix(line, "protocol=periodic address=unix://"+socket) {
		t.Errorf("it says %s", line)
	}
	// The client's server is named by the same variable.
	if out, errs, code := treadle(t, "", "submit", "f", "n"); code != 0 {
		t.Errorf("submit: exit code %d, %q, %q", code, out, errs)
	}
	p.signal(os.Interrupt)
	for p.lines.Scan() {
		if strings.Contains(p.lines.Text(), "listening") {
			t.Errorf("it listens elsewhere, too: %s", p.lines.Text())
		}
	}
	p.exit(0)
	t.Setenv("PERIODIC_PATH", "postgres://host=db")
	cmd := exec.Command(link)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(out), `the store "postgres://host=db" is the original's`) || strings.Count(string(out), "\n") != 1 {
		t.Errorf("another store: %v, %s", err, out)
	}
	// As treadle serve it looks at neither.
	r := start(t, false, "serve", "--periodic", "unix://"+filepath.Join(dir, "third"), "--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off", "--kts46", "off", "--kts46-json", "off", "--data", "none", "--http", "off")
	if line := r.until("variables of the original's server are ignored"); !strings.HasSuffix(line, `variables="PERIODIC_PORT PERIODIC_PATH"`) {
		t.Errorf("it says %s", line)
	}
	r.until("listening")
	r.stop()
}
