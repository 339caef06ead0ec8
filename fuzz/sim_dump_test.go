//go:build invariants

package fuzz

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/codec/periodic"
	"treadle/loop"
)

// figures are what the ledger knows of those in a job's record.
type figures struct {
	at          int64 // its sched_at
	dated       bool  // that is known
	least, most int32 // its count is between the two
}

// steps is a SCHED_LATER's step to a job's count, one that may not have counted.
func (j *simJob) steps(by int32, sure bool) {
	j.record.most += by
	if sure {
		j.record.least += by
	}
}

// counts is a worker's word about a job with a step to its count.
func (s *sim) counts(c *simConn, h heldJob, by int32) {
	for _, k := range s.namesakes(h) {
		k.steps(by, false)
	}
	if last := h.isLast(); last || s.again(h) {
		h.job.steps(by, last && s.holds(c, h.job))
	}
}

// assignedAs checks the record of a JOB_ASSIGN. That of the CRC framing says what the server
// fills in.
func (s *sim) assignedAs(c *simConn, k *simJob, j *periodic.Job) {
	as := *j
	if c.framing() == periodic.CRC && k.by == ofPeriodic {
		limits := s.config[timeoutSetting].values
		if !c.slow { // else it may have waited in the server since there was another
			limits = limits[len(limits)-1:]
		}
		if k.timeout == 0 && slices.Contains(limits, uint32(as.Timeout)) {
			as.Timeout = 0
		}
		if k.record.dated && k.record.at == 0 {
			as.SchedAt = 0 // and now stands there
		}
	}
	s.tells(k, &as, fmt.Sprintf("assigned to c%d", c.id))
}

// report is the dump in the answer to a DUMP.
func (s *sim) report(framing periodic.Framing, era string, body []byte) []byte {
	if framing == periodic.Plain || era < "2020" {
		return body
	}
	if len(body) == 0 || body[0] != byte(periodic.Data) {
		s.fail("a DUMP is answered with %x", body)
	}
	return body[1:]
}

// overdue is the ledger's part of a time-out that nobody has heard of yet: it may have come,
// and then the job's record has changed.
func (s *sim) overdue(j *simJob) {
	if j.holder != nil && !s.holds(j.holder, j) {
		j.record.dated = false
	}
}

// tells checks the record of a Periodic job, as it was kept, against the ledger.
func (s *sim) tells(k *simJob, j *periodic.Job, where string) {
	if k.by != ofPeriodic || k.now == gone || k.stale == s.turn+1 {
		return
	}
	s.overdue(k)
	r := &k.record
	if j.Count < r.least || j.Count > r.most || int64(j.Timeout)*1000 != k.timeout {
		s.fail("%v is %s with count %d, time-out %d; it has %d to %d, and %d ms", k, where, j.Count, j.Timeout, r.least, r.most, k.timeout)
	}
	r.least, r.most = j.Count, j.Count
	if r.dated && j.SchedAt != r.at { // if nobody whom it may have been on its way to has left in this turn
		s.misdated = fmt.Sprintf("%v is %s with sched_at %d; it has %d", k, where, j.SchedAt, r.at)
		r.dated = false
	}
}

// dumped checks the answer to a DUMP that came in a turn: each job that was there all the time
// since is in it once, those that run behind the others, and none that was not there.
func (s *sim) dumped(since int, body []byte) map[*simJob]bool {
	there, lastRunning := map[*simJob]bool{}, (*simJob)(nil)
	for _, j := range s.parseDump(body) {
		k := s.whole(j.Workload, "a job of a dump")
		if k.by != ofPeriodic || k.now == gone && (k.turn < since || k.id == 0) || there[k] {
			s.fail("%v is in a dump, and has ended, never came or is there twice", k)
		}
		if string(j.Name) != k.name || string(j.Func) != s.queues[k.queue] {
			s.fail("%v is in a dump as %q of %q", k, j.Name, j.Func)
		}
		there[k] = true
		if k.turn >= since {
			continue
		}
		s.tells(k, &j, "in a dump")
		switch {
		case s.holds(k.holder, k):
			lastRunning = k
		case k.now == sure && k.holder == nil && !k.lost && !k.parked && lastRunning != nil:
			s.behind = append(s.behind, k) // unless it was handed out in this turn, which is seen later
		}
	}
	for _, j := range s.jobs {
		switch {
		case j.by != ofPeriodic || j.now != sure || j.came >= since || there[j]:
		case j.queue == broadcast: // it may have been, in this turn, and who gets it hears of that behind this
			s.missing = append(s.missing, j)
		default:
			s.fail("%v is not in a dump, or is lost", j)
		}
	}
	s.lastDump = slices.Clone(body)
	return there
}

// counted checks what STATUS says of each queue, when nobody doubts a Periodic job.
func (s *sim) counted() {
	lines := s.lines()
	for queue, name := range s.queues[:graph] {
		least, most, workers := 0, 0, 0
		for _, j := range s.jobs {
			if j.queue == queue && j.now == sure {
				least++
			}
			if j.queue == queue && (j.now != gone || j.holder != nil || j.lost || j.parked) { // a job that nobody waits for ends with its run
				most++
			}
		}
		for _, c := range s.conns {
			if c.does[queue] {
				workers++
			}
		}
		shown, jobs := 0, 0
		if _, err := fmt.Sscanf(lines[name], "%d,%d,", &shown, &jobs); lines[name] != "" && err != nil || shown != workers || jobs < least || jobs > most {
			s.fail("the status of %s is %q, and it has %d workers and %d to %d jobs", name, lines[name], workers, least, most)
		}
	}
}

