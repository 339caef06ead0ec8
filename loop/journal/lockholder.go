package journal

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// holderOf names the process that has locked a file, empty if the system does not tell. The
// caller has no lock on the file: closing it here would end that.
func lockHolder(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only asked about
	l := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &l) != nil || l.Type == syscall.F_UNLCK || l.Pid <= 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", l.Pid)
}
