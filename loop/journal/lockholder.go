package journal

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// lockHolder names the process that locks a file; empty if the system does not tell. The caller
// must not hold the lock itself, because closing the file would release it.
func lockHolder(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only queried
	l := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &l) != nil || l.Type == syscall.F_UNLCK || l.Pid <= 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", l.Pid)
}
