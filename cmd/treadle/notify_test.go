package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServiceManager: the server tells the service manager that it serves, is alive, reloads and stops. One
// that cannot be reached keeps no server from serving.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at("notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	told := func(want ...string) (text string) {
		t.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(20 * time.Second))
		for buffer := make([]byte, 4096); ; {
			n, err := socket.Read(buffer)
			if err != nil {
				t.Fatalf("the service manager was not told %q: %v", want, err)
			}
			if text = string(buffer[:n]); strings.HasPrefix(text, want[0]) {
				for _, part := range want[1:] {
					if !strings.Contains(text, "\n"+part) {
						t.Errorf("the service manager was told %q, without %q", text, part)
					}
				}
				return text
			}
		}
	}
	cmd := exec.Command(binary, quiet(at("s"), "--data", at("data"))...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+at("notify"), "WATCHDOG_USEC=300000")
	p := startBy(t, false, cmd, (*exec.Cmd).Start)
	told("READY=1", "STATUS=Serving")
	told("WATCHDOG=1")
	told("WATCHDOG=1")
	p.signal(syscall.SIGHUP)
	told("RELOADING=1", "MONOTONIC_USEC=")
	told("READY=1")
	p.signal(syscall.SIGTERM)
	told("STOPPING=1", "EXTEND_TIMEOUT_USEC=40000000")
	p.exit(0)

	cmd = exec.Command(binary, quiet(at("s"), "--data", "none")...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+at("nobody"))
	p = startBy(t, false, cmd, (*exec.Cmd).Start)
	p.until("the service manager is not told of the start")
	p.until("listening")
	p.stop()
}
