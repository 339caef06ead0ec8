package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	periodic "github.com/Lupino/go-periodic"
)

// patience bounds every wait: what takes longer has failed.
const patience = 2 * time.Minute

// lifelines are the standard inputs of the servers' shells, kept from being closed.
var lifelines []io.Closer

// serve starts the server with one protocol on a free port and returns its address.
func serve(t *testing.T, protocol string, args ...string) string {
	t.Helper()
	binary := os.Getenv("TREADLE_BINARY")
	if binary == "" {
		t.Fatal("TREADLE_BINARY does not name the server to test: run `make interop`")
	}
	command := []string{"-c", `"$@" & read end; kill $!; wait`, "sh", binary, "serve", "--data", "none", "--http", "off"}
	for _, p := range []string{"periodic", "gloom-masters", "gloom-slaves", "dwork", "kts46", "kts46-json"} {
		address := "off"
		if p == protocol {
			address = "tcp://127.0.0.1:0"
		}
		if !slices.Contains(args, "--"+p) {
			command = append(command, "--"+p, address)
		}
	}
	// The client library ends the process when a server goes away, so servers live as long as the test process: the
	// shell ends its server when standard input closes.
	cmd := exec.Command("sh", append(command, args...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	lifelines = append(lifelines, stdin)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	go func() {
		for s := bufio.NewScanner(log); s.Scan(); {
			if _, address, ok := strings.Cut(s.Text(), "protocol="+protocol+" address="); ok {
				lines <- address
			}
		}
	}()
	select {
	case address := <-lines:
		return address
	case <-time.After(patience):
		t.Fatal("the server did not say where it listens")
		return ""
	}
}

func client(t *testing.T, address string) *periodic.Client {
	t.Helper()
	c := periodic.NewClient()
	if err := c.Connect(address); err != nil {
		t.Fatal(err)
	}
	return c
}

func worker(t *testing.T, address string, size int) *periodic.Worker {
	t.Helper()
	w := periodic.NewWorker(size)
	if err := w.Connect(address); err != nil {
		t.Fatal(err)
	}
	return w
}

// within fails the test when fn takes longer than patience.
func within(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: nothing came for %v", what, patience)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestGoPeriodicJobs takes one job down each path: done, failed, put off, run with a result, run without a worker,
// removed, dropped.
func TestGoPeriodicJobs(t *testing.T) {
	address := serve(t, "periodic")
	c := client(t, address)
	w := worker(t, address, 4)
	within(t, "a ping", func() {
		if !c.Ping() {
			t.Error("no pong")
		}
	})

	var fails, laters atomic.Int32
	done := make(chan string, 16)
	within(t, "adding functions", func() {
		check(t, w.AddFunc("echo", func(j periodic.Job) {
			check(t, j.Done([]byte("<"+j.Args+">")))
		}))
		check(t, w.AddFunc("flaky", func(j periodic.Job) {
			if fails.Add(1) < 3 {
				check(t, j.Fail())
				return
			}
			check(t, j.Done())
			done <- "flaky"
		}))
		check(t, w.AddFunc("later", func(j periodic.Job) {
			if laters.Add(1) == 1 {
				check(t, j.SchedLater(1, 5))
				return
			}
			done <- fmt.Sprint("later ", j.Raw.Counter)
			check(t, j.Done())
		}))
	})
	go w.Work()

	within(t, "a result", func() {
		err, result := c.RunJob("echo", "a", map[string]any{"args": "hello"})
		if check(t, err); string(result) != "<hello>" {
			t.Errorf("the result is %q", result)
		}
	})
	within(t, "no worker", func() {
		if err, _ := c.RunJob("nobody", "a", nil); err == nil {
			t.Error("RUN_JOB without a worker succeeded")
		}
	})
	within(t, "a failing and a late job", func() {
		check(t, c.SubmitJob("flaky", "f", nil))
		check(t, c.SubmitJob("later", "l", nil))
		got := map[string]bool{<-done: true, <-done: true}
		if !got["flaky"] || !got["later 5"] {
			t.Errorf("got %v", got)
		}
	})
	within(t, "removing and dropping", func() {
		check(t, c.SubmitJob("idle", "x", map[string]any{"schedat": time.Now().Unix() + 3600}))
		check(t, c.SubmitJob("idle", "y", map[string]any{"schedat": time.Now().Unix() + 3600}))
		check(t, c.RemoveJob("idle", "x"))
		if jobs := column(t, c, "idle", 2); jobs != 1 {
			t.Errorf("%d jobs after a removal", jobs)
		}
		check(t, c.DropFunc("idle"))
		if jobs := column(t, c, "idle", 2); jobs != -1 {
			t.Error("the function is still there")
		}
	})
}

// column is a number of a function's STATUS line, -1 when it has none.
func column(t *testing.T, c *periodic.Client, function string, i int) int {
	t.Helper()
	rows, err := c.Status()
	check(t, err)
	for _, row := range rows {
		if row[0] == function {
			if len(row) != 6 {
				t.Fatalf("a status line of %d columns: %v", len(row), row)
			}
			n, err := strconv.Atoi(row[i])
			check(t, err)
			return n
		}
	}
	return -1
}

// TestGoPeriodicBroadcast: one job reaches every worker, and a locked job waits.
func TestGoPeriodicBroadcast(t *testing.T) {
	address := serve(t, "periodic")
	got := make(chan int, 8)
	for i := range 3 {
		w := worker(t, address, 1)
		within(t, "broadcast", func() {
			check(t, w.Broadcast("news", func(periodic.Job) { got <- i }))
		})
		go w.Work()
	}
	c := client(t, address)
	// A worker is in line once its first GRAB_JOB is read; it sends no word of that.
	within(t, "the news", func() {
		seen := map[int]bool{}
		for n := 0; len(seen) < 3; n++ {
			check(t, c.SubmitJob("news", strconv.Itoa(n), nil))
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			for more := true; more; {
				select {
				case i := <-got:
					seen[i] = true
				case <-ctx.Done():
					more = false
				}
			}
			cancel()
		}
	})
}

// TestGoPeriodicLocks: of ten jobs, never more than two hold the lock, and all end.
func TestGoPeriodicLocks(t *testing.T) {
	address := serve(t, "periodic")
	c := client(t, address)
	var inside, most atomic.Int32
	ended := make(chan string, 64)
	for range 3 {
		w := worker(t, address, 2)
		within(t, "adding a function", func() {
			check(t, w.AddFunc("locked", func(j periodic.Job) {
				err, got := j.Acquire("door", 2)
				check(t, err)
				if !got {
					return // it is parked and comes again
				}
				n := inside.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				check(t, c.SubmitJob("other", j.Name, nil)) // a round trip inside
				inside.Add(-1)
				check(t, j.Release("door"))
				check(t, j.Done())
				ended <- j.Name
			}))
		})
		go w.Work()
	}
	within(t, "the locked jobs", func() {
		for i := range 10 {
			check(t, c.SubmitJob("locked", strconv.Itoa(i), nil))
		}
		seen := map[string]bool{}
		for len(seen) < 10 {
			seen[<-ended] = true
		}
	})
	if most.Load() > 2 {
		t.Errorf("%d jobs held a lock of 2", most.Load())
	}
}

// TestGoPeriodicLoad: 8 workers do 10,000 jobs each, every job once.
func TestGoPeriodicLoad(t *testing.T) {
	const workers, each = 8, 10_000
	address := serve(t, "periodic")
	var mu sync.Mutex
	runs := make(map[string]int)
	var left sync.WaitGroup
	left.Add(workers * each)
	for range workers {
		w := worker(t, address, 8)
		within(t, "adding a function", func() {
			check(t, w.AddFunc("load", func(j periodic.Job) {
				if !strings.HasPrefix(j.Args, "args of "+j.Name) {
					t.Errorf("job %q has %q", j.Name, j.Args)
				}
				mu.Lock()
				runs[j.Name]++
				first := runs[j.Name] == 1
				mu.Unlock()
				check(t, j.Done())
				if first {
					left.Done()
				}
			}))
		})
		go w.Work()
	}
	filler := string(bytes.Repeat([]byte("."), 80))
	for part := range workers {
		c := client(t, address)
		go func() {
			for i := range each {
				name := fmt.Sprintf("%d-%d", part, i)
				if err := c.SubmitJob("load", name, map[string]any{"args": "args of " + name + filler}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	done := make(chan struct{})
	go func() { defer close(done); left.Wait() }()
	select {
	case <-done:
	case <-time.After(4 * patience):
		t.Fatal("not all jobs were done")
	}
	for name, n := range runs {
		if n != 1 {
			t.Errorf("job %s was done %d times", name, n)
		}
	}
}

// TestGoPeriodicVersions runs a job through every version that this client can read.
func TestGoPeriodicVersions(t *testing.T) {
	for _, version := range []string{"2023", "2026"} {
		address := serve(t, "periodic", "--periodic-crc", version)
		c, w := client(t, address), worker(t, address, 1)
		within(t, "version "+version, func() {
			check(t, w.AddFunc("echo", func(j periodic.Job) { check(t, j.Done([]byte(j.Args))) }))
			go w.Work()
			err, result := c.RunJob("echo", "a", map[string]any{"args": "hello"})
			if check(t, err); string(result) != "hello" {
				t.Errorf("version %s: the result is %q", version, result)
			}
		})
	}
}
