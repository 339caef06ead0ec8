package loop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"treadle/codec/periodic"
	"treadle/loop/journal"
	served "treadle/loop/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// disk is a journal's file system whose syncs can be held back or fail. The test sets its free space.
type disk struct {
	vfs.FS
	gate sync.RWMutex // held for writing: syncs wait
	fail atomic.Bool  // syncs give EIO
	free atomic.Uint64
}

func newDisk() *disk { return newDiskOn(vfs.NewMem()) }

func newDiskOn(f vfs.FS) *disk {
	d := &disk{}
	d.free.Store(1 << 40)
	d.FS = errorfs.Wrap(f, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			d.gate.RLock()
			defer d.gate.RUnlock()
			if d.fail.Load() {
				return syscall.EIO
			}
		}
		return nil
	}))
	return d
}

// GetDiskUsage implements vfs.FS.
func (d *disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load(), TotalBytes: 1 << 41}, nil
}

// on starts a server whose journal is on the disk.
func (d *disk) on(t *testing.T, o Options) *testServer {
	t.Helper()
	o.Data = "data"
	return startServer(t, o, func(s *Server) { s.journalOpts.FS = d })
}

func later(function, name string, at int64) []byte {
	return periodic.AppendJob(nil, &periodic.Job{Func: []byte(function), Name: []byte(name), Workload: []byte("w"), SchedAt: at, Count: 3, Timeout: 9})
}

func configValue(key string, value uint32) []byte {
	return binary.BigEndian.AppendUint32(str8(key), value)
}

func jobName(function, name string) []byte { return append(str8(function), str8(name)...) }

// TestAcknowledgedAfterSync: a change is acknowledged after its sync, and no other reply waits. While
// syncs are held back, a PING behind each request is answered and the request is not. Afterwards it is.
func TestAcknowledgedAfterSync(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{})
	c := r.greet(periodic.Client)
	c.ask(1, periodic.SubmitJob, job("f", "old"), byte(periodic.Success))
	for _, each := range []struct {
		cmd  periodic.Command
		args []byte
	}{
		{periodic.SubmitJob, job("f", "new")},
		{periodic.SubmitJob, later("f", "old", 1<<40)}, // replaced
		{periodic.Load, append(count(2), append(job("f", "l1"), job("g", "l2")...)...)},
		{periodic.RemoveJob, jobName("f", "new")},
		{periodic.DropFunc, str8("g")},
		{periodic.ConfigSet, configValue("timeout", 99)},
	} {
		d.gate.Lock()
		c.send(request(2, each.cmd, each.args))
		c.ping()
		if !c.silent() {
			t.Errorf("%v is acknowledged before it is on disk", each.cmd)
		}
		d.gate.Unlock()
		c.want(2, byte(periodic.Success))
	}
}

// TestAtOnce: a job is handed out and done, and its result delivered, before any of it is on disk. The
// reports of a worker do not wait either.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{})
	c, w := r.greet(periodic.Client), r.greet(periodic.Worker)
	w.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob), request(3, periodic.GrabJob))
	w.ping()
	d.gate.Lock()
	c.send(request(1, periodic.RunJob, job("f", "run")), request(2, periodic.SubmitJob, job("f", "submit")))
	run, _ := assigned(t, w.next())
	submit, _ := assigned(t, w.next())
	w.send(request(4, periodic.WorkDone, run, []byte("result")), request(5, periodic.WorkFail, submit))
	c.want(1, []byte("result")...)
	w.ping()
	d.gate.Unlock()
	c.want(2, byte(periodic.Success))
}

