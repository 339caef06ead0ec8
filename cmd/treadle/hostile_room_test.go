package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"treadle/codec/periodic"
	"treadle/loop/client"
)

// TestMemoryPressure: the server takes and works off a backlog larger than GOMEMLIMIT, serves the probes meanwhile, and
// uses little more memory than the backlog.
func TestMemoryPressure(t *testing.T) {
	longFor(t)
	t.Parallel()
	const jobs, workload, limit = 80_000, 1 << 10, 64 << 20
	s := startAttack(t, limit-hostileLimit)
	s.withProbes(func() {
		b := hello(periodic.Client)
		body := make([]byte, workload)
		for i := range jobs {
			b = ask(b, 1, periodic.SubmitJob, periodic.AppendJob(nil, &periodic.Job{Func: []byte("large"), Name: fmt.Append(nil, i), Workload: body}))
		}
		s.told(b)
		w := s.crowd(func(int) string { return "large" }, 1, 0)
		defer w.Close()
		b = b[:0]
		for i := range 16 << 10 { // as many as a worker may ask for at a time
			b = ask(b, uint32(i), periodic.GrabJob, nil)
		}
		s.answered(w, b)
	})
	s.server.signal(syscall.SIGTERM)
	s.server.exit(0)
}

// TestServerFullDisk: on a disk that fills up the server refuses new jobs before writes fail, goes on with everything
// else, and keeps all acknowledged jobs.
func TestServerFullDisk(t *testing.T) {
	t.Parallel()
	const size, free = 384 << 20, 256 << 20 // the rest is for what the journal still has to write
	dir := t.TempDir()
	disk := func(then string) []string { // a file system that nobody else sees, gone with the server
		return []string{"-rm", "sh", "-c", "mount -t tmpfs -o size=" + strconv.Itoa(size) + " tmpfs " + dir + "/data && " + then}
	}
	if err := os.Mkdir(dir+"/data", 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("unshare", disk("true")...).CombinedOutput(); err != nil {
		t.Skipf("it needs unshare and the right to mount a file system in a name space of its own: %v: %s", err, out)
	}
	socket := filepath.Join(dir, "s")
	p := startCommand(t, false, "unshare", disk("exec "+binary+" serve --periodic unix://"+socket+" --gloom-masters off --gloom-slaves off --dwork off --kts46 off"+
		" --kts46-json off --http off --data "+dir+"/data --min-free "+strconv.Itoa(free))...)
	p.until("listening")
	p.drain()
	ctx := patient(t)
	c, err := client.Dial(ctx, socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	taken := 0
	for body := make([]byte, 64<<10); err == nil; taken++ {
		for i := range body { // which no compression makes smaller
			body[i] = byte(i*i>>8 ^ i*taken)
		}
		err = c.Submit(ctx, &client.Job{Func: "f", Name: fmt.Sprint(taken), Workload: body})
	}
	taken--
	if !errors.Is(err, client.ErrRefused) || taken < 100 {
		t.Fatalf("%d jobs of 64 KiB are taken, then %v", taken, err)
	}
	if err := c.Ping(ctx); err != nil {
		t.Error(err)
	}
	w, err := client.DialWorker(ctx, socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.CanDo(ctx, "f"); err != nil {
		t.Fatal(err)
	}
	for i := range taken {
		a, err := w.Grab(ctx)
		if err != nil || a.Job.Name != fmt.Sprint(i) || w.Done(ctx, a, nil) != nil {
			t.Fatalf("job %d: %v, %v", i, a, err)
		}
	}
	t.Logf("%d jobs of 64 KiB were taken, refused beyond, and done", taken)
	p.signal(syscall.SIGTERM)
	p.exit(0)
}
