package loop

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"treadle/loop/admin"
)

// socketMode returns the mode of the sockets of a setting: the owner and the group may connect, to the operators'
// interface the owner alone.
func socketMode(setting string) fs.FileMode {
	if setting == admin.Setting || setting == clusterSetting {
		return admin.SocketMode
	}
	return 0o660
}

// runDirMode lets every user reach the sockets in a run directory, and only the owner make sockets there. The sockets'
// own modes say which users may connect.
const runDirMode = 0o755

// socketError is a socket file that the server must not replace.
type socketError string

func (e socketError) Error() string { return string(e) }

// clearSocket removes a socket of the same user without a listener, as a killed server leaves it.
// Any other file, and a socket that answers, is an error.
func clearSocket(path string, user int) error {
	if dir, err := os.Stat(filepath.Dir(path)); err == nil && dir.Mode()&0o002 != 0 && dir.Mode()&fs.ModeSticky == 0 {
		return socketError("anybody may replace files in its directory, and so receive its clients; name a socket in another directory, or give --run-dir")
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return socketError("the file is there and is no socket; remove it, or name another")
	}
	if owner := ownerOf(info); owner != user {
		return socketError(fmt.Sprintf("the socket there belongs to another user (uid %d), who receives the clients that connect to it; have it removed, or give --run-dir", owner))
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return socketError("another server listens there; stop it, or name another socket")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return plain(err)
	}
	return os.Remove(path)
}

// ownerOf returns the user id of a file's owner.
func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// makeRunDir makes the directory of the default socket if it is missing. It refuses a directory in which another user
// may put a socket. An empty name does nothing.
func makeRunDir(dir string, user int) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, runDirMode); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", dir)
	case ownerOf(info) != user && ownerOf(info) != 0:
		return fmt.Errorf("%s belongs to another user (uid %d)", dir, ownerOf(info))
	case info.Mode()&0o002 != 0:
		return fmt.Errorf("anybody may put a socket in %s; chmod o-w it, or name another", dir)
	}
	return nil
}
