//go:build invariants

package sim

import (
	"fmt"
	"strings"

	"treadle/fuzz/sim/disk"
	"treadle/fuzz/sim/play"
	"treadle/fuzz/sim/wire"
	"treadle/sched"
)

// Ledger is the model of the server. It stands at the server's boundary, sees everything that passes there, and knows
// of each job whether the server has it, whether it is on disk and which peer holds it. It is told of what arrives when
// it arrives, and checks each answer at once; a check that needs the rest of the turn is made by endTurn.
type Ledger struct {
	trace *play.Trace
	net   *Network
	setup Setup
	clock func() sched.Time // clock of the server
	wall  int64             // the latest time that the wall clock ever showed
	disk  *disk.Disk        // counts the groups of changes that are synced

	jobTable
	tally
	serverState
	turnState

	config    []*setting // what CONFIG_SET sets
	lastDump  []byte
	streams   streams
	granted   []*Lease   // leases that may be on disk or hold their jobs
	operation *operation // the operators' change of all jobs that is under way, or nil

	dworkSigns map[string]int64 // Mono of the last sign of life, by dwork location
	kts        *Kts46Model      // kts46 as it is now
	kts46Saved kts46Saved
	policy     *PolicyModel
	cron       *CronModel
}

// jobTable has all jobs of a play, also those that have ended.
type jobTable struct {
	jobs   []*Job            // by id
	names  map[string][]*Job // by queue, protocol and name
	ids    map[string][]*Job // Gloom jobs by id: all queues share the ids
	queues []string          // names of the queues
	runs   int               // number of runs that have begun
}

// tally counts what has happened in a play, for its summary.
type tally struct{ handed, done, results int }

// serverState is what the play has done to the server and to its disk.
type serverState struct {
	full              bool // the disk is full
	fills             int  // number of times that full has changed
	syncing           bool // the disk syncs a group while the peers continue
	shutdownRequested bool // a client has asked the server to stop
	stopping          bool // the server has begun to stop
}

// newLedger returns the ledger of a server without jobs.
func newLedger(setup Setup) *Ledger {
	t := new(play.Trace)
	l := &Ledger{
		trace: t, setup: setup, net: &Network{dwork: dworkNetwork{stolen: map[string][]*Job{}}, leaseHolders: map[int]*Conn{}},
		jobTable: jobTable{names: map[string][]*Job{}, ids: map[string][]*Job{}}, dworkSigns: map[string]int64{}, streams: streams{chunks: map[string][]*chunk{}},
		config: newSettings(), kts: newKts46Model(), kts46Saved: kts46Saved{disk: newKts46Model()}, cron: newCronModel(),
		policy: &PolicyModel{trace: t, rules: setup.policies},
	}
	l.newJob(ofPeriodic, 0, "") // no job is called j0
	for i := range l.kts.tops {
		l.net.kts.peers = append(l.net.kts.peers, &kts46Peer{number: i, v2: i%2 == 1})
	}
	return l
}

// newJob makes a job that is not submitted yet. Without a name it gets one of its own.
func (l *Ledger) newJob(by protocol, queue int, name string) *Job {
	j := &Job{id: len(l.jobs), by: by, queue: queue, name: name}
	if j.name == "" {
		j.name = fmt.Sprintf("n%d", j.id)
	}
	l.jobs = append(l.jobs, j)
	return j
}

// jobOf finds the job that a workload or a result names; about says where it was seen.
func (l *Ledger) jobOf(workload []byte, about string) *Job {
	text := strings.TrimPrefix(strings.Trim(string(wire.Workload(workload)), `"`), "r") // r begins a result
	if name, ok := strings.CutPrefix(text, `{"name":"`); ok {
		return l.task([]byte(name))
	}
	var id int
	if _, err := fmt.Sscanf(text, "j%d", &id); err != nil || id >= len(l.jobs) {
		l.trace.Failf("%s: got the text %q, want that of a job: j0 to j%d", about, workload, len(l.jobs)-1)
	}
	return l.jobs[id]
}

// exactJobOf is jobOf for a workload, every byte of which must be there.
func (l *Ledger) exactJobOf(workload []byte, about string) *Job {
	j := l.jobOf(workload, about)
	if j.by != ofDwork && strings.Trim(string(wire.Workload(workload)), `"`) != strings.Trim(j.workload(), `"`) {
		l.trace.Failf("%s: got a workload of %d bytes, %q, want the %d bytes of %v", about, len(workload), brief(workload), len(j.workload()), j)
	}
	return j
}

// live counts the jobs that the server may have.
func (l *Ledger) live() (n int) {
	for _, j := range l.jobs {
		if j.inServer != no {
			n++
		}
	}
	return n
}

// group returns the number of the last group of changes in which a change made now can reach the disk. A group that the
// disk is at already takes no more changes.
func (l *Ledger) group() int {
	if l.syncing {
		return l.disk.Groups() + 2
	}
	return l.disk.Groups() + 1
}

