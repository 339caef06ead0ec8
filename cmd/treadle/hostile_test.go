package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"treadle/codec/periodic"
	"treadle/loop/client"
)

// hostileScale multiplies the size of the attacks of TestHostile: 1 in every test run, 20 in
// `make soak`.
var hostileScale = flag.Int("hostile.scale", 1, "how much TestHostile does")

const (
	// hostileLimit is the server's GOMEMLIMIT. hostileRSS is the most memory that the server may have: the limit and
	// the memory of the runtime and the program beside it.
	hostileLimit = 256 << 20
	hostileRSS   = hostileLimit + 128<<20
	// hostileWait is how long a probe may wait for a result. The time beside an attack depends on the load of the
	// machine.
	hostileWait = patience
	// hostilePatience is how long a server may take to hang up on a peer: ten seconds for replies that are not read,
	// and the delay of a busy machine, where peers that ask without a pause come last, at scale 20 too. It is less than
	// the server's lifetime.
	hostilePatience = 2 * time.Minute
)

// attack is a test of a built server with hostile peers and probes.
type attack struct {
	t      *testing.T
	server *process
	ports  map[string]string // addresses by protocol
	socket string
	scale  int
	more   int  // bytes beyond hostileLimit
	rest   bool // the probes may wait: the server cannot serve them

	mu    sync.Mutex
	worst map[string]time.Duration // guarded by mu: the longest wait of each protocol's probe
}

// startAttack starts the server with hostileLimit and more bytes of memory, and the arguments.
func startAttack(t *testing.T, more int, args ...string) *attack {
	t.Helper()
	s := newAttack(t, more)
	all := []string{"--data", "none", "--max-frame", "4MiB", "--gloom-max-frame", "4MiB", "--max-outbound", "8MiB", "--dwork-max-frame", "4MiB"}
	return s.on(s.start(s.serves(append(all, args...)...)...))
}

// start runs treadle with the attack's memory limit.
func (s *attack) start(args ...string) *process {
	s.t.Helper()
	return startCommand(s.t, false, "env", append([]string{"GOMEMLIMIT=" + strconv.Itoa(hostileLimit+s.more), binary}, args...)...)
}

// newAttack returns an attack without a server.
func newAttack(t *testing.T, more int) *attack {
	t.Helper()
	return &attack{t: t, more: more, ports: map[string]string{}, worst: map[string]time.Duration{}, socket: filepath.Join(t.TempDir(), "s"), scale: *hostileScale}
}

// allPorts are the protocols with a TCP port.
var allPorts = []string{"periodic", "gloom-masters", "gloom-slaves", "dwork", "kts46", "kts46-json", "beanstalk", "faktory", "http"}

// serves returns the command line of a server that serves every protocol.
func (s *attack) serves(args ...string) []string {
	all := []string{"serve", "--periodic", "unix://" + s.socket, "--http", "127.0.0.1:0"}
	for _, protocol := range allPorts[:len(allPorts)-1] {
		all = append(all, "--"+protocol, "tcp://127.0.0.1:0")
	}
	return append(all, args...)
}

// on reads the addresses at which the server listens and returns s.
func (s *attack) on(p *process) *attack {
	s.t.Helper()
	s.server = p
	for clear(s.ports); len(s.ports) < len(allPorts); {
		_, rest, _ := strings.Cut(p.until("listening"), "protocol=")
		protocol, rest, _ := strings.Cut(rest, " ")
		_, address, _ := strings.Cut(rest, "://")
		if !strings.HasPrefix(rest, "address=unix") {
			s.ports[protocol] = strings.TrimSpace(address)
		}
	}
	p.drain()
	return s
}

// dial connects to a port.
func (s *attack) dial(protocol string) net.Conn {
	s.t.Helper()
	return s.dialFrom(net.Dialer{}, protocol)
}

// dialFrom is dial with options.
func (s *attack) dialFrom(d net.Dialer, protocol string) net.Conn {
	s.t.Helper()
	d.Timeout = patience
	c, err := d.Dial("tcp", s.ports[protocol])
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(hostilePatience)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// wantHungUp waits until the server has hung up on c.
func (s *attack) wantHungUp(c net.Conn, what string) {
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		s.t.Errorf("%s: the server does not hang up", what)
	}
	c.Close()
}

// peak returns the most memory that the server has had, in bytes.
func (s *attack) peak() int {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.server.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, _, _ := strings.Cut(rest, "kB")
	n, err := strconv.Atoi(strings.TrimSpace(kib))
	if err != nil {
		s.t.Fatal(err)
	}
	return n << 10
}

// stands checks the number of jobs and of running jobs of a function.
func (s *attack) stands(function string, jobs, running int64) {
	s.t.Helper()
	c := worked(client.Dial(s.t.Context(), s.socket, client.Options{}))(s.t)
	defer c.Close()
	rows := worked(c.Status(s.t.Context()))(s.t)
	i := slices.IndexFunc(rows, func(q client.Queue) bool { return q.Func == function })
	if i < 0 || rows[i].Jobs != jobs || rows[i].Running != running {
		s.t.Errorf("%q does not have %d jobs, %d of them running: %+v", function, jobs, running, rows)
	}
}

// onEach calls do n times for each port, all at a time.
func (s *attack) onEach(n int, do func(protocol string)) {
	var all sync.WaitGroup
	for _, protocol := range allPorts {
		for range n {
			all.Go(func() { do(protocol) })
		}
	}
	all.Wait()
}

