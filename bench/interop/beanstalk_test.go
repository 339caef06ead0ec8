package interop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// The story of each client: storyWorkers processes put storyJobs jobs in all, some of them with a delay, and then
// reserve and delete them. Each job of one kind is released once with a delay, each of another kind is buried once and
// kicked. The server is killed while jobs are put, and again when half of them are done, and the clients connect again.
//
// A worker prints `done BODY` when a job is deleted, `unsure BODY` when it does not know because the connection has
// ended, and `again BODY` when it puts a job again for that reason.
const (
	storyWorkers = 8
	storyJobs    = 10_000
)

// storyClients are the programs that play a worker, by the name of the client library. retries reports whether the
// library itself sends a request again whose reply was lost.
var storyClients = []struct {
	name    string
	retries bool
	needs   string // the program that runs it, or nothing
	install string
	command func(t *testing.T) (command []string, dir string)
}{
	{name: "go-beanstalk", command: func(t *testing.T) ([]string, string) {
		self, err := os.Executable()
		check(t, err)
		return []string{self, "-test.run=^TestBeanstalkStoryWorker$", "-test.timeout=0", "-test.v", "--"}, "."
	}},
	{name: "jackd", needs: "npm", install: "nodejs npm", command: nodeClient("jackd")},
	{name: "fivebeans", needs: "npm", install: "nodejs npm", command: nodeClient("fivebeans")},
	{name: "pheanstalk", needs: "php", install: "php-cli php-pda-pheanstalk", command: func(*testing.T) ([]string, string) {
		return []string{"php", "story.php"}, "testdata/beanstalk"
	}},
	{name: "beaneater", retries: true, needs: "ruby", install: "ruby ruby-beaneater", command: func(*testing.T) ([]string, string) {
		return []string{"ruby", "story.rb"}, "testdata/beanstalk"
	}},
}

// nodeClient returns the command of a client of testdata/beanstalk.
func nodeClient(name string) func(t *testing.T) ([]string, string) {
	return func(t *testing.T) ([]string, string) {
		return []string{"node", "--no-deprecation", "story.js", name}, nodeStory(t, "testdata/beanstalk")
	}
}

// nodeStory copies story.js of a directory, if it has one, to a directory of the test, installs the packages of
// package-lock.json beside it, and returns that directory.
func nodeStory(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"package.json", "package-lock.json", "story.js"} {
		text, err := os.ReadFile(filepath.Join(from, file))
		if errors.Is(err, fs.ErrNotExist) && file == "story.js" {
			continue
		}
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if said, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm cannot install the clients: %v\n%s", err, said)
	}
	return dir
}

// story is what the workers of one client have said.
type story struct {
	mu                  sync.Mutex
	done, unsure, again map[string]int
}

// heard counts what a worker prints.
func (s *story) heard(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, body, _ := strings.Cut(lines.Text(), " ")
		s.mu.Lock()
		switch what {
		case "done":
			s.done[body]++
		case "unsure":
			s.unsure[body]++
		case "again":
			s.again[body]++
		}
		s.mu.Unlock()
	}
}

// finished returns how many jobs are done, or may be.
func (s *story) finished() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.done)
	for body := range s.unsure {
		if s.done[body] == 0 {
			n++
		}
	}
	return n
}

// beanstalkServer starts the server with beanstalkd's protocol alone and a data directory.
func beanstalkServer(t *testing.T, address, directory string) *exec.Cmd {
	t.Helper()
	binary := os.Getenv("TREADLE_BINARY")
	if binary == "" {
		t.Fatal("TREADLE_BINARY does not name the server to test: run `make interop`")
	}
	cmd := exec.Command(binary, "serve", "--periodic", "off", "--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off", "--kts46", "off", "--kts46-json", "off",
		"--http", "off", "--beanstalk", address, "--data", directory)
	log, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it may have ended
	listening := make(chan struct{})
	go func() {
		var once sync.Once
		for s := bufio.NewScanner(log); s.Scan(); {
			if strings.Contains(s.Text(), "protocol=beanstalk address=") {
				once.Do(func() { close(listening) })
			}
		}
	}()
	within(t, "the server's start", func() { <-listening })
	return cmd
}

