package loop

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"treadle/codec/periodic"
)

// TestForeignSocket: a socket of another user, with or without a listener, stays. The error names its owner.
func TestForeignSocket(t *testing.T) {
	t.Parallel()
	f := func(mode os.FileMode, user int, want string) {
		t.Helper()
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
		err = clearSocket(path, user)
		_, gone := os.Lstat(path)
		switch {
		case want == "" && (err != nil || gone == nil):
			t.Errorf("%v: %v, gone: %v", mode, err, gone)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || gone != nil):
			t.Errorf("%v: %v, want %q; gone: %v", mode, err, want, gone)
		}
	}
	me := os.Geteuid()
	f(0o755, me, "")
	f(os.ModeSticky|0o777, me, "")
	f(os.ModeSticky|0o777, me+1, "belongs to another user (uid ")
	f(0o755, me+1, "belongs to another user (uid ")
	f(0o777, me, "anybody may replace files in its directory")
}

// TestRunDir: the default socket is in the run directory, which is made. A directory in which other users may
// put a socket is refused.
func TestRunDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run", "treadle")
	o := Options{RunDir: dir}
	o.fillDefaults()
	if want := "unix://" + dir + "/periodic.sock"; len(o.Periodic.Listen) != 2 || o.Periodic.Listen[1] != want {
		t.Fatalf("the default addresses are %q, want %q among them", o.Periodic.Listen, want)
	}
	r := startServer(t, Options{RunDir: dir, Periodic: PeriodicOptions{Listen: o.Periodic.Listen[1:]}})
	r.greet(periodic.Client).ping()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the directory is %v, %v", info, err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	refuses(t, "run-dir", "anybody may put a socket in "+dir, Options{RunDir: dir, Periodic: PeriodicOptions{Listen: []string{"tcp://127.0.0.1:0"}}})
	if err := makeRunDir(dir, os.Geteuid()); err == nil {
		t.Error("a directory that anybody may write to is taken")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), makeRunDir("", 1)); err != nil {
		t.Fatal(err)
	}
	if err := makeRunDir(file, os.Geteuid()); err == nil {
		t.Error("a file is taken for a directory")
	}
	if err := makeRunDir(t.TempDir(), 0); os.Geteuid() != 0 && err == nil {
		t.Error("another user's directory is taken")
	}
}

// TestExitCodes: an error that may pass has another exit code than a wrong setting.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	f := func(err error, want int) {
		t.Helper()
		var coded interface{ ExitCode() int }
		if !errors.As(err, &coded) || coded.ExitCode() != want {
			t.Errorf("%v has not the exit code %d", err, want)
		}
	}
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	run := func(o Options) error {
		s, err := newServer(o)
		if err != nil {
			return err
		}
		defer s.closeListeners()
		return s.listen()
	}
	only := func(address string) Options {
		return Options{Periodic: PeriodicOptions{Listen: []string{address}}, Gloom: GloomOptions{Masters: []string{"off"}, Slaves: []string{"off"}}, Dwork: DworkOptions{Listen: []string{"off"}}, Kts46: kts46Off, HTTP: "off", Data: NoData}
	}
	f(run(only("tcp://"+r.tcp)), 1)
	f(run(only("unix://"+r.unix)), 1)
	f(run(only("unix:///dev/null")), 1)
	f(run(only("unix:///nowhere/s")), 1)
	f(run(only("tcp://127.0.0.1:99999")), 2)
	f(run(only("unix:///tmp/"+strings.Repeat("x", 200))), 2)
	f(run(Options{Loops: -1}), 2)
}