// parseDump takes a DUMP apart.
func (s *sim) parseDump(body []byte) (all []periodic.Job) {
	n, rest, ok := periodic.Int64(body)
	for range n {
		var j periodic.Job
		k, err := periodic.ParseJob(rest, &j)
		if err != nil {
			s.fail("a dump: %v", err)
		}
		all, rest = append(all, j), rest[k:]
	}
	if !ok || len(rest) > 0 {
		s.fail("a dump of %d jobs ends with %x", n, rest)
	}
	return all
}

// dump is a DUMP that the ledger takes of a server itself; nil: somebody who asked for one
// has yet to read it.
func (s *sim) dump(server *loop.Offline, era string) (body []byte) {
	v := s.visit(server)
	defer v.peer.Close()
	if body = v.answer(v.send(periodic.Dump, nil)); body != nil {
		body = s.report(v.framing, era, body)
	}
	return body
}

// loads sends jobs at once.
func (s *sim) loads(c *simConn, jobs []*simJob, at []int64) { s.loadsAs(c, jobs, at, &loadEnd{}) }

// loadsAs sends jobs at once, and something behind them: each is there when its bytes are, unless the disk is full then.
func (s *sim) loadsAs(c *simConn, jobs []*simJob, at []int64, b *loadEnd) {
	args := binary.BigEndian.AppendUint64(nil, uint64(len(jobs)+b.more))
	r, fills := &simRequest{cmd: periodic.Load, loaded: jobs, silent: b.sum}, s.fills
	var fronts []mark
	for i, j := range jobs {
		args = append(args, s.record(j, at[i])...)
		arrive := func() {
			if fills == s.fills && !b.sum {
				s.admits(r, func() { s.arrives(j, at[i]) })
				return
			}
			r.doubtful, s.mixed = true, true // so what it would replace is in doubt, too
			s.arrives(j, at[i])
			s.doubt(j)
		}
		fronts = append(fronts, mark{len(args), &simRequest{silent: true, job: j, arrive: arrive}})
	}
	r.arrive = func() {
		if b.more != 0 {
			r.refused, r.doubtful = true, false
		}
	}
	start, args := len(c.outgoing), append(args, b.tail...)
	c.ask(r, args)
	if b.sum {
		c.outgoing[start+sumAt] ^= 1
		c.garbled = true
	}
	last := c.marks[len(c.marks)-1]
	for i := range fronts {
		fronts[i].at += last.at - len(args)
	}
	c.marks = append(append(c.marks[:len(c.marks)-1], fronts...), last)
	s.say("c%d loads %v at %d, %d more and %q, with a wrong sum: %v", c.id, jobs, at, b.more, b.tail, b.sum)
}

// mostLoaded is how many jobs of a dump are loaded at once.
const mostLoaded = 8

// loadsDump sends some jobs of the last dump again, whatever has become of them, with workloads
// of their own.
func (s *sim) loadsDump(c *simConn) {
	if len(s.lastDump) <= 8 {
		return // none, or one of no jobs
	}
	all := s.parseDump(s.lastDump)
	slices.SortFunc(all, func(a, b periodic.Job) int { return bytes.Compare(a.Workload, b.Workload) }) // a dump's order is the server's affair
	from := s.rng.IntN(len(all))
	var jobs []*simJob
	var at []int64
	for _, old := range all[from:min(from+mostLoaded, len(all))] {
		j := s.job(ofPeriodic, s.known(old.Workload, "a job of a dump").queue, string(old.Name))
		j.timeout, j.record.least, j.record.most = int64(old.Timeout)*1000, old.Count, old.Count
		jobs, at = append(jobs, j), append(at, old.SchedAt)
	}
	s.loads(c, jobs, at)
}

// copies loads a dump into a server that has nothing and crashes when it has acknowledged
// that: its dump has the same jobs.
func (s *sim) copies() {
	s.settle()
	before := s.dump(s.server, s.era)
	if before == nil {
		return
	}
	settings := s.settings()
	settings.PeriodicCRC = simEras[s.rng.IntN(len(simEras))]
	in := loop.Surroundings{Seed: s.seed, LogSize: s.logSize, Now: s.server.Now(), Pick: func(n int) int { return s.rng.IntN(n) }}
	start := func(mem *vfs.MemFS) (*loop.Offline, *simDisk) {
		disk := newSimDisk(mem)
		in.Disk = disk
		o, err := loop.NewOfflineIn(settings, in)
		if err != nil {
			s.fail("another server does not start: %v", err)
		}
		return o, disk
	}
	o, disk := start(vfs.NewCrashableMem())
	v := s.visit(o)
	id := v.send(periodic.Load, before)
	o.Commit()
	if body := v.answer(id); len(body) != 1 || body[0] != byte(periodic.Success) {
		s.fail("a dump is loaded into an empty server, which answers %x", body)
	}
	left := disk.afterCrash(s.rng.IntN(remains), s.rng.Uint64())
	disk.letGo()
	o.Abandon()
	o, disk = start(left)
	defer o.Abandon()
	defer disk.letGo()
	after := s.dump(o, settings.PeriodicCRC)
	sorted := func(body []byte) (lines []string) {
		for _, j := range s.parseDump(body) {
			lines = append(lines, fmt.Sprintf("%q %q %q at %d, count %d, time-out %d", j.Func, j.Name, j.Workload, j.SchedAt, j.Count, j.Timeout))
		}
		slices.Sort(lines)
		return lines
	}
	was, is := sorted(before), sorted(after)
	if !slices.Equal(was, is) {
		s.fail("a dump of\n%q is loaded into an empty server, whose dump is\n%q", was, is)
	}
	s.say("a copy has %d jobs", len(is))
}