// kickAll kicks the buried jobs of the story, and returns how many jobs the tube has in all.
func kickAll(address string) (jobs int, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "use story\r\nkick 100000\r\nstats-tube story\r\nquit\r\n"); err != nil {
		return 0, err
	}
	said, err := io.ReadAll(c)
	for line := range strings.Lines(string(said)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if strings.HasPrefix(key, "current-jobs-") && key != "current-jobs-urgent" {
			n, err := strconv.Atoi(value)
			if err != nil {
				return 0, err
			}
			jobs += n
		}
	}
	if !strings.Contains(string(said), "\r\nOK ") {
		return 0, fmt.Errorf("stats-tube is answered %q, %v", said, err)
	}
	return jobs, nil
}

// TestBeanstalkClients: eight workers of each client put ten thousand jobs and do each of them once, over failures,
// delays and two kills of the server.
func TestBeanstalkClients(t *testing.T) {
	for _, client := range storyClients {
		t.Run(client.name, func(t *testing.T) {
			if _, err := exec.LookPath(client.needs); client.needs != "" && err != nil {
				t.Skipf("%s is not on this machine: apt-get install %s", client.needs, client.install)
			}
			command, dir := client.command(t)
			directory := t.TempDir()
			address := strings.TrimPrefix(below(t), "tcp://")
			_, port, _ := net.SplitHostPort(address)
			server := beanstalkServer(t, "tcp://"+address, directory)
			s := &story{done: map[string]int{}, unsure: map[string]int{}, again: map[string]int{}}
			ctx, cancel := context.WithCancel(t.Context())
			var workers sync.WaitGroup
			defer workers.Wait()
			defer cancel()
			for w := range storyWorkers {
				each := storyJobs / storyWorkers
				args := append(command[1:len(command):len(command)], port, strconv.Itoa(w*each), strconv.Itoa(each))
				worker := exec.CommandContext(ctx, command[0], args...)
				worker.Dir, worker.Stderr = dir, os.Stderr
				out, err := worker.StdoutPipe()
				check(t, err)
				check(t, worker.Start())
				workers.Go(func() {
					s.heard(out)
					if err := worker.Wait(); ctx.Err() == nil {
						t.Errorf("a worker ends: %v (it needs apt-get install %s)", err, client.install)
						cancel()
					}
				})
			}
			kills := []int{1, storyJobs / 2}
			begun := time.Now()
			for turn := time.NewTicker(100 * time.Millisecond); ; <-turn.C {
				finished := s.finished()
				if len(kills) > 0 && finished >= kills[0] {
					kills = kills[1:]
					check(t, server.Process.Signal(syscall.SIGKILL))
					_ = server.Wait() // killed
					server = beanstalkServer(t, "tcp://"+address, directory)
				}
				jobs, err := kickAll(address)
				check(t, err)
				if finished == storyJobs && jobs == 0 {
					break
				}
				if ctx.Err() != nil || time.Since(begun) > 2*patience {
					t.Fatalf("%d of %d jobs are done, %d are left", finished, storyJobs, jobs)
				}
			}
			cancel()
			workers.Wait()
			s.judge(t, 2*storyWorkers, client.retries)
			t.Logf("%d jobs in %.1f s; in flight at a kill: %d deletes and %d puts", storyJobs, time.Since(begun).Seconds(), len(s.unsure), len(s.again))
		})
	}
}

// judge checks that no job was done twice but one that was put twice, and that the workers are unsure of no more jobs
// than they can have had when the server was killed.
func (s *story) judge(t *testing.T, most int, retries bool) {
	twice := 0
	for body, n := range s.done {
		if n > 1+s.again[body] {
			if twice += n - 1; !retries {
				t.Errorf("job %s is done %d times and was put again %d times", body, n, s.again[body])
			}
		}
	}
	for what, n := range map[string]int{"are done twice": twice, "may be done": len(s.unsure), "were put again": len(s.again)} {
		if n > most {
			t.Errorf("%d jobs %s, %d can be", n, what, most)
		}
	}
}

