//go:build invariants

package fuzz

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"treadle/codec/periodic"
	"treadle/loop"
)

// certainty is what the ledger knows of a job's being there.
type certainty int8

const (
	gone certainty = iota
	maybe
	sure
)

// protocol is the one that a job came in by.
type protocol int8

const (
	ofPeriodic protocol = iota
	ofGloom
	ofDwork
	ofDisbatch
)

// simJob is what the ledger knows of one job. A name that is submitted again is another job.
type simJob struct {
	id    int
	by    protocol
	queue int
	name  string
	text  bool // its workload is no JSON
	size  int  // so much is behind its number there, and in its result

	now   certainty // that the server has it
	disk  certainty // that it would have it after a crash
	turn  int       // of the last change of now or holder
	group int       // of changes that brings it to the disk
	came  int       // turn

	record, recordDisk figures // now, and after a crash unless they have changed since

	keyed     bool // priority and due are known
	priority  int64
	due       int64 // Unix milliseconds
	notBefore int64 // likewise, but never too late
	putOff    bool  // a worker has said so
	timeout   int64 // milliseconds; 0: as the server is set

	run      *simRun  // the last that is known; nil: nobody knows which is the last
	holder   *simConn // who was given it and has not ended it
	location string   // the same for a dwork task
	kept     string   // that location when it is on disk
	lost     bool     // nobody knows any more who
	heldAt   int64    // Mono
	stale    int      // 1 + the turn in which one who did not hold it had something to say about it

	owner    *simConn // who waits for its result
	message  uint32   // under what, with Periodic
	results  []string // what workers said
	next     *simJob  // what has replaced it, or may have
	failures int
	returned int               // how often a worker has said that it has not done it
	locks    map[string]bool   // that it has for sure
	asks     int               // for locks, that are not answered
	parked   bool              // it may be waiting for one
	sentTo   map[*simConn]bool // by broadcast
	asked    bool              // by the Disbatch node, which has not heard of its end
	preds    []*simJob         // of a dwork task
	late     []*simJob         // those that are not acknowledged yet
	ghosts   []*simJob         // those of which nobody knows whether they count
	life     int               // how often a dwork task of this name has been made
	taken    certainty         // that another Gloom job had its id when it came
}

func (j *simJob) String() string { return fmt.Sprintf("j%d", j.id) }

// volatile jobs are in memory alone.
func (j *simJob) volatile() bool { return j.by == ofGloom || j.by == ofDisbatch }

// untimed jobs have no time-out.
func (j *simJob) untimed() bool { return j.by != ofPeriodic }

// workload is a job's, by which it is known again: JSON, or text.
func (j *simJob) workload() string {
	text := j.String() + strings.Repeat(padding, j.size)
	if j.text {
		return text
	}
	return strconv.Quote(text)
}

// padding is what large workloads and results are made of; what is said of them leaves it out.
const padding = "."

func brief(b []byte) string { return strings.ReplaceAll(string(b), padding, "") }

// heard is a result as who waits for it gets it. Where a protocol has JSON alone, text is a
// string, and text again on the other side.
func (j *simJob) heard(c *simConn, result string) string {
	switch text := strings.Trim(result, `"`); {
	case c.gloom() && j.text:
		return text
	case j.by == ofGloom:
		return strconv.Quote(text)
	}
	return result
}

// ledger is all jobs.
type ledger struct {
	jobs    []*simJob // by id
	names   map[string][]*simJob
	ids     map[string][]*simJob // those of Gloom, which are of all queues
	wall    int64                // the latest time that was ever shown
	swaps   []swap
	aired   []*simJob // what was broadcast in this turn
	missing []*simJob // what was not in a dump in this turn
	behind  []*simJob // that a dump has behind one that runs

	config   []*setting
	lastDump []byte
	misdated string // what seems wrong with a sched_at, in this turn
}

// swap is a job that was handed out before others that seem to be better.
type swap struct {
	given  *simJob
	better []*simJob
}