// TestRestart: jobs and settings survive the process.
func TestRestart(t *testing.T) {
	t.Parallel()
	d := newDisk()
	at := time.Now().Unix() + 3600
	r := d.on(t, Options{Gloom: GloomOptions{Masters: []string{"tcp://127.0.0.1:0"}}})
	c, w := r.greet(periodic.Client), r.greet(periodic.Worker)
	w.send(request(1, periodic.CanDo, str8("served")), request(2, periodic.GrabJob))
	w.ping()
	c.ask(1, periodic.SubmitJob, job("served", "running", 'w'), byte(periodic.Success))
	assigned(t, w.next())
	c.ask(2, periodic.SubmitJob, later("f", "later", at), byte(periodic.Success))
	c.ask(3, periodic.SubmitJob, job("dropped", "gone"), byte(periodic.Success))
	c.ask(4, periodic.DropFunc, str8("dropped"), byte(periodic.Success))
	c.ask(5, periodic.ConfigSet, configValue("poll-interval", 7), byte(periodic.Success))
	w.ping()
	r.stop()

	r = d.on(t, Options{})
	c, w = r.greet(periodic.Client), r.greet(periodic.Worker)
	c.ask(1, periodic.ConfigGet, str8("poll-delay"), append([]byte{byte(periodic.Config)}, 0, 0, 0, 7)...)
	c.send(request(2, periodic.Dump))
	want := append(count(2), later("f", "later", at)...)
	if got := c.next(); !bytes.Contains(got.Body, later("f", "later", at)) || len(got.Body) != len(want)+len(job("served", "running", 'w')) {
		t.Errorf("the dump is %x", got.Body)
	}
	w.send(request(1, periodic.CanDo, str8("served")), request(2, periodic.GrabJob))
	if _, j := assigned(t, w.next()); string(j.Name) != "running" || string(j.Workload) != "w" {
		t.Errorf("the running job came back as %q with %q", j.Name, j.Workload)
	}
	c.send(request(3, periodic.Status))
	if got := string(c.next().Body); !bytes.Contains([]byte(got), []byte("f,0,1,0,")) || bytes.Contains([]byte(got), []byte("dropped")) {
		t.Errorf("the status is %q", got)
	}
}

// TestGloomJobsAreNotJournaled: nothing that happens to a Gloom job, at slaves or Periodic workers, is
// committed.
func TestGloomJobsAreNotJournaled(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{Gloom: GloomOptions{Masters: []string{"tcp://127.0.0.1:0"}, Slaves: []string{"tcp://127.0.0.1:0"}}})
	c, w, master := r.greet(periodic.Client), r.greet(periodic.Worker), r.dialGloom(true)
	submit := func() uint64 {
		t.Helper()
		c.ask(1, periodic.SubmitJob, later("kept", "n", 1<<40), byte(periodic.Success))
		return r.journal.stats().Records
	}
	hears := func(w *testConn, want string) {
		t.Helper()
		if got := w.nextGloom("", ""); got != " < "+want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	w.send(request(1, periodic.CanDo, str8("f")))
	w.ping()
	first := submit()
	one := submit() - first
	for i, command := range []periodic.Command{periodic.SchedLater, periodic.WorkFail, periodic.WorkDone} {
		id := fmt.Sprint(i)
		master.send(gloomFrame(`{"action":"submit","id":` + id + `,"type":"f","body":1}`))
		hears(master, `{"ok":true,"id":`+id+`}`)
		w.send(request(2, periodic.GrabJob))
		handle, _ := assigned(t, w.next())
		w.send(request(3, command, handle, make([]byte, 10)))
		w.ping()
		slave := r.dialGloom(false)
		slave.send(gloomFrame(`{"action":"join","type":"f"}`))
		hears(slave, ok)
		if command == periodic.WorkDone {
			break
		}
		hears(slave, pushedTo("f", id))
		slave.send(gloomFrame(`{"action":"respond","body":2}`))
		hears(slave, ok)
		hears(master, `{"id":`+id+`,"body":2}`)
		slave.Close()
	}
	master.send(gloomFrame(`{"action":"submit","id":"left","type":"nobody","body":1}`))
	hears(master, `{"id":2,"body":"\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000"}`)
	hears(master, `{"ok":true,"id":"left"}`)
	if before, after := first+one, submit(); one == 0 || after != before+one {
		t.Errorf("%d records were committed, want the %d of a SUBMIT_JOB", after-before, one)
	}
}

// pushedTo returns the frame that brings a slave a job of a type.
func pushedTo(typ, id string) string {
	return `{"action":"job","id":` + id + `,"type":"` + typ + `","body":1}`
}

