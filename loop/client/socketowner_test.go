package client

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// otherUser is neither root nor the user that runs the test.
const otherUser = 54321

// TestTrustedSockets checks that in a world-writable directory only sockets of the user and of root
// are used, and that elsewhere every socket is used.
func TestTrustedSockets(t *testing.T) {
	me := os.Geteuid()
	if me != 0 {
		t.Skip("only root can give files to others")
	}
	f := func(mode os.FileMode, owner, user int, want bool) {
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
		defer l.Close()
		if err := os.Lchown(path, owner, -1); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{path, link} {
			if err := checkSocketOwner(name, user); (err == nil) != want {
				t.Errorf("%v, of %d, for %d: %v", mode, owner, user, err)
			}
		}
	}
	const sticky = os.ModeSticky | 0o777
	f(0o755, otherUser, me, true)
	f(0o770, otherUser, me, true)
	f(sticky, me, me, true)
	f(sticky, 0, otherUser, true)
	f(sticky, otherUser, otherUser, true)
	f(sticky, otherUser, me, false)
	f(sticky, otherUser+1, otherUser, false)
	f(0o777, me, me, false)
	f(0o777, otherUser, me, false)
	if err := checkSocketOwner("/nowhere/s", me); err != nil {
		t.Error(err)
	}
}

// TestForeignSocket checks that nothing is sent to another user's socket, in any protocol.
func TestForeignSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to others")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chown(path, otherUser, -1); err != nil {
		t.Fatal(err)
	}
	_, periodic := Dial(t.Context(), path, Options{})
	_, worker := DialWorker(t.Context(), path, Options{})
	_, master := DialMaster(t.Context(), path)
	_, slave := DialSlave(t.Context(), path)
	for what, err := range map[string]error{"Periodic": periodic, "worker": worker, "master": master, "slave": slave} {
		if !errors.As(err, new(*SocketError)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