// job makes a job that nobody has heard of yet.
func (s *sim) job(by protocol, queue int, name string) *simJob {
	j := &simJob{id: len(s.jobs), by: by, queue: queue, name: name}
	if j.name == "" {
		j.name = fmt.Sprintf("n%d", j.id)
	}
	s.jobs = append(s.jobs, j)
	return j
}

// known finds a job by its workload, or by the result of one.
func (s *sim) known(workload []byte, what string) *simJob {
	text := strings.TrimPrefix(strings.Trim(string(workload), `"`), "r")
	if name, ok := strings.CutPrefix(text, `{"name":"`); ok {
		return s.task([]byte(name))
	}
	var id int
	if _, err := fmt.Sscanf(text, "j%d", &id); err != nil || id >= len(s.jobs) {
		s.fail("%s: %q is nobody's", what, workload)
	}
	return s.jobs[id]
}

// whole is known of all that a workload has.
func (s *sim) whole(workload []byte, what string) *simJob {
	j := s.known(workload, what)
	if j.by != ofDwork && strings.Trim(string(workload), `"`) != strings.Trim(j.workload(), `"`) {
		s.fail("%s: %d bytes, %q, are not the %d of %v", what, len(workload), brief(workload), len(j.workload()), j)
	}
	return j
}

// live counts the jobs that may be there.
func (s *sim) live() (n int) {
	for _, j := range s.jobs {
		if j.now != gone {
			n++
		}
	}
	return n
}

// group is that of a change that comes now: the one that the disk is at is without it.
func (s *sim) group() int {
	if s.syncing {
		return s.disk.groups() + 2
	}
	return s.disk.groups() + 1
}

// comes is a new job's coming to the server.
func (s *sim) comes(j *simJob, at int64) {
	j.now, j.disk, j.turn, j.came, j.group = sure, maybe, s.turn, s.turn, s.group()
	j.record.at, j.record.dated = at, true
	j.recordDisk = j.record
	if j.volatile() {
		j.disk = gone
	}
	j.keyed, j.due, j.notBefore = true, at*1000, at*1000
	if at == 0 {
		j.due = s.server.Now().Wall
	}
}

// arrives is comes for a job of which there may be one already, of its name.
func (s *sim) arrives(j *simJob, at int64) {
	key := fmt.Sprint(j.queue, j.by, j.name)
	s.comes(j, at)
	for _, old := range s.names[key] {
		switch {
		case old.now == gone:
		case old.now == sure && old.turn < s.turn && old.holder == nil && !old.lost && !old.parked && !s.mixed:
			s.say("%v replaces %v", j, old)
			s.end(old)
			old.next = j
		case old.now == sure && old.turn < s.turn && s.holds(old.holder, old) && !s.mixed:
			s.say("%v is ignored, %v runs", j, old)
			j.now, j.disk = gone, gone
		default:
			s.doubt(old)
			j.now = maybe
			if old.next == nil { // else j may come behind that one
				old.next = j
			}
		}
	}
	s.names[key] = append(s.names[key], j)
}

// end is a job's: it is done, removed or replaced.
func (s *sim) end(j *simJob) {
	s.cuts(j)
	j.now, j.turn, j.holder = gone, s.turn, nil
	j.moves("")
	j.disk = min(j.disk, maybe)
}

// doubt is the end of a job of which it is not known whether it was ended.
func (s *sim) doubt(j *simJob) {
	s.cuts(j)
	j.now, j.disk, j.holder, j.keyed, j.turn = min(j.now, maybe), min(j.disk, maybe), nil, false, s.turn
	j.lost, j.record.dated = true, false
}

// acknowledged: what came with a request survives. One that was broadcast in the group that it came
// in, to who has not read it yet, leaves nothing for the disk.
func (s *sim) acknowledged(j *simJob) {
	if j.now == sure {
		if n := s.disk.groups(); n < j.group && !s.waitsUnread(j) {
			s.fail("%v, of group %d, is acknowledged when %d groups are on disk", j, j.group, n)
		}
		j.disk = sure
	}
}

