//go:build invariants

package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/codec/dwork"
	"treadle/codec/periodic"
	"treadle/fuzz/sim/play"
	"treadle/loop"
)

// The queues of the play as indexes of Ledger.queues. The queue with a policy and that of cron entries are others.
const (
	workedQueues   = 3 // number of the first ones, which all workers serve and all protocols but dwork submit to
	spareQueue     = 3 // has no workers
	broadcastQueue = 4 // workers ask for its jobs by BROADCAST
	periodicQueues = 5 // number of all those before, to which clients of Periodic submit
	graphQueue     = 5 // has the tasks of dwork
	queueCount     = 6
)

// jobQueues are the queues that workers of every protocol serve, and workerQueues those of Periodic workers.
var jobQueues, workerQueues = []int{0, 1, 2, graphQueue}, []int{0, 1, 2, broadcastQueue, graphQueue}

// periodicVersions are the values of PeriodicOptions.CRC of package loop.
var periodicVersions = []string{"2019-02", "2019", "2020", "2023", "2026"}

// manyShards is the number of shards of a server that has more than one.
const manyShards = 4

// Setup is everything that a seed decides once for a whole play: the settings of the server and the sizes
// of its journal.
type Setup struct {
	shards            int           // of the scheduler
	schedBatch        int           // how many jobs the scheduler moves at once; 0: the default
	frame             int           // the largest frame, and the most output that waits for a peer
	periodicVersion   string        // version of the CRC framing's replies
	periodicGrab      string        // the answer to a GRAB_JOB when there is no job
	periodicShutdown  string        // "on": a client may stop the server
	logSize           int64         // the size of a full log of the journal; 0: the default
	batch             int           // the size of a full part of a journal group; 0: the default
	dworkComplete     string        // which locations may complete a task
	dworkStop         string        // the answer to a Steal while the server stops
	dworkRestart      string        // what becomes of stolen tasks at a restart
	dworkRemember     time.Duration // how long a complete task can be looked up
	dworkLease        time.Duration // time after which a silent dwork worker loses its tasks; 0: never
	policies          []*policyRule // rules for queues
	kts46RestartAfter time.Duration // silence after which a kts46 worker's task is given to another; 0: never
}

// newSetup draws a setup.
func newSetup(rng *rand.Rand) (s Setup) {
	s.periodicVersion, s.shards = periodicVersions[rng.IntN(len(periodicVersions))], []int{1, manyShards}[rng.IntN(2)]
	s.periodicGrab, s.periodicShutdown = []string{"hold", "document"}[rng.IntN(2)], []string{"on", "off"}[rng.IntN(2)]
	s.logSize = []int64{1, 2 << 10, 16 << 10, 0}[rng.IntN(4)]
	s.batch = []int{0, 65, 65, 200}[rng.IntN(4)] // with 65 each change is a part of its own
	s.kts46RestartAfter = []time.Duration{0, 20 * time.Second}[rng.IntN(2)]
	s.dworkRestart, s.dworkRemember = []string{"keep", "ready"}[rng.IntN(2)], []time.Duration{0, 10 * time.Second}[rng.IntN(2)]
	s.schedBatch = []int{0, 1, 3}[rng.IntN(3)]
	s.frame = []int{4 << 10, 16 << 10, 256 << 10}[rng.IntN(3)]
	s.dworkLease = []time.Duration{0, 15 * time.Second}[rng.IntN(2)]
	s.dworkComplete = []string{"any", "holder"}[rng.IntN(2)]
	s.dworkStop = []string{"exit", "notfound"}[rng.IntN(2)]
	s.policies = newPolicyRules(rng)
	return s
}

// Simulator plays one seed against one server in memory. It does everything that happens: it has the dice and the
// server, and moves the peers of the network. The ledger has neither: it reads a clock and the disk's count of groups,
// and judges everything that the server does.
type Simulator struct {
	trace  *play.Trace // the ledger's
	net    *Network    // the ledger's
	ledger *Ledger     // all that is known of the server
	rng    *rand.Rand  // dice of the current step
	server *loop.Offline

	connsMade  int // number of connections
	serverEnds int // number of crashes and stops
}