// files returns n, or the number of connections that the descriptors of both processes allow.
func (s *attack) files(n int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		s.t.Fatal(err)
	}
	room := int(min(limit.Cur, 1<<20)) - 400
	if n > room {
		s.t.Logf("%d connections instead of %d: RLIMIT_NOFILE is %d", room, n, limit.Cur)
	}
	return min(n, room)
}

// TestHostile runs each attack against the built server, which must take bounded memory and serve the probes meanwhile.
// The tests of loop have further attacks on the server in memory. With -v the test prints the longest wait of each
// protocol's probe beside each attack, to compare two builds; -parallel 1 then makes one attack at a time.
func TestHostile(t *testing.T) {
	longFor(t)
	t.Parallel()
	var mu sync.Mutex
	waits := fmt.Sprintf("longest waits in ms, %d times as much as in every test run:", *hostileScale)
	t.Cleanup(func() { t.Log(waits) })
	for _, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			if h.waits {
				t.Parallel()
			}
			var args []string
			if h.hasty {
				args = []string{"--handshake-timeout", "2s", "--frame-timeout", "2s"}
			}
			s := startAttack(t, h.memory**hostileScale, args...)
			s.withProbes(func() { h.attack(s) })
			s.server.signal(syscall.SIGTERM)
			s.server.exit(0)
			mu.Lock()
			defer mu.Unlock()
			waits += "\n"
			for _, protocol := range slices.Sorted(maps.Keys(s.worst)) {
				waits += fmt.Sprintf("%s %.1f  ", protocol, float64(s.worst[protocol].Microseconds())/1000)
			}
			waits += h.name
		})
	}
}

// TestFewDescriptors: a server with hardly any descriptors turns new connections away, keeps its open connections, and
// takes new ones when others have left.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	s := &attack{t: t, socket: filepath.Join(t.TempDir(), "s"), worst: map[string]time.Duration{}}
	s.server = startCommand(t, false, "sh", "-c", "ulimit -n 200; GOMEMLIMIT="+strconv.Itoa(hostileLimit)+" exec "+binary+" serve --periodic unix://"+s.socket+
		" --gloom-masters off --gloom-slaves off --dwork off --kts46 off --kts46-json off --http off --data none")
	s.server.until("listening")
	s.server.drain()
	s.withProbes(func() {
		idle := s.descriptors()
		for range 3 {
			var open []net.Conn
			for range 300 {
				c, err := net.DialTimeout("unix", s.socket, patience)
				if err != nil {
					continue // its backlog is full
				}
				open = append(open, c)
			}
			away := 0
			for _, c := range open {
				_ = c.SetDeadline(time.Now().Add(hostilePatience))
				_, _ = c.Write(hello(periodic.Client)) // the server may have hung up
				if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("a connection is neither served nor turned away")
				} else if err != nil {
					away++
				}
			}
			if n := s.descriptors(); n > 150 {
				t.Errorf("the server has %d of its 200 descriptors in use: none are left for what it needs itself", n)
			}
			for _, c := range open {
				c.Close()
			}
			if away == 0 || away == len(open) {
				t.Errorf("%d of %d connections are turned away", away, len(open))
			}
			pause := time.NewTicker(dripPause)
			for end := time.Now().Add(hostilePatience); s.descriptors() > idle; <-pause.C {
				if time.Now().After(end) {
					t.Fatalf("%d descriptors are in use when those have left, %d were before", s.descriptors(), idle)
				}
			}
		}
		c, err := client.Dial(t.Context(), "unix://"+s.socket, client.Options{})
		if err != nil {
			t.Errorf("there is no room again: %v", err)
		} else {
			c.Close()
		}
	})
}

// descriptors returns the number of open descriptors of the server.
func (s *attack) descriptors() int {
	s.t.Helper()
	return len(worked(os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.server.Process.Pid)))(s.t))
}

// TestTermUnderLoad sends SIGTERM while clients submit as fast as they can: the server exits 0, and all acknowledged
// jobs are there after the next start.
func TestTermUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	args := []string{"--data", filepath.Join(dir, "data"), "--drain", "2s"}
	p := serve(t, socket, args...)
	p.drain()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const clients, enough = 8, 50
	var peers, warm sync.WaitGroup
	var acked [clients]int
	warm.Add(clients)
	for n := range clients {
		peers.Go(func() {
			c, err := client.Dial(ctx, socket, client.Options{})
			if err != nil {
				t.Error(err)
				warm.Done()
				return
			}
			defer c.Close()
			for c.Submit(ctx, &client.Job{Func: "f", Name: fmt.Sprint(n, " ", acked[n])}) == nil {
				if acked[n]++; acked[n] == enough {
					warm.Done()
				}
			}
			if acked[n] < enough {
				t.Errorf("client %d was acknowledged %d jobs before the end", n, acked[n])
				warm.Done()
			}
		})
	}
	warm.Wait()
	p.signal(syscall.SIGTERM)
	peers.Wait()
	p.exit(0)
	serve(t, socket, args...)
	there := dumpOf(ctx, t, socket)
	for n, k := range acked {
		for i := range k {
			if _, ok := there[fmt.Sprint(n, " ", i)]; !ok {
				t.Errorf("the acknowledged job %d %d is lost", n, i)
			}
		}
	}
}
