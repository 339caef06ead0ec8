package loop

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"treadle/loop/admin"
)

// TestSocketMode: a socket has its mode from the moment when it is there, whatever the umask.
func TestSocketMode(t *testing.T) {
	t.Parallel()
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	for setting, want := range map[string]os.FileMode{admin.Setting: 0o600, "periodic": 0o660} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := listenWith("unix", path, socketMode(setting)) // openAddress sets the mode after this
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("--%s: %v, %v, want %v", setting, info.Mode(), err, want)
		}
	}
}
