package main

import (
	"bytes"
	"context"
	enc "encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"treadle/loop/client"
)

// crashes is how often TestCrash kills the server: a few times in every test run,
// hundreds of times in `make crash`.
var (
	crashes   = flag.Int("crash.n", 4, "kills of TestCrash")
	crashSeed = flag.Uint64("crash.seed", 1, "seed of TestCrash")
)

// fate is the test's knowledge of one job. Every name is used once.
type fate struct {
	function, workload string
	submitted          bool // acknowledged
	removing, removed  bool // REMOVE_JOB sent, acknowledged
	dropping, dropped  bool // the same for DROP_FUNC of its function
	finishing          bool // WORK_DONE sent: it may be gone, and may not
}

// ledger is the fates of all jobs that may still matter.
type ledger struct {
	mu   sync.Mutex
	jobs map[string]*fate
	next int
}

func (l *ledger) change(name string, fn func(*fate)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.jobs[name]; f != nil {
		fn(f)
	}
}

func (l *ledger) create(function string) (name, workload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	name = fmt.Sprintf("job-%d", l.next)
	size := l.next % 300
	if function == large {
		size = 2 << 20
	}
	workload = fmt.Sprintf("work of %s %s", name, strings.Repeat("0", size))
	l.jobs[name] = &fate{function: function, workload: workload}
	return name, workload
}

// TestCrash checks that acknowledged means on disk. Clients submit, remove and drop, and workers finish jobs, at the
// built server, which is killed with SIGKILL at a random moment and started again. A job with an acknowledged
// submission is there, unless its removal, drop or completion was under way. A job with an acknowledged removal or drop
// does not come back. A completed job may.
func TestCrash(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(*crashSeed, 0))
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	l := &ledger{jobs: make(map[string]*fate)}
	checked, kept := 0, 0
	for i := range *crashes {
		p := start(t, false, "serve", "--periodic", "unix://"+socket, "--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off", "--kts46", "off", "--kts46-json", "off",
			"--http", "off", "--data", filepath.Join(dir, "data"), "--loops", fmt.Sprint(1+i%2))
		p.until("listening")
		p.drain()
		if i > 0 {
			k := audit(t, socket, l, i)
			checked++
			kept += k
		}
		after := time.Duration(5+random.IntN(150)) * time.Millisecond
		fill := i%4 == 3
		if fill {
			after *= 4
		}
		load(t, socket, l, p, after, fill)
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "data", "store", "log", "*.log")) // a pattern without faults
	t.Logf("%d kills, %d audits, %d jobs submitted, %d found again, last log %s", *crashes, checked, l.next, kept, filepath.Base(logs[len(logs)-1]))
	if kept == 0 {
		t.Error("no job ever had to survive: the load does not test anything")
	}
}

// load runs clients and workers until it kills the server, a while after the first acknowledgement; with large jobs too
// if it is to fill logs.
func load(t *testing.T, socket string, l *ledger, p *process, after time.Duration, fill bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	acknowledged := sync.OnceFunc(func() {
		time.AfterFunc(after, func() { _ = p.Process.Signal(syscall.SIGKILL) })
	})
	var peers sync.WaitGroup
	for n := range 6 {
		peers.Go(func() { submitUntilKilled(ctx, socket, l, n, acknowledged) })
	}
	for range 2 {
		peers.Go(func() { workUntilKilled(ctx, socket, l) })
	}
	peers.Go(func() { dropUntilKilled(ctx, socket, l) })
	if fill {
		peers.Go(func() { fillUntilKilled(ctx, socket, l) })
	}
	_ = p.Wait()
	cancel()
	peers.Wait()
}

// submitUntilKilled submits jobs for functions with and without workers and removes
// some of them.
func submitUntilKilled(ctx context.Context, socket string, l *ledger, n int, acknowledged func()) {
	c, err := client.Dial(ctx, socket, client.Options{})
	if err != nil {
		return
	}
	defer c.Close()
	functions := [...]string{"kept", "worked", "later"}
	for i := 0; ; i++ {
		function := functions[i%len(functions)]
		name, workload := l.create(function)
		j := &client.Job{Func: function, Name: name, Workload: []byte(workload)}
		if function == "later" {
			j.SchedAt = time.Now().Unix() + 3600
		}
		if c.Submit(ctx, j) != nil {
			return
		}
		l.change(name, func(f *fate) { f.submitted = true })
		acknowledged()
		if i%5 == n%5 {
			l.change(name, func(f *fate) { f.removing = true })
			if c.Remove(ctx, function, name) != nil {
				return
			}
			l.change(name, func(f *fate) { f.removed = true })
		}
	}
}

// dropUntilKilled fills functions of its own and drops them.
func dropUntilKilled(ctx context.Context, socket string, l *ledger) {
	c, err := client.Dial(ctx, socket, client.Options{})
	if err != nil {
		return
	}
	defer c.Close()
	for {
		var names []string
		function := ""
		for range 20 {
			if function == "" {
				l.mu.Lock()
				function = fmt.Sprintf("dropped-%d", l.next)
				l.mu.Unlock()
			}
			name, workload := l.create(function)
			names = append(names, name)
			if c.Submit(ctx, &client.Job{Func: function, Name: name, Workload: []byte(workload)}) != nil {
				return
			}
			l.change(name, func(f *fate) { f.submitted = true })
		}
		for _, name := range names {
			l.change(name, func(f *fate) { f.dropping = true })
		}
		if c.Drop(ctx, function) != nil {
			return
		}
		for _, name := range names {
			l.change(name, func(f *fate) { f.dropped = true })
		}
	}
}

