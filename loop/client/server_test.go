package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"treadle/codec/periodic"
	"treadle/loop"
	"treadle/loop/client"
)

// server runs a real server on a socket until the test ends.
func server(t *testing.T, o loop.Options) (address string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended, started := make(chan error, 1), make(chan string, 1)
	o.Periodic.Listen, o.HTTP = []string{"unix://" + filepath.Join(t.TempDir(), "s")}, "off"
	o.Data, o.Dwork.Listen = loop.NoData, []string{"off"}
	o.Kts46.Listen, o.Kts46.JSON = []string{"off"}, []string{"off"}
	if o.Gloom.Masters == nil {
		o.Gloom.Masters, o.Gloom.Slaves = []string{"off"}, []string{"off"}
	}
	o.Started = func(listening []loop.Listening) { started <- listening[0].Address }
	go func() { ended <- loop.Run(ctx, o) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case address = <-started:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return address
}

// hangTimeout ends a test that hangs. No other wait depends on it.
const hangTimeout = 2 * time.Minute

// session holds one connection of each role and fails the test on any error.
type session struct {
	t      *testing.T
	ctx    context.Context
	client *client.Client
	worker *client.Worker
}

func open(t *testing.T, address string, framing periodic.Framing) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangTimeout)
	s := &session{t: t, ctx: ctx}
	var err, workerErr error
	s.client, err = client.Dial(ctx, address, client.Options{Framing: framing})
	s.worker, workerErr = client.DialWorker(ctx, address, client.Options{Framing: framing})
	s.ok(errors.Join(err, workerErr))
	t.Cleanup(func() {
		s.client.Close()
		s.worker.Close()
		cancel()
	})
	return s
}

func (s *session) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// grab takes a job with this name and workload.
func (s *session) grab(name, workload string) *client.Assignment {
	s.t.Helper()
	a, err := s.worker.Grab(s.ctx)
	s.ok(err)
	if a.Job.Name != name || string(a.Job.Workload) != workload {
		s.t.Fatalf("grabbed %q %q, want %q %q", a.Job.Name, a.Job.Workload, name, workload)
	}
	return a
}

// counts checks the only row of the status.
func (s *session) counts(want string) {
	s.t.Helper()
	rows, err := s.client.Status(s.ctx)
	s.ok(err)
	got := ""
	for _, r := range rows {
		got += fmt.Sprintf("%s workers=%d jobs=%d running=%d;", r.Func, r.Workers, r.Jobs, r.Running)
	}
	if got != want {
		s.t.Fatalf("status %q, want %q", got, want)
	}
}

// TestAgainstServer calls every verb once against the real server, in both framings and with both
// replies to an empty queue, and checks that no job is lost.
func TestAgainstServer(t *testing.T) {
	for _, grab := range []string{"hold", "document"} {
		for name, framing := range map[string]periodic.Framing{"plain": periodic.Plain, "crc": periodic.CRC} {
			t.Run(name+" "+grab, func(t *testing.T) {
				s := open(t, server(t, loop.Options{Periodic: loop.PeriodicOptions{Grab: grab, Shutdown: "off"}}), framing)
				s.work()
				s.administer()
			})
		}
	}
}

// TestVersions checks the client against the replies of every version.
func TestVersions(t *testing.T) {
	for _, version := range []string{"2019-02", "2019", "2020", "2023", "2026"} {
		t.Run(version, func(t *testing.T) {
			s := open(t, server(t, loop.Options{Periodic: loop.PeriodicOptions{CRC: version, Shutdown: "off"}}), periodic.CRC)
			s.work()
			s.lock()
			s.stream()
			s.administer()
		})
	}
}

func (s *session) work() {
	s.t.Helper()
	s.ok(s.worker.CanDo(s.ctx, "f"))
	s.ok(s.client.Submit(s.ctx, &client.Job{Func: "f", Name: "n", Workload: []byte("hi")}))
	s.ok(s.worker.Fail(s.ctx, s.grab("n", "hi")))
	s.ok(s.worker.Later(s.ctx, s.grab("n", "hi"), 0, 3))
	a := s.grab("n", "hi")
	if a.Job.Count != 3 {
		s.t.Errorf("count %d, want 3", a.Job.Count)
	}
	s.counts("f workers=1 jobs=1 running=1;")
	s.ok(s.worker.Done(s.ctx, a, nil))
	s.ok(s.worker.Ping(s.ctx))
	s.counts("f workers=1 jobs=0 running=0;")

	result := make(chan string)
	go func() {
		r, err := s.client.Run(s.ctx, &client.Job{Func: "f", Name: "run", Workload: []byte("hi")})
		result <- fmt.Sprint(string(r), err)
	}()
	s.ok(s.worker.Done(s.ctx, s.grab("run", "hi"), []byte("there")))
	if got := <-result; got != "there<nil>" {
		s.t.Errorf("result %q", got)
	}
	s.ok(s.worker.CantDo(s.ctx, "f"))
}

func (s *session) administer() {
	s.t.Helper()
	s.ok(s.client.Submit(s.ctx, &client.Job{Func: "f", Name: "a", SchedAt: 4e9, Timeout: 5}))
	s.ok(s.client.Submit(s.ctx, &client.Job{Func: "f", Name: "b", Workload: make([]byte, 1<<20)}))
	var dump, again bytes.Buffer
	n, err := s.client.Dump(s.ctx, &dump, nil)
	s.ok(err)
	if n != int64(dump.Len()) || n < 1<<20 {
		s.t.Errorf("dumped %d bytes, %d written", n, dump.Len())
	}
	s.ok(s.client.Remove(s.ctx, "f", "a"))
	s.counts("f workers=0 jobs=1 running=0;")
	s.ok(s.client.Drop(s.ctx, "f"))
	s.counts("")
	s.ok(s.client.Load(s.ctx, bytes.NewReader(dump.Bytes()), n, nil))
	s.counts("f workers=0 jobs=2 running=0;")
	_, err = s.client.Dump(s.ctx, &again, nil)
	s.ok(err)
	if again.Len() != dump.Len() {
		s.t.Errorf("dumped %d bytes after loading, %d before", again.Len(), dump.Len())
	}
	s.ok(s.client.ConfigSet(s.ctx, "timeout", 7))
	value, err := s.client.ConfigGet(s.ctx, "timeout")
	s.ok(err)
	if value != 7 {
		s.t.Errorf("timeout is %d, want 7", value)
	}
	if err := s.client.Shutdown(s.ctx); !errors.Is(err, client.ErrRefused) {
		s.t.Errorf("shutdown: %v, want %v", err, client.ErrRefused)
	}
	s.ok(s.client.Ping(s.ctx))
}
