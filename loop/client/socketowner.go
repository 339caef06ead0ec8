package client

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// checkSocketOwner refuses a socket file that another user may have created to impersonate the server: in a
// world-writable directory the owner must be user or root.
func checkSocketOwner(path string, user int) error {
	if err := checkFileOwner(path, user); err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil && target != path {
		return checkFileOwner(target, user)
	}
	return nil
}

// checkFileOwner returns an error if a file is in a directory that every user can write to and is neither the user's
// nor root's: another user could have put it there.
func checkFileOwner(path string, user int) error {
	info, err := os.Lstat(path)
	if err != nil {
		return nil // connecting reports the cause
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil || dir.Mode()&0o002 == 0 {
		return nil // only trusted users can write there
	}
	owner := ownerOf(info)
	if owner == user || owner == 0 {
		if dir.Mode()&fs.ModeSticky != 0 {
			return nil
		}
		return fmt.Errorf("anybody may replace the socket in %s; have the server listen in a directory of its own (treadle serve --run-dir) and name its socket", filepath.Dir(path))
	}
	return fmt.Errorf("the socket belongs to another user (uid %d), and anybody may put one in %s; have the server listen in a directory of its own (treadle serve --run-dir) and name its socket", owner, filepath.Dir(path))
}

// ownerOf returns the user id of a file's owner.
func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
