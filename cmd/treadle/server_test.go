package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"treadle/loop/client"
)

// served is the built server on addresses that the system chose.
type served struct {
	*process
	tcp, unix, http string
}

// serveEverywhere starts the built server on a TCP port, a socket and HTTP, and reads
// from its start lines where it listens.
func serveEverywhere(t *testing.T, tcp, socket string) *served {
	t.Helper()
	p := start(t, false, "serve", "--periodic", "tcp://"+tcp, "--periodic", "unix://"+socket, "--http", "127.0.0.1:0",
		"--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off", "--kts46", "off", "--kts46-json", "off", "--data", "none")
	if line := p.until("treadle is ready"); !strings.Contains(line, " memory-limit=") {
		t.Errorf("the line %q says nothing of memory", line)
	}
	s := &served{process: p}
	for _, to := range []*string{&s.tcp, &s.unix, &s.http} {
		line := p.until("listening")
		_, address, ok := strings.Cut(line, "address=")
		if !ok {
			t.Fatalf("the line %q names no address", line)
		}
		*to = address
	}
	if !strings.HasPrefix(s.tcp, "tcp://127.0.0.1:") || strings.HasSuffix(s.tcp, ":0") || s.unix != "unix://"+socket || !strings.HasPrefix(s.http, "http://127.0.0.1:") {
		t.Fatalf("listening on %q, %q and %q", s.tcp, s.unix, s.http)
	}
	return s
}

// get reads a page of the server's.
func (s *served) get(path string) string {
	s.t.Helper()
	answer, err := http.Get(s.http + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s, %v", path, answer.Status, err)
	}
	return string(text)
}

// use submits a job by one address, does it by the other and awaits its result.
func (s *served) use(ctx context.Context, name string) {
	s.t.Helper()
	c, err := client.Dial(ctx, s.tcp, client.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	w, err := client.DialWorker(ctx, s.unix, client.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Close()
	if err := w.CanDo(ctx, "echo"); err != nil {
		s.t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		got, err := c.Run(ctx, &client.Job{Func: "echo", Name: name, Workload: []byte("hello")})
		if err == nil && string(got) != "hello "+name {
			err = fmt.Errorf("the result is %q", got)
		}
		result <- err
	}()
	a, err := w.Grab(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := w.Done(ctx, a, append(a.Job.Workload, " "+a.Job.Name...)); err != nil {
		s.t.Fatal(err)
	}
	if err := <-result; err != nil {
		s.t.Fatal(err)
	}
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestServer uses the built server and stops it with SIGTERM: a client that awaits a
// result gets it, the sockets are gone and the exit code is 0.
func TestServer(t *testing.T) {
	t.Parallel()
	ctx := patient(t)
	socket := filepath.Join(t.TempDir(), "s")
	s := serveEverywhere(t, "127.0.0.1:0", socket)
	s.use(ctx, "first")
	if got := s.get("/healthz"); got != "ok\n" {
		t.Errorf("/healthz says %q", got)
	}
	if got := s.get("/metrics"); !strings.Contains(got, `treadle_jobs_finished_total{outcome="done",queue="echo"} 1`+"\n") {
		t.Errorf("/metrics does not count the job:\n%s", got)
	}

	c, err := client.Dial(ctx, s.tcp, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w, err := client.DialWorker(ctx, s.unix, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.CanDo(ctx, "slow"); err != nil {
		t.Fatal(err)
	}
	result := make(chan string, 1)
	go func() {
		got, err := c.Run(ctx, &client.Job{Func: "slow", Name: "n"})
		result <- fmt.Sprintf("%s %v", got, err)
	}()
	a, err := w.Grab(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.signal(syscall.SIGTERM)
	s.until("stopping")
	if err := w.Done(ctx, a, []byte("in time")); err != nil {
		t.Fatal(err)
	}
	if got := <-result; got != "in time <nil>" {
		t.Errorf("the awaited result is %q", got)
	}
	s.exit(0)
	<-w.Ended()
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// TestServerKilled: after kill -9, with peers connected, the next server has the same
// port and the same socket at once.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	ctx := patient(t)
	socket := filepath.Join(t.TempDir(), "s")
	s := serveEverywhere(t, "127.0.0.1:0", socket)
	for round := range 3 {
		s.use(ctx, fmt.Sprint("round ", round))
		c, err := client.Dial(ctx, s.tcp, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := client.DialWorker(ctx, s.unix, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.signal(syscall.SIGKILL)
		<-w.Ended()
		if err := c.Ping(ctx); err == nil {
			t.Error("a killed server answers")
		}
		s = serveEverywhere(t, strings.TrimPrefix(s.tcp, "tcp://"), socket)
		c.Close()
		w.Close()
	}
	s.use(ctx, "last")

	// A server that is alive is not replaced, by port or by socket.
	for _, address := range []string{s.tcp, s.unix} {
		_, errs, code := treadle(t, "", "serve", "--periodic", address, "--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off", "--kts46", "off", "--kts46-json", "off", "--data", "none", "--http", "off")
		if code != 1 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "--periodic: cannot listen on "+address) {
			t.Errorf("a second server on %s: exit code %d, %q", address, code, errs)
		}
	}
	s.use(ctx, "still")
	s.signal(syscall.SIGTERM)
	s.exit(0)
}
