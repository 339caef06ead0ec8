package main

import (
	"context"
	"errors"
	"fmt"
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
	// startLimit is how long a server may take until it accepts connections.
	startLimit = 10 * time.Second
	// stopLimit is how long a server may take to end when it is asked to, before it is killed.
	stopLimit = 5 * time.Second
	// outputShown is how many bytes of a server's output an error message quotes.
	outputShown = 2000
)

// server is a running child process.
type server struct {
	pid     int
	network string
	address string
	masters string        // the Gloom addresses, of servers that have them
	slaves  string        //
	hub     string        // that of the dwork protocol
	xml     string        // those of kts46
	json    string        //
	http    string        // that of the metrics
	stop    func()        // ends the server and removes its directory; may be called again
	said    func() string // the end of what the server printed, until stop
}

// portCount is how many ports a server gets.
const portCount = 7

// command says how to run one server: the arguments may depend on its free ports and its own directory. The first port
// is the one to talk to, the others are for the masters and the slaves of Gloom, for dwork, the two of kts46, and HTTP.
type command struct {
	path      string
	arguments func(ports [portCount]string, directory string) []string
	socket    string // the unix socket in the directory to talk to; empty: TCP
	gloom     bool   // listens on the ports of the other protocols too
	place     string // where to make the directory; empty: with all other temporary files
}

// start runs the command on free loopback ports in a temporary directory and waits until it accepts connections.
func (c command) start(ctx context.Context) (*server, error) {
	directory, err := os.MkdirTemp(c.place, "treadle-bench-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	output, err := os.Create(filepath.Join(directory, "output"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	defer func() { _ = output.Close() }() // the child has a descriptor of its own
	child := exec.Command(c.path, c.arguments(ports, directory)...)
	child.Dir, child.Stdout, child.Stderr = directory, output, output
	// A group of its own: an interrupt from the terminal reaches the load generator alone, which then ends its
	// children one by one. Should it be killed itself, the kernel ends them.
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start %s: %w", c.path, err), os.RemoveAll(directory))
	}
	exited := make(chan struct{})
	go func() {
		_ = child.Wait()
		close(exited)
	}()
	s := &server{pid: child.Process.Pid, network: "tcp", address: net.JoinHostPort("127.0.0.1", ports[0])}
	if c.gloom {
		s.masters, s.slaves = net.JoinHostPort("127.0.0.1", ports[1]), net.JoinHostPort("127.0.0.1", ports[2])
		s.hub, s.http = net.JoinHostPort("127.0.0.1", ports[3]), net.JoinHostPort("127.0.0.1", ports[6])
		s.xml, s.json = net.JoinHostPort("127.0.0.1", ports[4]), net.JoinHostPort("127.0.0.1", ports[5])
	}
	if c.socket != "" {
		s.network, s.address = "unix", filepath.Join(directory, c.socket)
	}
	s.stop = sync.OnceFunc(func() {
		end(child.Process, exited)
		_ = os.RemoveAll(directory)
	})
	s.said = func() string {
		text, _ := os.ReadFile(output.Name())
		return strings.TrimSpace(string(text[max(0, len(text)-outputShown):]))
	}
	if err := s.await(ctx, exited); err != nil {
		said := s.said()
		s.stop()
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(c.path), err, said)
	}
	return s, nil
}

// await returns when the server accepts connections on all its addresses.
func (s *server) await(ctx context.Context, exited <-chan struct{}) error {
	err := awaitAddress(ctx, exited, s.network, s.address)
	for _, address := range []string{s.masters, s.slaves, s.hub, s.xml, s.json, s.http} {
		if err == nil && address != "" {
			err = awaitAddress(ctx, exited, "tcp", address)
		}
	}
	return err
}

func awaitAddress(ctx context.Context, exited <-chan struct{}, network, address string) error {
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

// freePorts finds ports that nobody listens on. They are held all at a time, or the same one might come twice.
func freePorts() (ports [portCount]string, err error) {
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return ports, fmt.Errorf("cannot find a free port: %w", err)
		}
		defer listener.Close()
		ports[i] = strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// cpuTime is the processor time, user and system, that all threads of a process have used. Every process has a clock
// of it, with a number made of its id; /proc tells the same in hundredths of a second, too coarse for a few jobs.
func cpuTime(pid int) (time.Duration, error) {
	const allThreads = 2 // CPUCLOCK_SCHED of the whole process
	var spent unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|allThreads), &spent); err != nil {
		return 0, fmt.Errorf("cannot read the clock of process %d: %w", pid, err)
	}
	return time.Duration(spent.Nano()), nil
}

// residentBytes is the memory of a process that is in RAM.
func residentBytes(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	kilobytes, err := procField(status, "VmRSS")
	return kilobytes << 10, err
}

// procField reads a line "name:  number kB" of a file in /proc.
func procField(text []byte, name string) (int64, error) {
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		}
	}
	return 0, fmt.Errorf("no line %s in /proc", name)
}