// large is the function of the jobs that fill the journal's logs, so that the server is also killed while it begins a
// log or brings one into the store.
const large = "large"

// fillUntilKilled submits large jobs and removes each when the next is acknowledged. It first removes the jobs of
// earlier rounds.
func fillUntilKilled(ctx context.Context, socket string, l *ledger) {
	c, err := client.Dial(ctx, socket, client.Options{})
	if err != nil {
		return
	}
	defer c.Close()
	var names []string
	l.mu.Lock()
	for name, f := range l.jobs {
		if f.function == large {
			names = append(names, name)
		}
	}
	l.mu.Unlock()
	for {
		name, workload := l.create(large)
		if c.Submit(ctx, &client.Job{Func: large, Name: name, Workload: []byte(workload)}) != nil {
			return
		}
		l.change(name, func(f *fate) { f.submitted = true })
		for _, old := range names {
			l.change(old, func(f *fate) { f.removing = true })
			if c.Remove(ctx, large, old) != nil {
				return
			}
			l.change(old, func(f *fate) { f.removed = true })
		}
		names = append(names[:0], name)
	}
}

// workUntilKilled finishes some jobs, and fails and delays others.
func workUntilKilled(ctx context.Context, socket string, l *ledger) {
	w, err := client.DialWorker(ctx, socket, client.Options{})
	if err != nil || w.CanDo(ctx, "worked") != nil {
		return
	}
	defer w.Close()
	for i := 0; ; i++ {
		a, err := w.Grab(ctx)
		if err != nil {
			return
		}
		switch i % 4 {
		case 0:
			err = w.Fail(ctx, a)
		case 1:
			err = w.Later(ctx, a, 3600, 1)
		default:
			l.change(a.Job.Name, func(f *fate) { f.finishing = true })
			err = w.Done(ctx, a, nil)
		}
		if err != nil {
			return
		}
	}
}

// audit compares a restarted server's jobs with the ledger, and forgets the jobs
// that are gone.
func audit(t *testing.T, socket string, l *ledger, round int) (kept int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	there := dumpOf(ctx, t, socket)
	for name, f := range l.jobs {
		j, found := there[name]
		switch {
		case !found && f.submitted && !f.removing && !f.dropping && !f.finishing:
			t.Errorf("after kill %d: acknowledged job %s of %s is lost", round, name, f.function)
		case found && (f.removed || f.dropped):
			t.Errorf("after kill %d: job %s of %s came back, its removal was acknowledged (removed %v, dropped %v)",
				round, name, f.function, f.removed, f.dropped)
		case found && j != (dumped{f.function, f.workload}):
			t.Errorf("after kill %d: job %s came back as %.100q of %q", round, name, j.workload, j.function)
		}
		if found {
			kept++
			// The removal of a job that is back was not carried out; an unacknowledged submission that is on disk now
			// stays there.
			f.submitted, f.removing, f.dropping, f.finishing = true, false, false, false
		} else {
			delete(l.jobs, name)
		}
	}
	return kept
}

// dumped is one job of a DUMP.
type dumped struct{ function, workload string }

// dumpOf takes a DUMP of a server. It tries again while the time lasts: the leader of a cluster may change meanwhile.
func dumpOf(ctx context.Context, t *testing.T, socket string) map[string]dumped {
	t.Helper()
	for {
		var dump bytes.Buffer
		c, err := client.Dial(ctx, socket, client.Options{})
		if err == nil {
			_, err = c.Dump(ctx, &dump, nil)
			c.Close()
		}
		if err == nil {
			return parseDump(t, dump.Bytes())
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// parseDump reads a DUMP's jobs by name, without the codec that wrote it.
func parseDump(t *testing.T, b []byte) map[string]dumped {
	t.Helper()
	take := func(n int) []byte {
		if n > len(b) {
			t.Fatalf("the dump ends %d bytes early", n-len(b))
		}
		part := b[:n]
		b = b[n:]
		return part
	}
	count := enc.BigEndian.Uint64(take(8))
	jobs := make(map[string]dumped)
	for len(b) > 0 {
		function := string(take(int(take(1)[0])))
		name := string(take(int(take(1)[0])))
		workload := string(take(int(enc.BigEndian.Uint32(take(4)))))
		take(8)                                // sched_at
		take([...]int{0, 4, 4, 8}[take(1)[0]]) // count, time-out
		if _, twice := jobs[name]; twice {
			t.Errorf("job %s is there twice", name)
		}
		jobs[name] = dumped{function, workload}
	}
	if uint64(len(jobs)) != count {
		t.Fatalf("the dump counts %d jobs and has %d", count, len(jobs))
	}
	return jobs
}