// added notes that the server has a new job, due at a Unix second; 0: now.
func (l *Ledger) added(j *Job, at int64) {
	j.inServer, j.onDisk, j.turn, j.came, j.group = sure, maybe, l.turn, l.turn, l.group()
	j.record.schedAt, j.record.schedKnown = at, true
	j.recordDisk = j.record
	if j.volatile() {
		j.onDisk = no
	}
	j.orderKnown, j.due, j.notBefore = true, at*1000, at*1000
	if at == 0 {
		j.due = l.clock().Wall
	}
}

// submitted is added for a job of a protocol where names are unique: it replaces a job of the same name, unless that
// one runs; then it is ignored.
func (l *Ledger) submitted(j *Job, at int64) {
	l.added(j, at)
	if j.nameless { // no other has its name
		return
	}
	key := j.key()
	for _, old := range l.names[key] {
		if !old.mayBeIn(j.queue) { // an operation did not move it
			continue
		}
		known := old.inServer == sure && old.turn < l.turn && !old.moving && !l.underWay
		j.awaited = j.awaited || old.awaited && old.inServer != no
		switch {
		case old.inServer == no:
		case known && old.holder == nil && !old.holderUnknown && !old.parked:
			l.trace.Logf("%v replaces %v", j, old)
			l.end(old)
			old.next = j
		case known && l.holds(old.holder, old):
			l.trace.Logf("%v is ignored, %v runs", j, old)
			j.inServer, j.onDisk = no, no
		default:
			l.doubt(old)
			j.inServer = maybe
			if last := old.lastNext(); last != j {
				last.next = j
			}
		}
	}
	l.names[key] = append(l.names[key], j)
}

// end notes that a job is done, removed or replaced.
func (l *Ledger) end(j *Job) {
	l.cutOff(j)
	j.inServer, j.turn, j.holder = no, l.turn, nil
	j.setLocation("")
	j.onDisk = min(j.onDisk, maybe)
}

// doubt notes that a job may have been done, removed or replaced, or not.
func (l *Ledger) doubt(j *Job) {
	l.cutOff(j)
	if j.inServer == no { // the run of a Gloom job whose master has left may go on
		j.doubtLease()
	}
	j.inServer, j.onDisk, j.holder, j.orderKnown, j.turn = min(j.inServer, maybe), min(j.onDisk, maybe), nil, false, l.turn
	j.holderUnknown, j.record.schedKnown, j.buried = true, false, min(j.buried, maybe)
}

// checkOnDisk checks that a group is synced when a peer is told of something that is in it; format and args say of
// what.
func (l *Ledger) checkOnDisk(group int, format string, args ...any) {
	if n := l.disk.Groups(); n < group {
		l.trace.Failf("%s before group %d, which has it, is synced: %d groups are", fmt.Sprintf(format, args...), group, n)
	}
}

// acknowledged notes that the server has acknowledged a job, and checks that the job is on disk. There is one
// exception: a job that was broadcast within its group leaves nothing for the disk, even if the workers have
// not read it yet.
func (l *Ledger) acknowledged(j *Job) {
	if j.inServer == sure {
		if !l.waitsUnread(j) {
			l.checkOnDisk(j.group, "%v is acknowledged", j)
		}
		j.onDisk, j.saved = sure, true
	}
}

// removed notes that the server has acknowledged the end of jobs: they never come back.
func (l *Ledger) removed(jobs []*Job) {
	for _, j := range jobs {
		if j.inServer == no {
			j.onDisk = no
		}
	}
}

// committed notes that all changes are on disk.
func (l *Ledger) committed() {
	for _, j := range l.jobs {
		if j.onDisk = j.inServer; j.volatile() {
			j.onDisk = no
		}
		j.saved = j.saved || j.onDisk == sure
		j.preds, j.latePreds, j.recordDisk = append(j.preds, j.latePreds...), nil, j.record
		j.buriedDisk, j.failedDisk = j.buried, j.failed
		l.changesCommitted(j)
		if !j.holderUnknown {
			j.savedLocation = j.location
		}
	}
	for _, k := range l.config {
		k.disk = len(k.values) - 1
	}
	l.kts46Saved.disk = l.kts.clone()
	l.leasesCommitted()
	l.policy.committed()
	l.cron.committed()
	l.policy.settled()
}

// crashed notes that the server has crashed or was stopped: it has only the jobs that are on disk for sure, may have
// those that may be on disk, and has no connections.
func (l *Ledger) crashed() {
	l.shutdownRequested = false
	l.policy.crashed()
	for _, j := range l.jobs {
		if j.by == ofFaktory && j.holder != nil && j.lease() == nil && !l.holds(j.holder, j) {
			j.failures++ // its time-out may be on disk
		}
	}
	l.leasesCrashed()
	for _, e := range l.cron.entries {
		e.crashed = true
	}
	for _, c := range l.net.conns {
		l.lostUnread(c)
	}
	l.net.crashed()
	l.operation = nil
	l.ids = map[string][]*Job{}
	for _, location := range locations {
		l.dworkSigns[location] = l.clock().Mono // a server that is down gets none
	}
	for _, j := range l.jobs {
		j.crashed(l.setup.dworkRestart)
	}
}