// TestBeanstalkOwnTests runs the tests that fivebeans and nodestalker publish with themselves, against the server. They
// need port 11300 of a machine: they get a network of their own, which needs root.
func TestBeanstalkOwnTests(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not on this machine: apt-get install nodejs npm")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root makes a network")
	}
	dir := nodeStory(t, "testdata/beanstalk-own")
	script := `set -e
ip link set lo up
"$TREADLE_BINARY" serve --only beanstalk --http off --data none 2>log &
trap "kill $!" EXIT
until grep -q listening log; do sleep 0.1; done
cd node_modules/fivebeans
../.bin/mocha --exit test/test-client.js
cd ../nodestalker/tests
for test in test_*.js; do timeout 20 node "$test" || { echo "$test fails"; exit 1; }; echo "nodestalker $test"; done`
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", script)
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	stalker := len(regexp.MustCompile(`(?m)^nodestalker `).FindAll(said, -1))
	if err != nil || !bytes.Contains(said, []byte("29 passing")) || stalker != 27 {
		t.Fatalf("%v, %d of nodestalker pass:\n%s", err, stalker, said)
	}
}

// TestBeanstalkStoryWorker is no test: TestBeanstalkClients runs it as a worker with go-beanstalk.
func TestBeanstalkStoryWorker(t *testing.T) {
	args := os.Args[len(os.Args)-3:]
	if len(os.Args) < 4 || os.Args[len(os.Args)-4] != "--" {
		t.Skip("it is a worker of TestBeanstalkClients")
	}
	first, err := strconv.Atoi(args[1])
	check(t, err)
	count, err := strconv.Atoi(args[2])
	check(t, err)
	(&storyWorker{address: "127.0.0.1:" + args[0]}).run(t, first, count)
}

// storyWorker is a worker with go-beanstalk.
type storyWorker struct {
	address string
	conn    *beanstalk.Conn
	tube    *beanstalk.Tube
	watched *beanstalk.TubeSet
}

func (w *storyWorker) connect() {
	for {
		var err error
		if w.conn, err = beanstalk.Dial("tcp", w.address); err == nil {
			w.tube, w.watched = beanstalk.NewTube(w.conn, "story"), beanstalk.NewTubeSet(w.conn, "story")
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// lost reports whether a request has failed because the connection ended, and connects again then.
func (w *storyWorker) lost(t *testing.T, err error) bool {
	var broken *net.OpError
	switch {
	case err == nil:
		return false
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &broken):
		w.conn.Close()
		w.connect()
		return true
	}
	t.Fatal(err)
	return true
}

func (w *storyWorker) run(t *testing.T, first, count int) {
	w.connect()
	for n := first; n < first+count; n++ {
		delay := time.Duration(0)
		if n%50 == 0 {
			delay = time.Second
		}
		_, err := w.tube.Put([]byte(strconv.Itoa(n)), 1024, delay, time.Minute)
		for w.lost(t, err) {
			fmt.Println("again", n)
			_, err = w.tube.Put([]byte(strconv.Itoa(n)), 1024, delay, time.Minute)
		}
	}
	for {
		id, body, err := w.watched.Reserve(time.Second)
		if errors.Is(err, beanstalk.ErrTimeout) || errors.Is(err, beanstalk.ErrDeadline) || w.lost(t, err) {
			continue
		}
		w.work(t, id, string(body))
	}
}

// work does what the story wants of a reserved job.
func (w *storyWorker) work(t *testing.T, id uint64, body string) {
	n, err := strconv.Atoi(body)
	check(t, err)
	key := map[int]string{1: "releases", 2: "buries"}[n%40]
	if key != "" {
		stats, err := w.conn.StatsJob(id)
		if w.lost(t, err) {
			return
		}
		if stats[key] == "0" {
			if key == "releases" {
				err = w.conn.Release(id, 1024, time.Second)
			} else {
				err = w.conn.Bury(id, 1024)
			}
			w.lost(t, err)
			return
		}
	}
	if w.lost(t, w.conn.Delete(id)) {
		fmt.Println("unsure", body)
		return
	}
	fmt.Println("done", body)
}