// TestWriteError: a failing disk stops the server with the error and its exit code, and nothing is
// acknowledged that is not on disk.
func TestWriteError(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{Drain: time.Hour})
	c := r.greet(periodic.Client)
	c.ask(1, periodic.SubmitJob, job("f", "kept"), byte(periodic.Success))
	d.fail.Store(true)
	c.send(request(2, periodic.SubmitJob, job("f", "lost")))
	if said := c.wantClosed(); len(said) > 0 {
		t.Errorf("the client was told %x", said)
	}
	<-r.ended
	var failed *journalError
	if !errors.As(r.err, &failed) || !errors.Is(r.err, syscall.EIO) || failed.ExitCode() != 3 {
		t.Errorf("Run gives %v", r.err)
	}
	r.err = nil // the error was expected
	d.fail.Store(false)
	r = d.on(t, Options{})
	c = r.greet(periodic.Client)
	c.send(request(1, periodic.Dump))
	if got := c.next(); !bytes.Contains(got.Body, job("f", "kept")) {
		t.Errorf("after the failure the dump is %x", got.Body)
	}
}

// TestFullDisk: below --min-free new jobs are refused and all other requests are served. New jobs are
// accepted again when there is space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{MinFree: journal.LeastFree})
	c, w := r.greet(periodic.Client), r.greet(periodic.Worker)
	c.ask(1, periodic.SubmitJob, job("f", "before"), byte(periodic.Success))
	d.free.Store(1)
	r.until("the disk to be full", r.journal.full)
	for _, cmd := range []periodic.Command{periodic.SubmitJob, periodic.RunJob} {
		c.ask(2, cmd, job("f", "refused"), byte(periodic.Unknown))
	}
	c.ask(3, periodic.Load, append(count(1), job("f", "refused")...), byte(periodic.Unknown))
	w.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob))
	handle, _ := assigned(t, w.next())
	w.send(request(3, periodic.WorkDone, handle))
	w.ping()
	c.ask(4, periodic.RemoveJob, jobName("f", "none"), byte(periodic.Success))
	d.free.Store(1 << 40)
	r.until("space to be back", func() bool { return !r.journal.full() })
	c.ask(5, periodic.SubmitJob, job("f", "after"), byte(periodic.Success))
}

// TestCronFullDisk checks that a cron entry adds no job while the disk is too full, and goes on when it has room.
func TestCronFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{MinFree: journal.LeastFree, Admin: AdminOptions{Cron: []CronEntry{{Name: "a", Queue: "f", Schedule: "@yearly"}}}})
	run := func(want sched.CronOutcome, text string) {
		t.Helper()
		got, err := r.sched.RunCron(r.now(), "f", "a", host{r.Server}.NewSink())
		if err != nil || got.Outcome != want || got.Text != text {
			t.Errorf("got %+v, %v, want %v", got, err, want)
		}
	}
	d.free.Store(1)
	r.until("the disk to be full", r.journal.full)
	run(sched.CronRefused, protocol.ErrDisk.Error())
	d.free.Store(1 << 40)
	r.until("space to be back", func() bool { return !r.journal.full() })
	run(sched.CronRan, "")
}

// TestDiskFillsUp: a LOAD is refused when the disk fills up during it, and its earlier jobs stay. New
// functions of workers take none of the remaining space.
func TestDiskFillsUp(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{MinFree: journal.LeastFree, HTTP: "127.0.0.1:0"})
	c, w := r.greet(periodic.Client), r.greet(periodic.Worker)
	all := request(1, periodic.Load, count(2), job("f", "before"), job("f", "behind"))
	last := len(job("f", "behind"))
	c.send(all[:len(all)-last])
	r.wantMetric("treadle_jobs", 1)
	d.free.Store(1)
	r.until("the disk to be full", r.journal.full)
	c.send(all[len(all)-last:])
	c.want(1, byte(periodic.Unknown))
	w.send(request(2, periodic.CanDo, str8("g")))
	w.ping()
	c.ask(3, periodic.ConfigSet, configValue("timeout", 5), byte(periodic.Success)) // behind all journaled changes
	r.wantMetric("treadle_jobs", 1)
	r.wantMetric("treadle_journal_jobs", 2) // the job and its function
}

