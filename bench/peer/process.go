package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// startLimit is the time that a server has until it accepts connections.
	startLimit = 10 * time.Second
	// stopLimit is the time that a server has to end before it is killed.
	stopLimit = 5 * time.Second
	// outputShown is the number of bytes of a server's output in an error message.
	outputShown = 2000
)

// Server is a running child process.
type Server struct {
	PID     int
	Network string
	Address string
	// The other addresses of a Treadle: Gloom's masters and slaves, dwork, HTTP and the admin socket.
	Masters, Slaves, Hub, HTTP, Admin string

	directory  string        // of its files
	Stop       func()        // ends the server and removes its directory; may be called again
	LastOutput func() string // the end of the server's output, until Stop
}

// ports are the free ports for one server: the first is its address, the rest is for a Treadle.
type ports [7]string

// Command says how to run one server. In its arguments {directory} stands for the directory of the server, {port0} to
// {port6} for free ports, and "" for nothing.
type Command struct {
	Path      string
	Arguments []string
	Socket    string // the unix socket in the directory to talk to; empty: TCP at port0

	treadle bool   // listens on all the ports
	place   string // where to make the directory; empty: with all other temporary files
	// prepare sets up the running server for its rows; nil: it needs nothing.
	prepare func(ctx context.Context, s *Server) error
}

// expand replaces the placeholders in the arguments.
func (c Command) expand(free ports, directory string) (arguments []string) {
	words := []string{"{directory}", directory, `""`, ""}
	for i, port := range free {
		words = append(words, fmt.Sprintf("{port%d}", i), port)
	}
	for _, argument := range c.Arguments {
		arguments = append(arguments, strings.NewReplacer(words...).Replace(argument))
	}
	return arguments
}

// Start runs the command on free loopback ports in a temporary directory and waits until it accepts connections.
func (c Command) Start(ctx context.Context) (*Server, error) {
	directory, err := os.MkdirTemp(c.place, "treadle-bench-")
	if err != nil {
		return nil, err
	}
	s, err := c.startIn(ctx, directory)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	return s, nil
}

// startIn starts a server in a directory, waits until it accepts connections, and prepares it. After an error the
// server has ended.
func (c Command) startIn(ctx context.Context, directory string) (*Server, error) {
	free, err := freePorts()
	if err != nil {
		return nil, err
	}
	output, err := os.Create(filepath.Join(directory, "output"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }() // the child has a descriptor of its own
	child := exec.Command(c.Path, c.expand(free, directory)...)
	child.Dir, child.Stdout, child.Stderr = directory, output, output
	// A group of its own: an interrupt from the terminal reaches the load generator alone, which then ends its children
	// one by one. If it is killed itself, the kernel ends them.
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.Path, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = child.Wait()
		close(exited)
	}()
	s := &Server{PID: child.Process.Pid, Network: "tcp", Address: loopback(free[0]), directory: directory}
	var others []string
	if c.treadle {
		s.Masters, s.Slaves, s.Hub, s.HTTP = loopback(free[1]), loopback(free[2]), loopback(free[3]), loopback(free[6])
		s.Admin = "unix://" + filepath.Join(directory, "admin.sock")
		others = free[1:]
	}
	if c.Socket != "" {
		s.Network, s.Address = "unix", filepath.Join(directory, c.Socket)
	}
	s.Stop = sync.OnceFunc(func() {
		end(child.Process, exited)
		_ = os.RemoveAll(directory)
	})
	s.LastOutput = func() string {
		text, _ := os.ReadFile(output.Name())
		return strings.TrimSpace(string(text[max(0, len(text)-outputShown):]))
	}
	err = await(ctx, exited, s.Network, s.Address)
	for _, port := range others {
		if err == nil {
			err = await(ctx, exited, "tcp", loopback(port))
		}
	}
	if err == nil && c.prepare != nil {
		err = c.prepare(ctx, s)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", filepath.Base(c.Path), err, s.LastOutput())
		s.Stop()
	}
	return s, err
}

func loopback(port string) string { return net.JoinHostPort("127.0.0.1", port) }

// await returns when the server accepts connections on an address.
func await(ctx context.Context, exited <-chan struct{}, network, address string) error {
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); {
		conn, err := net.DialTimeout(network, address, time.Second)
		if err == nil {
			conn.Close()
			return nil
		}
		select {
		case <-exited:
			return errors.New("ended at once")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("accepts no connection on %s within %v", address, startLimit)
}

// end asks a process to end, and kills it when it does not.
func end(process *os.Process, exited <-chan struct{}) {
	_ = process.Signal(syscall.SIGTERM)
	select {
	case <-exited:
	case <-time.After(stopLimit):
		_ = process.Kill()
		<-exited
	}
}

// The kernel gives connections local ports from 32768 on: below them no other program's connection takes a port between
// the moment it is found free and the server's start.
const firstPort, endOfPorts = 16384, 32768

// freePorts finds ports without a listener. It holds all of them at once, or the same port might come twice.
func freePorts() (free ports, err error) {
	for i := range free {
		var listener net.Listener
		for range 100 {
			free[i] = strconv.Itoa(firstPort + rand.IntN(endOfPorts-firstPort))
			if listener, err = net.Listen("tcp", loopback(free[i])); err == nil {
				break
			}
		}
		if err != nil {
			return free, fmt.Errorf("cannot find a free port: %w", err)
		}
		defer listener.Close()
	}
	return free, nil
}

// DiskPlace returns the parent of the directories of servers that keep their jobs on disk, the working directory:
// temporary files may be in memory.
func DiskPlace() string {
	directory, _ := os.Getwd() // without one it is the directory of temporary files
	return directory
}

// CPUTime returns the processor time, user and system, that all threads of a process have used. Every process has a
// clock of it, with a number made of its id; /proc tells the same in hundredths of a second, too coarse for a few jobs.
func CPUTime(pid int) (time.Duration, error) {
	const allThreads = 2 // CPUCLOCK_SCHED of the whole process
	var spent unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|allThreads), &spent); err != nil {
		return 0, fmt.Errorf("cannot read the clock of process %d: %w", pid, err)
	}
	return time.Duration(spent.Nano()), nil
}

// ResidentBytes returns the memory of a process in RAM.
func ResidentBytes(pid int) (int64, error) {
	kilobytes, err := ProcField(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
	number, bad := strconv.ParseInt(strings.TrimSuffix(kilobytes, " kB"), 10, 64)
	return number << 10, errors.Join(err, bad)
}

// ProcField returns the value of the first line "name: value" of a file in /proc.
func ProcField(file, name string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("no line %s in %s", name, file)
}
