package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	faktory "github.com/contribsys/faktory/client"
	faktoryworker "github.com/contribsys/faktory_worker_go"

	"treadle/loop/certs/certtest"
)

// faktoryServer starts the server with Faktory's protocol alone.
func faktoryServer(t *testing.T, address, data string) (*exec.Cmd, string) {
	t.Helper()
	binary := os.Getenv("TREADLE_BINARY")
	if binary == "" {
		t.Fatal("TREADLE_BINARY does not name the server to test: run `make interop`")
	}
	args := []string{"serve", "--http", "off", "--data", data, "--faktory", address}
	for _, p := range []string{"periodic", "gloom-masters", "gloom-slaves", "dwork", "kts46", "kts46-json"} {
		args = append(args, "--"+p, "off")
	}
	cmd := exec.Command(binary, args...)
	log, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it may have ended
	listening := make(chan string, 1)
	go func() {
		for s := bufio.NewScanner(log); s.Scan(); {
			if _, at, ok := strings.Cut(s.Text(), "protocol=faktory address="); ok {
				listening <- at
			}
		}
	}()
	within(t, "the server's start", func() { address = <-listening })
	return cmd, address
}

// tally counts how often each job was done.
type tally struct {
	mu   sync.Mutex
	done map[string]int
	more chan struct{} // a job was done
}

func newTally() *tally { return &tally{done: make(map[string]int), more: make(chan struct{}, 1)} }

func (c *tally) add(job string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[job]++
	select {
	case c.more <- struct{}{}:
	default:
	}
	return c.done[job]
}

// wait waits until n different jobs are done, and returns how many were done again.
func (c *tally) wait(t *testing.T, what string, n int) (again int) {
	t.Helper()
	within(t, what, func() {
		for c.size() < n {
			<-c.more
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, times := range c.done {
		again += times - 1
	}
	return again
}

func (c *tally) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.done)
}

// newJob returns a job of a type with its number as the only argument.
func newJob(jobtype string, n int) *faktory.Job {
	j := faktory.NewJob(jobtype, fmt.Sprint(n))
	j.Queue = strings.ToLower(jobtype)
	return j
}

// pushAll pushes n jobs of a type, a thousand at a time.
func pushAll(t *testing.T, c *faktory.Client, jobtype string, n int) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		var all []*faktory.Job
		for i := from; i < min(from+1000, n); i++ {
			all = append(all, newJob(jobtype, i))
		}
		failed, err := c.PushBulk(all)
		if check(t, err); len(failed) > 0 {
			t.Fatalf("refused: %v", failed)
		}
	}
}

// set returns the number of jobs of a set of INFO.
func set(t *testing.T, c *faktory.Client, name string) uint64 {
	t.Helper()
	state, err := c.CurrentState()
	check(t, err)
	return state.Data.Sets[name]
}

// faktoryWorkers is a server with 8 workers of Faktory's own library for Go, and what they have done.
type faktoryWorkers struct {
	server                   *exec.Cmd
	address, data            string
	client                   *faktory.Client
	once, flaky, timed, slow *tally // jobs by type
	early                    *tally // jobs that were done before their time
	stop                     func() // ends the workers; it may be called again
}