// removed: an end was acknowledged.
func (s *sim) removed(jobs []*simJob) {
	for _, j := range jobs {
		if j.now == gone {
			j.disk = gone
		}
	}
}

// committed: all is on disk.
func (s *sim) committed() {
	for _, j := range s.jobs {
		if j.disk = j.now; j.volatile() {
			j.disk = gone
		}
		j.preds, j.late, j.recordDisk = append(j.preds, j.late...), nil, j.record
		if !j.lost {
			j.kept = j.location
		}
	}
	for _, k := range s.config {
		k.disk = len(k.values) - 1
	}
	s.ktsDisk = s.kts.clone()
}

// crashed: what is not on disk for sure is not there for sure, and nobody is connected.
func (s *sim) crashed() {
	s.ending = false
	for _, c := range s.conns {
		s.takesAlong(c)
	}
	s.conns, s.parted, s.flights, s.hubOwed, s.ktsFlights, s.ktsOwed = nil, nil, nil, 0, nil, 0
	s.ids = map[string][]*simJob{}
	for _, l := range locations {
		s.signs[l] = s.server.Now().Mono // nobody could give any
	}
	for _, j := range s.jobs {
		if j.putOff {
			j.notBefore = 0 // that may be lost
		}
		j.now, j.holder, j.keyed, j.owner, j.asked, j.asks, j.group = j.disk, nil, false, nil, false, 0, 0
		j.ghosts, j.late = append(j.ghosts, j.late...), nil
		j.lost = j.by == ofDwork && j.kept == "" && s.restart == loop.DworkKeep
		if s.restart == loop.DworkReady || j.kept != "" && !slices.Contains(locations, j.kept) { // its worker's connection has ended
			j.moves("")
		}
		if j.record != j.recordDisk { // the changes since may be there, or not
			j.record.least, j.record.dated = j.recordDisk.least, false
		}
	}
}

// endTurn is the end of all turns under way: nothing is in the air in the server.
func (s *sim) endTurn() {
	s.reap()
	if s.misdated != "" {
		s.fail("%s", s.misdated)
	}
	s.heardAll()
	s.hungUp()
	s.answered()
	s.idles()
	for _, j := range s.behind {
		if j.now == sure && j.holder == nil && j.turn < s.turn && !j.lost && !s.waitsUnread(j) {
			s.fail("%v waits, and stands in a dump behind one that runs", j)
		}
	}
	for _, j := range s.missing {
		if j.now == sure && !s.waitsUnread(j) {
			s.fail("%v is not in a dump, or is lost", j)
		}
	}
	s.behind, s.missing = nil, nil
	for _, w := range s.swaps {
		for _, r := range w.better {
			if r.now == sure && r.turn < s.turn && r.keyed {
				s.fail("%v (priority %d, due %d) is handed out before %v (%d, %d)", w.given, w.given.priority, w.given.due, r, r.priority, r.due)
			}
		}
	}
	s.swaps = s.swaps[:0]
	s.turn++
	s.mixed = false
	s.began = s.server.Now().Wall
}

// answered checks, at the end of a turn, that all have been told what waits for nothing: masters what became of what
// they submitted, clients that something makes no sense.
func (s *sim) answered() {
	for _, c := range s.conns {
		if c.peer.Closed() {
			continue
		}
		if s.admitted(c); len(c.acks) > 0 {
			s.fail("c%d has submitted %v, and that is not acknowledged", c.id, c.acks[0])
		}
		for _, r := range c.requests {
			if !c.slow && (r.refused && !r.doubtful || r.cmd == periodic.Ping || r.cmd == periodic.ConfigGet || r.cmd == periodic.Status) {
				s.fail("c%d has sent a %v, and has no answer", c.id, r.cmd)
			}
		}
	}
}