// PlayServer is the play.Player of one server and the peers of all its protocols.
func PlayServer(seed uint64, steps int, keep []bool) (result play.Result) {
	first := rand.New(rand.NewPCG(seed, math.MaxUint64))
	l := newLedger(newSetup(first))
	s := &Simulator{trace: l.trace, net: l.net, ledger: l, rng: first}
	at := 0
	defer func() {
		if p := recover(); p != nil {
			result.FailedAt, result.Failure = at, s.trace.Caught(p, seed, at)
		}
		result.Trace, result.Summary = s.trace.Text(), s.summary(seed)
		s.abandon()
	}()
	s.start(vfs.NewCrashableMem(), loop.Environment{})
	s.nameQueues()
	s.cronBegin()
	for ; at < steps; at++ {
		if keep != nil && !keep[at] {
			continue
		}
		s.rng = rand.New(rand.NewPCG(seed, uint64(at)))
		s.trace.Logf("step %d", at)
		s.step()
		if s.ledger.shutdownRequested {
			s.shutDown()
		}
		if err := s.server.Check(); err != nil {
			s.trace.Failf("the server's structures: %v", err)
		}
	}
	s.rng = rand.New(rand.NewPCG(seed, uint64(steps)))
	s.finish()
	return result
}

// fill makes the disk full, or gives it room again. A full disk refuses new jobs and nothing else.
func (s *Simulator) fill(full bool) {
	if full != s.ledger.full {
		s.ledger.fills++
	}
	s.ledger.full = full
	s.ledger.disk.Fill(full)
	s.server.CheckSpace()
}

// nameQueues chooses names of one length, so that each queue is in the same shard in every play.
func (s *Simulator) nameQueues() {
	for i := range periodicQueues {
		s.ledger.queues = append(s.ledger.queues, s.queueName(fmt.Sprintf("q%d", i), i))
	}
	s.ledger.queues = append(s.ledger.queues, "dwork")
	s.namePolicyQueues()
}

// audit compares all jobs, tasks, settings and counts of the server with the ledger; false: it cannot yet, because a
// peer's dump is still being read.
func (s *Simulator) audit() bool {
	s.settle()
	s.checkSettings(false)
	body := s.dump(s.server, s.ledger.setup.periodicVersion)
	if body == nil {
		return false
	}
	there := s.ledger.checkDump(s.ledger.turn, body)
	for _, j := range s.ledger.jobs { // the order of a dump is the server's affair
		if there[j] {
			s.trace.Logf("%v is there", j)
		}
		switch j.by {
		case ofPeriodic:
			if j.inServer == maybe && !there[j] {
				s.ledger.end(j)
			} else if j.inServer == maybe {
				j.inServer = sure
			}
		case ofDwork:
			s.lookup(j)
		}
	}
	s.auditLines()
	s.auditLeases()
	s.auditGraph()
	s.checkStatus()
	s.trace.Logf("audited")
	return true
}

// finish lets all peers behave until all jobs are done, and disconnects them. Nothing that was promised may be left
// then, and no trace of a peer.
func (s *Simulator) finish() {
	s.trace.Logf("finish")
	s.settle()
	s.fill(false)
	for _, c := range s.net.conns {
		c.peer.Broken, c.peer.Window, c.halfClosing = false, math.MaxInt, false
	}
	s.server.Jump(time.Duration(s.ledger.wall-s.server.Now().Wall) * time.Millisecond)
	s.pass(0) // jobs may be due now
	w := s.connect(plainWorker)
	for i := range s.ledger.queues {
		s.serve(w, i)
	}
	s.drainGraph()
	s.kts46Finish()
	s.doAll(w)
	s.policyFinish()
	if !s.audit() {
		s.trace.Failf("the end: the server still sends a DUMP to some peer, although all peers have read all: want it sent")
	}
	for _, j := range s.ledger.jobs {
		if j.inServer == sure {
			s.trace.Failf("the end: %v of q%d is not done, although a worker serves all queues: want it done or removed", j, j.queue)
		}
		if j.owner != nil {
			s.trace.Failf("the end: c%d has no result of %v of q%d: want one", j.owner.id, j, j.queue)
		}
		if j.nodeWaits {
			s.trace.Failf("the end: the Disbatch node has no result of %v of q%d: want one", j, j.queue)
		}
	}
	for _, c := range s.net.conns {
		for _, r := range c.requests {
			if r.receiver != nil {
				s.ledger.checkMissed(c, r.receiver, len(s.ledger.streams.chunks[topic(r.receiver.queue, r.receiver.name)]))
			} else if r.cmd != periodic.GrabJob && r.cmd != periodic.Sleep {
				s.trace.Failf("the end: c%d has no answer to its %v, message %d, of %v: want one", c.id, r.cmd, r.id, r.job)
			}
		}
	}
	if s.ledger.operation != nil {
		s.trace.Failf("the end: the operation %+v is still running: want it done", s.ledger.operation.jobChange)
	}
	for _, call := range s.net.http.open {
		s.trace.Failf("the end: h%d, %s %s, has no answer: want one", call.number, call.path, call.body)
	}
	for _, c := range slices.Clone(s.net.conns) {
		c.peer.Close()
	}
	s.settle()
	if err := s.server.Check(); err != nil {
		s.trace.Failf("the server's structures, when all peers have left: %v", err)
	}
	s.trace.Logf("all is done")
}

