package sched

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// cronStart is some time in UTC, 22:13:20.
const cronStart = 1_700_000_000_000

func (x *testSched) cron(queue, name, schedule string, change ...func(*CronEntry)) {
	x.t.Helper()
	x.setCron(queue, name, schedule, change...)
	x.s.ticks(x.now, &x.rec)
}

func (x *testSched) setCron(queue, name, schedule string, change ...func(*CronEntry)) {
	x.t.Helper()
	e := CronEntry{Name: name, Queue: queue, Space: durableSpace, Schedule: schedule, Zone: time.UTC}
	for _, f := range change {
		f(&e)
	}
	x.ok(x.s.SetCron(x.now, &e))
}

// cronIs checks the last outcome of an entry and the counts of all, as in "ran ran=2 missed=1".
func (x *testSched) cronIs(name, want string) {
	x.t.Helper()
	got := "gone"
	x.s.WalkCron(func(c *CronStatus) {
		if c.Name != name {
			return
		}
		got = c.Last.Outcome.String()
		for _, o := range CronOutcomes() {
			if n := c.Counts[o]; n > 0 {
				got += fmt.Sprintf(" %s=%d", o, n)
			}
		}
	})
	if got != want {
		x.t.Errorf("%s: got %q, want %q", name, got, want)
	}
	if err := x.s.check(); err != nil {
		x.t.Fatal(err)
	}
}

// wait lets time pass in small steps.
func (x *testSched) wait(ms int64) {
	for ; ms > 0; ms -= 20_000 {
		x.pass(min(ms, 20_000))
	}
}