// TestLoadWithoutRoom: a LOAD that is larger than the room on the disk adds nothing. A job takes its
// size twice there, in a log and in the store.
func TestLoadWithoutRoom(t *testing.T) {
	t.Parallel()
	const least = journal.LeastFree
	d := newDisk()
	r := d.on(t, Options{MinFree: least, HTTP: "127.0.0.1:0"})
	c := r.greet(periodic.Client)
	args := slices.Concat(count(2), job("f", "a"), job("f", "b"))
	d.free.Store(least + 2*uint64(len(args)) - 1)
	r.journal.checkSpace()
	c.ask(1, periodic.Load, args, byte(periodic.Unknown))
	r.wantMetric("treadle_jobs", 0)
	d.free.Add(1)
	r.journal.checkSpace()
	c.ask(2, periodic.Load, args, byte(periodic.Success))
	r.wantMetric("treadle_jobs", 2)
}

// TestDataInUse: a directory has one server. The second is refused.
func TestDataInUse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	r := startServer(t, Options{Data: dir})
	o := r.o
	o.Periodic.Listen, o.HTTP, o.Gloom.Masters, o.Gloom.Slaves, o.Started = []string{"tcp://127.0.0.1:0"}, "off", []string{"off"}, []string{"off"}, nil
	o.Dwork.Listen, o.Kts46 = []string{"off"}, kts46Off
	err := Run(t.Context(), o)
	var wrong *OptionError
	if !errors.As(err, &wrong) || wrong.Setting != "data" || !errors.Is(err, journal.ErrInUse) {
		t.Errorf("the second server gives %v", err)
	}
}

// TestJournalMetrics: /metrics has the journal's counters.
func TestJournalMetrics(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{HTTP: "127.0.0.1:0"})
	c := r.greet(periodic.Client)
	c.ask(1, periodic.SubmitJob, job("f", "n"), byte(periodic.Success))
	const p = "treadle_journal_"
	const commit = "treadle_commit_"
	r.wantMetric(commit+"records_sum", 2) // the job and its function
	groups := r.metric(commit + "seconds_count")
	if groups < 1 || r.metric(commit+"records_count") != groups ||
		r.metric(commit+`seconds_bucket{le="+Inf"}`) != groups || r.metric(commit+"bytes_total") < 50 || r.metric(p+"bytes") < 50 {
		t.Errorf("%d groups; the other figures do not fit", groups)
	}
	r.wantMetric(p+"jobs", 2)
	r.wantMetric("treadle_disk_free_bytes", 1<<40)
	r.wantMetric(p+"stalls_total", 0)
	r.wantMetric(p+"last_error_timestamp_seconds", 0)
	d.gate.Lock()
	c.send(request(2, periodic.SubmitJob, job("f", "m")))
	r.wantMetric(p+"unacknowledged_records", 1)
	d.gate.Unlock()
	c.want(2, byte(periodic.Success))
	r.wantMetric(p+"unacknowledged_records", 0)
	r.stop()
	r = d.on(t, Options{HTTP: "127.0.0.1:0"})
	r.wantMetric(p+"recovered", 3)
	r.metric(p + "recovery_seconds")
}

