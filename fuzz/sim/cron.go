//go:build invariants

package sim

import (
	"slices"
	"strings"
	"time"

	"treadle/codec/admin"
	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
	"treadle/sched"
)

// CronModel is what the ledger knows of a queue whose jobs cron entries submit. The server counts the runs of an entry.
// Each run has one job, which is pending or done. A crash does not change that: each time of a schedule is met once.
type CronModel struct {
	queue   string
	entries [2]*cronEntry
}

// cronEntry is an entry of the play.
type cronEntry struct {
	name    string
	every   int64 // milliseconds
	overlap string
	ended   int        // number of jobs whose end is on disk
	maybe   int        // number of jobs that were done since the last commit
	crashed bool       // the server crashed since the last look: ends in maybe may be lost, with or without their runs
	at      sched.Time // moment of the last look at the entry
	next    int64      // Wall of the entry's next time, as of the last look
	times   uint64     // number of times that had come at the last look
}

func newCronModel() *CronModel {
	return &CronModel{entries: [2]*cronEntry{{name: "each", every: 10_000, overlap: "queue"}, {name: "one", every: 7000, overlap: "skip"}}}
}

// committed notes that everything is on disk.
func (m *CronModel) committed() {
	for _, e := range m.entries {
		if !e.crashed {
			e.ended, e.maybe = e.ended+e.maybe, 0
		}
	}
}

// entry finds the entry of a job by its name.
func (m *CronModel) entry(job string) *cronEntry {
	for _, e := range m.entries {
		if name, _, _ := strings.Cut(job, "@"); name == e.name {
			return e
		}
	}
	return nil
}

// cronBegin adds the entries.
func (s *Simulator) cronBegin() {
	for _, e := range s.ledger.cron.entries {
		add := &admin.CronAdd{CronEntry: admin.CronEntry{
			Name: e.name, Queue: s.ledger.cron.queue, Schedule: "@every " + (time.Duration(e.every) * time.Millisecond).String(), Zone: "UTC", Overlap: e.overlap,
		}}
		s.probeHTTP("POST", "/api/v1/cron", add, &admin.CronEntries{})
	}
	s.cronLook()
}

// cronStep lets a worker come, do some jobs of the entries and leave.
func (s *Simulator) cronStep() {
	s.settle()
	w := s.probeAs(s.server, periodic.Plain, periodic.Worker)
	w.send(periodic.CanDo, periodic.AppendStr8String(nil, s.ledger.cron.queue))
	for n := s.rng.IntN(4); n > 0; n-- {
		id := w.send(periodic.GrabJob, nil)
		s.settle()
		body := w.answer(id)
		if len(body) < 2 || body[0] != byte(periodic.JobAssign) {
			break
		}
		handle, job, err := wire.ParseAssign(periodic.Plain, body)
		if err != nil {
			s.trace.Failf("the worker of cron entries is sent %x, want a JOB_ASSIGN: %v", body, err)
		}
		e := s.ledger.cron.entry(string(job.Name))
		if string(job.Func) != s.ledger.cron.queue || e == nil {
			s.trace.Failf("%q of %q is handed out, want a job of a cron entry in %q", job.Name, job.Func, s.ledger.cron.queue)
		}
		if s.rng.IntN(4) == 0 {
			s.trace.Logf("a worker leaves with the job %q", job.Name)
			break
		}
		s.trace.Logf("the job %q is done", job.Name)
		e.maybe++
		w.send(periodic.WorkDone, handle)
		s.settle()
	}
	w.peer.Close()
	s.pass(0)
	s.cronLook()
}

// cronLook compares the entries and their jobs with the model.
func (s *Simulator) cronLook() {
	body := s.dump(s.server, s.ledger.setup.periodicVersion)
	if body == nil {
		return
	}
	there := map[*cronEntry]int{}
	names := map[string]bool{}
	for _, job := range s.ledger.parseAllOfDump(body) {
		if string(job.Func) != s.ledger.cron.queue {
			continue
		}
		e := s.ledger.cron.entry(string(job.Name))
		if e == nil || names[string(job.Name)] {
			s.trace.Failf("%q of the queue of cron entries is in a dump twice, or is of no entry", job.Name)
		}
		names[string(job.Name)] = true
		there[e]++
	}
	var all admin.CronEntries
	s.get("/api/v1/cron", &all)
	for _, e := range s.ledger.cron.entries {
		i := slices.IndexFunc(all.Entries, func(c admin.CronStatus) bool { return c.Name == e.name })
		if i < 0 {
			s.trace.Failf("the cron entry %s is not listed: got %+v", e.name, all)
		}
		s.checkCron(e, &all.Entries[i], there[e])
	}
}

// checkCron checks that the jobs of an entry are as many as its runs, and that the entry has met each time that has
// come.
func (s *Simulator) checkCron(e *cronEntry, seen *admin.CronStatus, there int) {
	runs := int(seen.Counts[sched.CronRan.String()] + seen.Counts[sched.CronLate.String()])
	s.trace.Logf("%s: %v, %d jobs, %d to %d were done", e.name, seen.Counts, there, e.ended, e.ended+e.maybe)
	least := e.ended
	if !e.crashed {
		least += e.maybe
	}
	if runs < least+there || runs > e.ended+e.maybe+there {
		s.trace.Failf("the cron entry %s: got %d runs, want %d to %d: %d jobs wait, the others were done", e.name, runs, least+there, e.ended+e.maybe+there, there)
	}
	times := uint64(0)
	for _, n := range seen.Counts {
		times += n
	}
	next, err := time.Parse(time.RFC3339, strings.Join(seen.Next, ""))
	now := s.server.Now()
	if at := next.UnixMilli(); err != nil || at%e.every != 0 || at <= now.Wall || at > s.ledger.wall+e.every {
		s.trace.Failf("the next time of the cron entry %s: got %v, want the next multiple of %d ms after %d", e.name, seen.Next, e.every, now.Wall)
	}
	if came := now.Wall/e.every - (e.next-1)/e.every; !e.crashed && now.Wall-now.Mono == e.at.Wall-e.at.Mono && times-e.times != uint64(max(came, 0)) {
		s.trace.Failf("times of the cron entry %[2]s: got %[3]d, want %[1]d", came, e.name, times-e.times)
	}
	if e.crashed { // the ends that a restarted server knows are on disk
		e.ended, e.maybe, e.crashed = runs-there, 0, false
	}
	e.at, e.next, e.times = now, next.UnixMilli(), times
}