// jobs returns the names of all jobs.
func (x *testSched) jobs() string {
	var all []string
	for c, done := (Cursor{}), false; !done; {
		c, done = x.s.Walk(c, WalkBatch, func(j *Job) { all = append(all, string(j.Name)) })
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func skipMissed(e *CronEntry) { e.SkipMissed = true }
func overlap(e *CronEntry)    { e.Overlap = true }

// TestCronRuns checks that a job is submitted at each time, in the entry's words, and handed out as others are.
func TestCronRuns(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	p := x.peer("q")
	x.reserve(p, 1)
	x.cron("q", "a", "*/5 * * * *", func(e *CronEntry) { e.Workload, e.Priority = []byte("w"), 7 })
	x.pass(99_900)
	if next := x.s.Tick(x.now, &x.rec); next.Wall != cronStart+100_000 {
		t.Errorf("the next Tick is due at %d", next.Wall)
	}
	x.pass(99)
	x.want()
	x.pass(1)
	run := x.want("1 1 assign a")[0].job
	if run.workload != "w" || run.priority != 7 || run.queue != "q" {
		t.Errorf("got %+v", run)
	}
	x.pass(300_000)
	x.cronIs("a", "overlap ran=1 overlap=1")
	x.ok(x.s.Finish(x.now, p, run.run, nil, &x.rec))
	x.pass(300_000)
	x.cronIs("a", "ran ran=2 overlap=1")
	x.pass(300_000) // the job is ready
	x.cronIs("a", "overlap ran=2 overlap=2")
	x.ok(x.s.RemoveCron("q", "a"))
	x.cronIs("a", "gone")
	x.pass(3_000_000)
	if got := x.jobs(); got != "a" {
		t.Errorf("jobs %q", got)
	}
	if err := x.s.RemoveCron("q", "a"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// TestCronOverlap checks that each time has a job of its own where that is asked for.
func TestCronOverlap(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.cron("q", "a", "@hourly", overlap)
	for range 3 {
		x.wait(3_600_000)
	}
	if got, want := x.jobs(), "a@2023-11-14T23:00:00Z a@2023-11-15T00:00:00Z a@2023-11-15T01:00:00Z"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	x.cronIs("a", "ran ran=3")
	x.cron("q", "b", "@every 2s", overlap)
	x.cron("q", "c", "@every 2s")
	x.pass(11_000) // as while the server was down
	x.cronIs("b", "ran ran=5")
	x.cronIs("c", "ran ran=1")
	x.pass(300_000)
	x.cronIs("b", "ran ran=35 missed=1") // 30 times are of the last minute, those before were missed
	x.cronIs("c", "overlap ran=1 missed=1 overlap=1")
}

// TestCronMissed checks entries whose times passed unseen, as while the server was down.
func TestCronMissed(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.cron("q", "once", "@hourly")
	x.cron("q", "skip", "@hourly", skipMissed, overlap)
	x.pass(10 * 3_600_000) // 08:13
	if got := x.jobs(); got != "once" {
		t.Errorf("jobs %q", got)
	}
	x.cronIs("once", "late late=1")
	x.cronIs("skip", "missed missed=1")
	x.pass(3_600_000 - (13*60+20)*1000 + cronLate) // 09:01: a minute late is on time
	x.cronIs("skip", "ran ran=1 missed=1")
	x.pass(3*3_600_000 - 30_000) // 12:00:30: two are missed, and one is on time
	x.cronIs("once", "overlap late=1 missed=1 overlap=2")
	x.cronIs("skip", "ran ran=2 missed=2")
}

// TestCronClock checks that a clock that is set back does not repeat a time, unless it was wrong by hours, and that one
// that is set forward skips none.
func TestCronClock(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.cron("q", "a", "@hourly", overlap)
	x.wait(3_600_000) // 23:13
	for range 5 {
		x.now.Wall -= 20 * 60_000
		x.wait(20 * 60_000)
		x.now.Wall -= 3_600_000
		x.wait(3_600_000)
	}
	x.cronIs("a", "ran ran=1")
	x.now.Wall -= cronCorrection
	x.s.ticks(x.now, &x.rec)
	x.wait(cronCorrection)
	x.cronIs("a", "ran ran=1")
	x.now.Wall += 4 * 365 * 24 * 3_600_000 // years ahead by mistake
	x.s.ticks(x.now, &x.rec)
	x.cronIs("a", "late ran=1 late=1")
	x.now.Wall -= 4 * 365 * 24 * 3_600_000
	x.s.ticks(x.now, &x.rec)
	x.wait(3_600_000)
	x.cronIs("a", "overlap ran=1 late=1 overlap=1") // the late run has submitted the job of this time
	x.wait(3_600_000)
	x.cronIs("a", "ran ran=2 late=1 overlap=1")
}

// TestCronRefused checks that a job that is refused is noted with the reason, and that the next time is met.
func TestCronRefused(t *testing.T) {
	var full error
	x := newTestSched(t, Options{Rules: testRules, CheckCapacity: func() error { return full }})
	x.under([3]string{"q", "paused", "submits"})
	x.cron("q", "a", "@hourly")
	x.wait(3_600_000)
	x.cronIs("a", "refused refused=1")
	x.s.WalkCron(func(c *CronStatus) {
		if c.Last.Text != ErrPaused.Error() {
			t.Errorf("the reason is %q", c.Last.Text)
		}
	})
	x.under([3]string{"q", "paused", "no"})
	full = errors.New("full")
	x.wait(3_600_000)
	x.cronIs("a", "refused refused=2")
	full = nil
	x.wait(3_600_000)
	x.cronIs("a", "ran ran=1 refused=2")
}

// TestCronUnique checks that a time whose job is ignored, as its name was done within unique-for, is noted as such.
func TestCronUnique(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.under([3]string{"q", "keep-done", "10"}, [3]string{"q", "unique-for", "90m"})
	p := x.peer("q")
	x.reserve(p, 1)
	x.cron("q", "a", "@hourly")
	x.wait(3_600_000)
	x.ok(x.s.Finish(x.now, p, x.want("1 1 assign a")[0].job.run, nil, &x.rec))
	x.wait(3_600_000)
	x.cronIs("a", "overlap ran=1 overlap=1")
	run, err := x.s.RunCron(x.now, "q", "a", &x.rec)
	if x.ok(err); run.Outcome != CronOverlaps || !strings.Contains(run.Text, "unique-for") {
		t.Error(run)
	}
	x.wait(3_600_000)
	x.cronIs("a", "ran ran=2 overlap=2")
}

// TestCronPause checks pauses and runs by hand.
func TestCronPause(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.cron("q", "a", "@hourly", overlap)
	x.ok(x.s.PauseCron("q", "a", "ada", "the database moves"))
	x.wait(5 * 3_600_000)
	x.cronIs("a", "never")
	run, err := x.s.RunCron(x.now, "q", "a", &x.rec)
	if x.ok(err); run.Outcome != CronRan {
		t.Error(run)
	}
	run, err = x.s.RunCron(x.now, "q", "a", &x.rec) // within the second, it is the same job
	if x.ok(err); run.Outcome != CronOverlaps {
		t.Error(run)
	}
	x.ok(x.s.ResumeCron(x.now, "q", "a"))
	x.wait(1000)
	x.cronIs("a", "overlap ran=1 overlap=1")
	x.wait(3_600_000)
	x.cronIs("a", "ran ran=2 overlap=1")
	if err := x.s.PauseCron("q", "b", "", ""); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	for _, verb := range []func() error{
		func() error { _, err := x.s.RunCron(x.now, "p", "a", &x.rec); return err },
		func() error { return x.s.ResumeCron(x.now, "p", "a") },
	} {
		if err := verb(); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
}

// TestCronEntry checks what an entry may be.
func TestCronEntry(t *testing.T) {
	s := New(Options{Rules: testRules, Journal: memJournal{{}}})
	f := func(want string, change func(*CronEntry)) {
		t.Helper()
		e := CronEntry{Name: "a", Queue: "q", Space: durableSpace, Schedule: "@hourly", Zone: time.UTC}
		change(&e)
		err := s.SetCron(Time{}, &e)
		var wrong *CronError
		if want == "" && err != nil || want != "" && (!errors.As(err, &wrong) || wrong.Field != want) {
			t.Errorf("got %v, want an error in %q", err, want)
		}
	}
	f("", func(*CronEntry) {})
	f("", func(e *CronEntry) { e.Name = strings.Repeat("n", maxCronName) })
	f("name", func(e *CronEntry) { e.Name = strings.Repeat("n", maxCronName+1) })
	f("name", func(e *CronEntry) { e.Name = "" })
	f("queue", func(e *CronEntry) { e.Queue = "" })
	f("", func(e *CronEntry) { e.Queue = strings.Repeat("q", maxShortQueue) })
	long := CronEntry{Name: "a", Queue: strings.Repeat("q", maxShortQueue+1)}
	if err, limit := long.Check(), fmt.Sprintf(" %d bytes", maxShortQueue); err == nil || !strings.HasSuffix(err.Error(), limit) {
		t.Errorf("the error of a queue with too long a name is %v, want one that ends in %q", err, limit)
	}
	f("workload", func(e *CronEntry) { e.Workload = make([]byte, maxCronWorkload+1) })
	f("schedule", func(e *CronEntry) { e.Schedule = "0 0 30 2 *" })
	f("zone", func(e *CronEntry) { e.Zone = nil })
	f("space", func(e *CronEntry) { e.Space = ownedSpace })
	f("space", func(e *CronEntry) { e.Space = plainSpace })
	for i := range MaxCronEntries - 3 {
		f("", func(e *CronEntry) { e.Name = fmt.Sprint(i) })
	}
	f("name", func(e *CronEntry) { e.Name = "more" })
	f("", func(e *CronEntry) { e.Workload = []byte("other") })
}

// cutJournal notes what a journal has after each change, where joined changes are one.
type cutJournal struct {
	memJournal
	now    *Time
	joined bool
	cuts   []journalCut
	made   map[string]int // jobs that were new
}

type journalCut struct {
	now   Time
	saved map[uint64]Saved
	made  map[string]int
}

func (c *cutJournal) Save(shard int, j *Saved) {
	if _, known := c.memJournal[shard][j.Ref.Seq]; !known && j.Kind == KindJob {
		c.made[string(j.Name)]++
	}
	c.memJournal.Save(shard, j)
	c.cut()
}

func (c *cutJournal) Drop(shard int, seq uint64) { c.memJournal.Drop(shard, seq); c.cut() }
func (c *cutJournal) Begin(int)                  { c.joined = true }
func (c *cutJournal) End(int)                    { c.joined = false; c.cut() }

func (c *cutJournal) cut() {
	if !c.joined {
		c.cuts = append(c.cuts, journalCut{*c.now, maps.Clone(c.memJournal[0]), maps.Clone(c.made)})
	}
}

// TestCronKill kills the server after each change of the journal, and checks that each time of an entry has had one job
// in the end: none is lost and none comes twice.
func TestCronKill(t *testing.T) {
	const times = 10
	start := func(x *testSched) {
		x.setCron("q", "a", "@every 1m", overlap)
		x.setCron("q", "b", "@every 5m", overlap)
		x.s.DropOldCron()
	}
	play := func(x *testSched) { // a worker does some of the jobs, the first before the first Tick
		p := x.peer("q")
		x.reserve(p, 1)
		for ; x.now.Wall < cronStart+times*60_000; x.pass(10_000) {
			for _, d := range x.rec.take() {
				if d.effect == Assign && d.job.name[len(d.job.name)-4] != '5' {
					x.ok(x.s.Finish(x.now, p, d.job.run, nil, &x.rec))
					x.reserve(p, 1)
				}
			}
		}
	}
	journalOf := func(x *testSched, saved map[uint64]Saved, made map[string]int) *cutJournal {
		j := &cutJournal{memJournal: memJournal{saved}, now: &x.now, made: made}
		x.s = New(Options{Rules: testRules, Journal: j})
		return j
	}
	x := newTestSched(t, Options{})
	j := journalOf(x, map[uint64]Saved{}, map[string]int{})
	start(x)
	play(x)
	want := j.made
	if len(want) != times+times/5 {
		t.Fatalf("without a kill: %v", want)
	}
	first := slices.IndexFunc(j.cuts, func(c journalCut) bool { return len(c.saved) == 2 }) // both entries are known
	for i, c := range j.cuts[first:] {
		y := newTestSched(t, Options{})
		y.now = c.now
		after := journalOf(y, c.saved, c.made)
		for _, seq := range slices.Sorted(maps.Keys(c.saved)) {
			saved := c.saved[seq]
			y.ok(y.s.Restore(y.now, &saved))
		}
		y.s.Resume(y.now, 0, nil, &y.rec)
		start(y)
		play(y)
		if !maps.Equal(after.made, want) {
			t.Fatalf("killed after change %d: got %v, want %v", i, after.made, want)
		}
	}
	t.Log(len(j.cuts), "kills")
}

// TestCronRestart checks what an entry keeps over a restart: its counts and pause; its times only under the schedule
// for which they were met. An entry that is no longer configured is forgotten.
func TestCronRestart(t *testing.T) {
	saved := memJournal{{}}
	o := Options{Rules: testRules, Journal: saved}
	x := newTestSched(t, o)
	for _, name := range []string{"same", "other", "paused", "gone", "ahead"} {
		x.cron("q", name, "@daily")
	}
	x.ok(x.s.PauseCron("q", "paused", "ada", "why"))
	x.wait(24 * 3_600_000)
	restart := func() {
		t.Helper()
		x.s = New(o)
		for _, seq := range saved.order() {
			j := saved[0][seq]
			x.ok(x.s.Restore(x.now, &j))
		}
		x.s.Resume(x.now, 0, nil, &x.rec)
		x.cron("q", "same", "@daily")
		x.cron("q", "paused", "@daily")
		x.cron("q", "other", "0 1 * * *")
		x.cron("q", "ahead", "@daily")
		x.s.DropOldCron()
		x.s.ticks(x.now, &x.rec)
	}
	x.now.Wall += 2 * 24 * 3_600_000
	restart()
	x.cronIs("same", "overlap ran=1 overlap=1")
	x.cronIs("paused", "never")
	x.cronIs("other", "ran ran=1")
	x.cronIs("gone", "gone")
	restart()
	x.cronIs("gone", "gone")
	x.now.Wall -= 2 * cronCorrection // the clock was wrong before the restart
	restart()
	x.s.WalkCron(func(c *CronStatus) {
		if c.Name == "ahead" && (c.Handled > x.now.Wall || c.Next <= x.now.Wall) {
			t.Errorf("the time goes on at %d from %d, it is %d", c.Next, c.Handled, x.now.Wall)
		}
	})
}

// TestCronReplaced checks that the states of entries that are no longer configured take no place of new entries.
func TestCronReplaced(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	set := func(prefix string, n int) {
		t.Helper()
		for i := range n {
			x.setCron("q", prefix+fmt.Sprint(i), "@hourly")
		}
	}
	for i := range MaxCronEntries {
		j := Saved{Kind: KindCron, Job: Job{Queue: "q", Name: fmt.Append(nil, "b", i), Workload: []byte("{}")}}
		j.Ref.Seq = uint64(i + 1)
		x.ok(x.s.Restore(x.now, &j))
	}
	set("a", MaxCronEntries-1)
	set("b", 1)
	set("b", 1)
	x.s.DropOldCron()
	if err := x.s.SetCron(x.now, &CronEntry{Name: "more", Queue: "q", Space: durableSpace, Schedule: "@hourly", Zone: time.UTC}); err == nil {
		t.Error("there is an entry too many")
	}
	x.ok(x.s.RemoveCron("q", "b0"))
	set("more", 1)
}

// TestCronMove checks that an entry keeps its counts, its pause and the times it has met in another queue, also over a
// restart and when all places are taken.
func TestCronMove(t *testing.T) {
	saved := memJournal{{}}
	o := Options{Rules: testRules, Journal: saved}
	x := newTestSched(t, o)
	x.cron("q", "a", "@hourly")
	x.wait(2 * 3_600_000)
	x.ok(x.s.PauseCron("q", "a", "ada", "why"))
	for i := range MaxCronEntries - 1 {
		x.setCron("other", fmt.Sprint(i), "@yearly")
	}
	e := CronEntry{Name: "a", Queue: "p", Space: durableSpace, Schedule: "@hourly", Zone: time.UTC}
	wrong := e
	wrong.Schedule = "never"
	if x.s.MoveCron(x.now, "q", &wrong) == nil {
		t.Error("there is no such schedule")
	}
	x.cronIs("a", "overlap ran=1 overlap=1")
	x.ok(x.s.MoveCron(x.now, "q", &e))
	for range 2 {
		x.cronIs("a", "overlap ran=1 overlap=1")
		x.s.WalkCron(func(c *CronStatus) {
			if c.Name == "a" && (c.Queue != "p" || !c.Paused || c.By != "ada" || c.Why != "why") {
				t.Errorf("got %+v", c)
			}
		})
		x.s = New(o)
		for _, seq := range saved.order() {
			j := saved[0][seq]
			x.ok(x.s.Restore(x.now, &j))
		}
		x.s.Resume(x.now, 0, nil, &x.rec)
		x.setCron("p", "a", "@hourly")
		x.s.DropOldCron()
	}
	x.ok(x.s.ResumeCron(x.now, "p", "a"))
	x.wait(3_600_000)
	x.cronIs("a", "ran ran=2 overlap=1")
	if err := x.s.MoveCron(x.now, "q", &e); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