// doAll lets the peers, among them the worker w of all queues, do every job.
func (s *Simulator) doAll(w *Conn) {
	f := s.connect(faktoryPeer)
	for s.pump(w, f) { // the last bury and the last change of a setting arrive
	}
	s.changeSetting(s.ledger.config[keepaliveSetting], 7200) // a peer that waits for a job is silent, and is not to be closed for that
	s.unburyAll(s.connect(beanstalkPeer))
	for range 60 {
		for s.pump(w, f) {
		}
		s.pass(3 * time.Second) // delayed jobs come due
	}
	for range 60 {
		if s.audit() && !slices.ContainsFunc(s.ledger.jobs, func(j *Job) bool { return j.inServer == sure }) {
			return
		}
		s.pass(time.Minute) // reservations that no worker knows of end
		f = s.connect(faktoryPeer)
		for s.pump(w, f) {
		}
	}
}

// pump lets each peer send, read and do what it has; false: nothing happened.
func (s *Simulator) pump(w, f *Conn) (more bool) {
	if w.grabs == 0 {
		w.grabs++
		w.ask(&Request{cmd: periodic.GrabJob}, nil)
	}
	more = !f.peer.Closed() && s.acknowledgeFetched(f)
	for _, c := range slices.Clone(s.net.conns) {
		for len(c.held) > 0 && !c.garbled && (c.grabs == 0 || !c.inLines()) {
			more = true
			switch {
			case c.gloom():
				s.actAsSlave(c)
				continue
			case c.inLines():
				s.reportBeanstalk(c, 0, deleted)
				continue
			}
			h := c.held[0]
			c.held = c.held[1:]
			s.reportJob(c, h, reportDone)
		}
		s.exchange(c)
	}
	s.commit()
	for _, c := range s.net.conns {
		s.read(c, math.MaxInt)
		more = more || len(c.held) > 0 && (c.grabs == 0 || !c.inLines())
	}
	return more
}

// dworkNow makes a call of dwork that arrives at once.
func (s *Simulator) dworkNow(call *dworkCall) {
	s.dworkAsk(call)
	s.dworkArrive(take(&s.net.dwork.onWay, len(s.net.dwork.onWay)-1))
}

// drainGraph completes all tasks.
func (s *Simulator) drainGraph() {
	for _, call := range s.net.dwork.onWay {
		s.dworkArrive(call)
		s.commit()
	}
	s.net.dwork.onWay, s.net.http.onWay = nil, nil
	for _, l := range locations {
		s.dworkNow(&dworkCall{kind: dwork.Exit, location: l})
	}
	for slices.ContainsFunc(s.ledger.jobs, func(j *Job) bool { return j.by == ofDwork && j.inServer != no }) {
		s.dworkNow(&dworkCall{kind: dwork.Steal, location: locations[0]})
		held := s.net.dwork.stolen[locations[0]]
		if len(held) == 0 {
			return
		}
		delete(s.net.dwork.stolen, locations[0])
		s.dworkNow(&dworkCall{kind: dwork.Complete, location: locations[0], tasks: held})
		s.commit()
	}
}

// summary says in one line what the play came to.
func (s *Simulator) summary(seed uint64) string {
	return fmt.Sprintf("seed %d: %d connections, %d jobs, handed out %d times, %d done, %d results, %d crashes and stops, trace %016x",
		seed, s.connsMade, len(s.ledger.jobs)-1, s.ledger.handed, s.ledger.done, s.ledger.results, s.serverEnds, s.trace.Sum())
}
