package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// serviceManager is the service manager that has started the program, as sd_notify(3) says. A nil one hears nothing.
type serviceManager struct {
	conn     net.Conn
	watchdog time.Duration // how long it waits for a sign of life; 0: it needs none
}

// newServiceManager returns the service manager that the environment names, or nil. It removes the variables, which are
// not for the programs that this one starts.
func newServiceManager() (*serviceManager, error) {
	address := os.Getenv("NOTIFY_SOCKET")
	watchdog, _ := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		watchdog = 0
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name) // fails for an invalid name only
	}
	if address == "" {
		return nil, nil
	}
	conn, err := net.Dial("unixgram", address) // a name that begins with @ is an abstract one for both
	if err != nil {
		return nil, fmt.Errorf("cannot reach the service manager, as NOTIFY_SOCKET asks: %w", err)
	}
	return &serviceManager{conn, time.Duration(max(watchdog, 0)) * time.Microsecond}, nil
}

// tell sends assignments. The service manager waits for none of them but READY=1, so a lost one is not told again.
func (m *serviceManager) tell(assignments ...string) {
	if m != nil {
		_, _ = m.conn.Write([]byte(strings.Join(assignments, "\n")))
	}
}

// ready sends that the program serves.
func (m *serviceManager) ready(status string) { m.tell("READY=1", "STATUS="+status) }

// reloading sends that a reload begins; ready sends its end.
func (m *serviceManager) reloading() {
	if m == nil {
		return
	}
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it cannot fail
	m.tell("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
}

// stopping sends that the program ends within a time.
func (m *serviceManager) stopping(within time.Duration) {
	m.tell("STOPPING=1", "STATUS=Stopping", fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", within.Microseconds()))
}

// watch gives the signs of life until the program ends, as long as it is alive.
func (m *serviceManager) watch(alive func() bool) {
	if m == nil || m.watchdog == 0 {
		return
	}
	for range time.Tick(m.watchdog / 3) {
		if alive() {
			m.tell("WATCHDOG=1")
		}
	}
}