// TestProgress: a long start logs its progress once a second.
func TestProgress(t *testing.T) {
	t.Parallel()
	const jobs = 40_000
	d := newDisk()
	j, err := journal.Open(journal.Options{Dir: "data", FS: d})
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= jobs; seq++ {
		j.Put(0, &journal.Record{Seq: seq, Space: uint8(served.Space), Queue: []byte("f"), Name: fmt.Append(nil, seq)})
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []int64{0, progressEvery.Milliseconds()} {
		var said bytes.Buffer // read when the server has ended
		var ms atomic.Int64
		r := startServer(t, Options{Data: "data", Log: slog.New(slog.NewTextHandler(&said, nil))}, func(s *Server) {
			s.journalOpts.FS = d
			now := s.now()
			s.clock = func() sched.Time { return sched.Time{Wall: now.Wall, Mono: ms.Add(step), WallMicros: now.WallMicros} }
		})
		r.stop()
		want := 0
		if step > 0 {
			want = 2 + 1 // at 16384, at 32768, and at the end
		}
		if n := strings.Count(said.String(), "reading the journal"); n != want {
			t.Errorf("%d lines of progress, want %d:\n%s", n, want, said.String())
		}
		if !strings.Contains(said.String(), "the journal is read") || !strings.Contains(said.String(), fmt.Sprint("jobs=", jobs)) {
			t.Errorf("the log is\n%s", said.String())
		}
	}
}

// TestIdleKeepsNothing: a session keeps no buffer when all its requests are answered, after requests in
// pieces and acknowledgements that waited, and few ackGroups meanwhile.
func TestIdleKeepsNothing(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{})
	c := r.greet(periodic.Client)
	d.gate.Lock()
	const many = 3000
	var all []byte
	for i := range many - 1 {
		all = append(all, request(uint32(i), periodic.SubmitJob, job(fmt.Sprint("f", i%50), fmt.Sprint(i)))...)
	}
	all = append(all, request(many-1, periodic.SubmitJob, job("f", "large", make([]byte, maxSmallBuffer/2)...))...)
	state := func(ok func(s *session) bool) func() bool {
		return func() (is bool) {
			r.eachReactor(func(l *reactor) { is = is || slices.ContainsFunc(slices.Collect(l.sessions.all()), ok) })
			return is
		}
	}
	c.send(all[:len(all)-100])
	r.until("a part to be kept", state(func(s *session) bool { return len(s.partial) > 0 }))
	c.send(all[len(all)-100:])
	r.until("all to wait", state(func(s *session) bool {
		return len(s.acks) == 13*many && len(s.ackGroups) <= 3 && s.partial == nil
	}))
	d.gate.Unlock()
	for range many {
		c.next()
	}
	r.until("no buffer to be kept", state(func(s *session) bool { return s.acks == nil && s.ackGroups == nil && s.partial == nil && s.Out == nil }))
}

// TestDroppedNamesakes: a kill while the ends of a dropped queue's jobs are on their way to the disk,
// behind new jobs of the same names, leaves a sound directory.
func TestDroppedNamesakes(t *testing.T) {
	t.Parallel()
	const jobs, again = 200_000, 10
	mem := vfs.NewCrashableMem()
	r := newDiskOn(mem).on(t, Options{})
	c := r.greet(periodic.Client)
	all := count(jobs)
	for i := range jobs {
		all = append(all, job("f", fmt.Sprint(i))...)
	}
	c.ask(1, periodic.Load, all, byte(periodic.Success))
	requests := request(2, periodic.DropFunc, str8("f"))
	for i := range again {
		requests = append(requests, request(uint32(3+i), periodic.SubmitJob, job("f", fmt.Sprint(i*19999)))...)
	}
	c.send(requests)
	for i := range again + 1 {
		c.want(uint32(2+i), byte(periodic.Success))
	}
	after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	if report, err := journal.Check("data", after); err != nil || len(report.Damage) > 0 {
		t.Errorf("%v, %v", err, report.Damage)
	}
	newDiskOn(after).on(t, Options{})
}

// TestDataErrorCodes: damage, and a directory that cannot be written, have the exit code for data. An error
// that may pass has that of a failure, and a file in place of a directory that of a wrong setting.
func TestDataErrorCodes(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		err  error
		want int
	}{
		{&journal.DamageError{Damage: make([]journal.Damage, 1)}, exitData},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, exitData},
		{syscall.EIO, exitData}, {syscall.EROFS, exitData}, {syscall.EDQUOT, exitData},
		{&fs.PathError{Op: "mkdir", Path: "x", Err: syscall.EACCES}, exitData}, {syscall.EPERM, exitData},
		{journal.ErrInUse, exitFailure}, {fs.ErrNotExist, exitFailure},
		{&fs.PathError{Op: "mkdir", Path: "x", Err: syscall.ENOTDIR}, 2},
	} {
		var option *OptionError
		if err := dataError(fmt.Errorf("cannot: %w", f.err)); !errors.As(err, &option) || option.ExitCode() != f.want {
			t.Errorf("%v: exit code %d, want %d", err, option.ExitCode(), f.want)
		}
	}
}