// startFaktoryWorkers starts a server and its workers. They end with the test.
func startFaktoryWorkers(t *testing.T) *faktoryWorkers {
	t.Helper()
	w := &faktoryWorkers{
		data: filepath.Join(t.TempDir(), "data"),
		once: newTally(), flaky: newTally(), timed: newTally(), slow: newTally(), early: newTally(),
	}
	w.server, w.address = faktoryServer(t, below(t), w.data)
	t.Setenv("FAKTORY_URL", w.address)
	t.Setenv("FAKTORY_PROVIDER", "FAKTORY_URL")
	w.client = w.open(t)

	m := faktoryworker.NewManager()
	m.Concurrency, m.ShutdownTimeout = 8, time.Second
	m.Logger = quietLogger{}
	m.ProcessStrictPriorityQueues("once", "flaky", "timed", "slow")
	m.Register("Once", func(_ context.Context, args ...any) error { w.once.add(args[0].(string)); return nil })
	m.Register("Slow", func(_ context.Context, args ...any) error {
		defer w.slow.add(args[0].(string))
		time.Sleep(2 * time.Millisecond) // a job takes a while
		return nil
	})
	m.Register("Timed", func(_ context.Context, args ...any) error {
		if at, err := time.Parse(time.RFC3339Nano, args[0].(string)); err != nil || time.Now().Before(at) {
			w.early.add(args[0].(string))
		}
		w.timed.add(args[0].(string))
		return nil
	})
	m.Register("Flaky", func(_ context.Context, args ...any) error {
		if w.flaky.add(args[0].(string)) < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.RunWithContext(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// open connects a client to the server.
func (w *faktoryWorkers) open(t *testing.T) *faktory.Client {
	t.Helper()
	c, err := faktory.Open()
	check(t, err)
	t.Cleanup(func() { _ = c.Close() }) // its server may have ended
	return c
}

// TestFaktoryGoOnce does 10,000 jobs exactly once.
func TestFaktoryGoOnce(t *testing.T) {
	w := startFaktoryWorkers(t)
	pushAll(t, w.client, "Once", 10_000)
	if again := w.once.wait(t, "10,000 jobs", 10_000); again != 0 {
		t.Errorf("%d jobs were done again", again)
	}
}

// TestFaktoryGoTimed does jobs with a time once, and none before its time.
func TestFaktoryGoTimed(t *testing.T) {
	w := startFaktoryWorkers(t)
	at := time.Now().Add(1500 * time.Millisecond)
	for range 20 {
		at = at.Add(time.Millisecond)
		j := faktory.NewJob("Timed", at.Format(time.RFC3339Nano))
		j.Queue, j.At = "timed", at.UTC().Format(time.RFC3339Nano)
		check(t, w.client.Push(j))
	}
	if again, early := w.timed.wait(t, "20 jobs with a time", 20), w.early.size(); again != 0 || early != 0 {
		t.Errorf("%d were done again, %d too early", again, early)
	}
}

// TestFaktoryGoFlaky retries jobs that fail twice.
func TestFaktoryGoFlaky(t *testing.T) {
	w := startFaktoryWorkers(t)
	pushAll(t, w.client, "Flaky", 100)
	within(t, "100 jobs that fail twice", func() {
		for w.flaky.wait(t, "a run of each", 100) < 200 {
			check(t, w.client.Requeue(faktory.Retries, faktory.OfType("Flaky")))
			time.Sleep(10 * time.Millisecond) // a poll of what the workers do
		}
	})
	if n := set(t, w.client, "dead") + set(t, w.client, "retries"); n != 0 {
		t.Errorf("%d jobs are dead or wait for a retry", n)
	}
}

// checkNotUnique checks that the server refuses a unique job that it has.
func checkNotUnique(t *testing.T, c *faktory.Client) {
	t.Helper()
	if err := c.Push(newJob("Idle", 1).SetUniqueFor(600)); err == nil || !strings.Contains(err.Error(), "NOTUNIQUE") {
		t.Errorf("a job was pushed twice: %v", err)
	}
}

// TestFaktoryGoUnique pushes a unique and tracked job.
func TestFaktoryGoUnique(t *testing.T) {
	w := startFaktoryWorkers(t)
	unique := newJob("Idle", 1).SetUniqueFor(600).SetCustom("track", 1)
	check(t, w.client.Push(unique))
	checkNotUnique(t, w.client)
	if track, err := w.client.TrackGet(unique.Jid); err != nil || track.State != "enqueued" {
		t.Errorf("the track is %+v, %v", track, err)
	}
}

// TestFaktoryGoTLS has a client do a job over TLS. It finds the authority where Go's programs look for those of the
// system.
func TestFaktoryGoTLS(t *testing.T) {
	own := certtest.New(t, "ours").Issue(t.TempDir(), "server", time.Now().Add(time.Hour))
	_, address := faktoryServer(t, "tls://127.0.0.1:0?cert="+own.Cert+"&key="+own.Key, filepath.Join(t.TempDir(), "data"))
	t.Setenv("SSL_CERT_FILE", own.CA)
	t.Setenv("FAKTORY_PROVIDER", "FAKTORY_URL")
	t.Setenv("FAKTORY_URL", strings.Replace(address, "tls://", "tcp+tls://", 1))
	client, err := faktory.Open()
	check(t, err)
	defer client.Close()
	pushed := newJob("Once", 1)
	check(t, client.Push(pushed))
	fetched, err := client.Fetch("once")
	check(t, err)
	if fetched == nil || fetched.Jid != pushed.Jid {
		t.Fatalf("the job is %+v, want %s", fetched, pushed.Jid)
	}
	check(t, client.Ack(fetched.Jid))
}

// TestFaktoryGoKilled kills the server under load. Its jobs are done, and a job is still unique after the restart.
func TestFaktoryGoKilled(t *testing.T) {
	w := startFaktoryWorkers(t)
	check(t, w.client.Push(newJob("Idle", 1).SetUniqueFor(600)))
	pushAll(t, w.client, "Slow", 3000)
	within(t, "a third of the slow jobs", func() {
		for w.slow.size() < 1000 {
			<-w.slow.more
		}
	})
	check(t, w.server.Process.Kill())
	_ = w.server.Wait()
	_, _ = faktoryServer(t, w.address, w.data)
	again := w.slow.wait(t, "the slow jobs", 3000)
	t.Logf("%d of 3,000 jobs were done again after kill -9", again)
	if again > 8 { // each worker may have lost the record of one job: FETCH and ACK are written with the next group
		t.Errorf("%d jobs were done again", again)
	}
	w.stop()

	c := w.open(t)
	checkNotUnique(t, c)
	if n := set(t, c, "dead") + set(t, c, "retries"); n != 0 {
		t.Errorf("%d jobs are dead or wait for a retry", n)
	}
}

// quietLogger is a faktoryworker.Logger: the failures are wanted.
type quietLogger struct{}

func (quietLogger) Debug(...any)          {}
func (quietLogger) Debugf(string, ...any) {}
func (quietLogger) Info(...any)           {}
func (quietLogger) Infof(string, ...any)  {}
func (quietLogger) Warn(...any)           {}
func (quietLogger) Warnf(string, ...any)  {}
func (quietLogger) Error(...any)          {}
func (quietLogger) Errorf(string, ...any) {}
func (quietLogger) Fatal(...any)          {}
func (quietLogger) Fatalf(string, ...any) {}

// TestFaktoryNode plays the tests TestFaktoryGo... with the library for Node.js, see testdata/faktory/story.js.
func TestFaktoryNode(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not on this machine: apt-get install nodejs npm")
	}
	dir, data := nodeStory(t, "testdata/faktory"), filepath.Join(t.TempDir(), "data")
	server, address := faktoryServer(t, below(t), data)
	cmd := exec.Command("node", "story.js", address)
	cmd.Dir = dir
	var errs strings.Builder
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it may have ended
	var said []string
	within(t, "the story of Node.js", func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			said = append(said, s.Text())
			if s.Text() == "kill" {
				_ = server.Process.Kill()
				_ = server.Wait()
				server, _ = faktoryServer(t, address, data)
				_, _ = io.WriteString(in, "killed\n")
			}
		}
	})
	t.Log(strings.Join(said, "\n"))
	if err := cmd.Wait(); err != nil || len(said) == 0 || said[len(said)-1] != "done" {
		t.Errorf("%v: %s\n%s", err, strings.Join(said, "\n"), errs.String())
	}
}
