package interop

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
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

// TestDworkRestart: clients of libzmq that stay connected go on with their graph when the server is stopped and started
// again, and when it is killed and started again.
func TestDworkRestart(t *testing.T) {
	for _, kind := range []string{"REQ", "DEALER"} {
		t.Run(kind, func(t *testing.T) {
			const tasks = 900
			directory := t.TempDir()
			server, address := durable(t, "tcp://127.0.0.1:0", directory)
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
