package interop

import (
	"bufio"
	"context"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// durable starts the server with the dwork protocol alone and a data directory, and returns it with its address.
func durable(t *testing.T, address, directory string) (*exec.Cmd, string) {
	t.Helper()
	binary := os.Getenv("TREADLE_BINARY")
	if binary == "" {
		t.Fatal("TREADLE_BINARY does not name the server to test: run `make interop`")
	}
	cmd := exec.Command(binary, "serve", "--periodic", "off", "--gloom-masters", "off", "--gloom-slaves", "off", "--kts46", "off", "--kts46-json", "off",
		"--http", "off", "--dwork", address, "--data", directory)
	log, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it may have ended
	listening := make(chan string, 1)
	go func() {
		for s := bufio.NewScanner(log); s.Scan(); {
			if _, at, ok := strings.Cut(s.Text(), "protocol=dwork address="); ok {
				listening <- at
			}
		}
	}()
	within(t, "the server's start", func() { address = <-listening })
	return cmd, address
}

// below returns a free address whose port the system gives to no connecting socket: a client that tries again while the
// server is away could be connected to itself there, and keep the server from listening.
func below(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := "127.0.0.1:" + strconv.Itoa(10000+rand.IntN(20000))
		if l, err := net.Listen("tcp", address); err == nil {
			check(t, l.Close())
			return "tcp://" + address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// TestDworkRestart: clients of libzmq that stay connected go on with their graph when the server is stopped and started
// again, and when it is killed and started again.
func TestDworkRestart(t *testing.T) {
	for _, kind := range []string{"REQ", "DEALER"} {
		t.Run(kind, func(t *testing.T) {
			const tasks = 900
			directory := t.TempDir()
			server, address := durable(t, below(t), directory)
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			client := exec.CommandContext(ctx, python, filepath.Join("testdata", "dwork_restart.py"), address, kind, strconv.Itoa(tasks))
			client.Stderr = os.Stderr
			out, err := client.StdoutPipe()
			check(t, err)
			check(t, client.Start())
			end := map[int]os.Signal{tasks / 3: syscall.SIGTERM, 2 * tasks / 3: syscall.SIGKILL}
			done, last := 0, ""
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if last = lines.Text(); last == kind+"-"+strconv.Itoa(done) {
					done++
				}
				if signal := end[done]; signal != nil {
					delete(end, done)
					check(t, server.Process.Signal(signal))
					if err := server.Wait(); signal == syscall.SIGTERM && err != nil {
						t.Errorf("stopped: %v", err)
					}
					server, _ = durable(t, address, directory)
				}
			}
			if err := client.Wait(); err != nil || done != tasks || len(end) > 0 {
				t.Errorf("%d of %d tasks are done, %d restarts are left, %v (it needs apt-get install python3 python3-zmq)", done, tasks, len(end), err)
			}
			t.Log(last)
		})
	}
}

// TestDworkKilled: strict REQs, which wait for ever for a reply that a killed server owed them, go on with the server
// that is started next. What they were handed, or had completed, with a lost reply is released by hand; then no task is
// left.
func TestDworkKilled(t *testing.T) {
	const tasks, workers, kills = 3000, 4, 4
	directory := t.TempDir()
	server, address := durable(t, below(t), directory)
	var lines strings.Builder
	for i := range tasks {
		lines.WriteString("t" + strconv.Itoa(i) + "\n")
	}
	file := filepath.Join(directory, "tasks")
	check(t, os.WriteFile(file, []byte(lines.String()), 0o600))
	run(t, "the server", os.Getenv("TREADLE_BINARY"), "dwork", "-s", address, "addfile", file)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := exec.CommandContext(ctx, python, filepath.Join("testdata", "dwork_killed.py"), address, strconv.Itoa(workers))
	client.Stderr = os.Stderr
	out, err := client.StdoutPipe()
	check(t, err)
	check(t, client.Start())
	done := make(map[string]bool)
	printed := make(chan string)
	go func() {
		defer close(printed)
		for s := bufio.NewScanner(out); s.Scan(); {
			printed <- s.Text()
		}
	}()
	killed := 0
	for going := true; going; {
		select {
		case name, more := <-printed:
			done[name], going = true, more
			if killed < kills && len(done) > (killed+1)*tasks/(kills+2) {
				killed++
				check(t, server.Process.Signal(syscall.SIGKILL))
				_ = server.Wait() // killed
				server, _ = durable(t, address, directory)
			}
		case <-time.After(10 * time.Second): // all wait: what is left is in the hands of nobody
			_ = exec.CommandContext(ctx, os.Getenv("TREADLE_BINARY"), "dwork", "-s", address, "release", "w0", "w1", "w2", "w3").Run() // it may know fewer
		}
	}
	delete(done, "")
	if err := client.Wait(); err != nil || len(done) != tasks || killed != kills {
		t.Errorf("%d of %d tasks are done, after %d kills, %v (it needs apt-get install python3 python3-zmq)", len(done), tasks, killed, err)
	}
}
