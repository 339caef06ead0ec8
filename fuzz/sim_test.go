//go:build invariants

package fuzz

import (
	"flag"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/codec/dwork"
	"treadle/codec/periodic"
	"treadle/loop"
)

// The simulation: one server in memory, with the real sessions, codecs, scheduler and journal,
// and peers of Periodic in both framings, Gloom, dwork and kts46 around it. The clock, the network
// and the disk are simulated, and whatever can happen to them happens, in an order that the
// seed alone decides. A ledger at the server's door knows what the server has promised. It
// is checked all the time, as are the scheduler's own structures; at the end all peers behave,
// and everything that was promised must have come true.
var (
	simSeed  = flag.Uint64("sim.seed", 0, "the one seed that TestSimulation plays; 0: the first -sim.seeds")
	simSeeds = flag.Uint64("sim.seeds", 30, "how many seeds TestSimulation plays")
	simFor   = flag.Duration("sim.for", 0, "play seeds from -sim.from on for so long")
	simFrom  = flag.Uint64("sim.from", 1, "the first seed")
	simOps   = flag.Int("sim.ops", 1000, "steps of each seed")
	simKeep  = flag.String("sim.keep", "", "play these steps alone, as in 0-7,12")
	simTrace = flag.Bool("sim.trace", false, "print all that happens")
)

// worked is how many queues have workers. Of three more one has none, one is broadcast, and one has
// the tasks of dwork.
const worked, broadcast, graph = 3, 4, 5

// simEras are those of the CRC framing's replies.
var simEras = []string{"2019-02", "2019", "2020", "2023", "2026"}

// manyShards is how many shards the server has where it has more than one.
const manyShards = 4

// hashSeed is the same for all plays of a process: one that fits is not found at once.
var hashSeed = sync.OnceValue(func() maphash.Seed { return loop.OfflineSeed(manyShards) })

// simFailure ends a play.
type simFailure string

// sim is one play.
type sim struct {
	ledger
	rng        *rand.Rand
	server     *loop.Offline
	disk       *simDisk
	seed       maphash.Seed
	era        string
	grab       loop.Grab // what becomes of a GRAB_JOB when there is nothing
	stops      string    // whether a client may stop the server
	shards     int
	frame      int // the largest, and the most that waits for a peer
	schedBatch int // how many jobs the scheduler moves at once; 0: as many as ever

	logSize int64 // with which a log of the journal is full
	batch   int   // with which a part of one of its groups ends
	queues  []string
	trace   strings.Builder

	conns   []*simConn
	parted  []*simConn // that have said all, and are owed what waits for a commit
	flights []*flight
	hubOwed int                  // calls of dwork that wait for a commit
	stolen  map[string][]*simJob // by location: what its worker has heard of

	complete string           // whose tasks a location may complete
	stopped  string           // what a Steal is answered while the server stops
	restart  string           // what becomes of stolen tasks when the server starts again
	remember time.Duration    // how long complete tasks can be looked up
	lease    time.Duration    // of silent workers of tasks; 0: they keep them
	signs    map[string]int64 // by location: Mono of the last sign of life

	runs int // that have begun

	chunks    map[string][]*chunk // by topic
	published int

	kts, ktsDisk *ktsBook // now, and as of the last commit
	ktsNext      *ktsBook // as of the group that a slow disk is at
	ktsPeers     []*ktsPeer
	ktsFlights   []*ktsFlight
	ktsAcked     int64         // the last change of the book that was acknowledged
	ktsOwed      int           // calls that wait for a commit
	restartAfter time.Duration // of silent kts46 workers; 0: never

	turn     int   // settled so often
	full     bool  // the disk is
	fills    int   // times that this has changed
	syncing  bool  // the disk is at a group, and others go on
	mixed    bool  // something is under way in the server
	ending   bool  // a client has asked it to stop
	stopping bool  // it has begun to
	began    int64 // the wall clock at the end of the last turn

	first string // failure

	made, handed, done, results, crashes int
}

// fail ends the play. It may be called from within the server, which ends a session then and
// no more: so the first one is kept.
func (s *sim) fail(format string, args ...any) {
	if s.first == "" {
		s.first = fmt.Sprintf(format, args...)
	}
	panic(simFailure(s.first))
}

func (s *sim) say(format string, args ...any) { fmt.Fprintf(&s.trace, format+"\n", args...) }

// play plays the steps of a seed that keep names, nil: all, and returns what went wrong.
func playSim(seed uint64, ops int, keep []bool) (s *sim, failedAt int, failure error) {
	first := rand.New(rand.NewPCG(seed, math.MaxUint64))
	s = &sim{
		ledger: ledger{names: map[string][]*simJob{}, ids: map[string][]*simJob{}}, stolen: map[string][]*simJob{}, signs: map[string]int64{}, chunks: map[string][]*chunk{},
		era: simEras[first.IntN(len(simEras))], shards: []int{1, manyShards}[first.IntN(2)],
	}
	s.seed = hashSeed()
	s.job(ofPeriodic, 0, "") // no job is called j0
	s.grab, s.stops = []loop.Grab{loop.GrabHold, loop.GrabDocument}[first.IntN(2)], []string{"on", "off"}[first.IntN(2)]
	s.logSize, s.config = []int64{1, 2 << 10, 16 << 10, 0}[first.IntN(4)], newSettings()
	s.batch = []int{0, 65, 65, 200}[first.IntN(4)] // with 65 each change is a part
	s.kts, s.ktsDisk, s.restartAfter = newKtsBook(), newKtsBook(), []time.Duration{0, 20 * time.Second}[first.IntN(2)]
	s.restart, s.remember = []string{loop.DworkKeep, loop.DworkReady}[first.IntN(2)], []time.Duration{0, 10 * time.Second}[first.IntN(2)]
	s.schedBatch = []int{0, 1, 3}[first.IntN(3)]
	s.frame = []int{4 << 10, 16 << 10, 256 << 10}[first.IntN(3)]
	s.lease = []time.Duration{0, 15 * time.Second}[first.IntN(2)]
	s.complete = []string{loop.DworkAny, loop.DworkHolder}[first.IntN(2)]
	s.stopped = []string{loop.DworkExit, loop.DworkNotFound}[first.IntN(2)]
	for i := range s.kts.tops {
		s.ktsPeers = append(s.ktsPeers, &ktsPeer{number: i, v2: i%2 == 1})
	}
	at := 0
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(simFailure)
			if !ok {
				panic(p)
			}
			if s.first == "" {
				s.first = string(f)
			}
			failedAt, failure = at, fmt.Errorf("seed %d, step %d: %s", seed, at, s.first)
		}
		s.letGo()
	}()
	s.rng = first
	s.start(vfs.NewCrashableMem(), loop.Surroundings{})
	s.name()
	for ; at < ops; at++ {
		if keep != nil && !keep[at] {
			continue
		}
		s.rng = rand.New(rand.NewPCG(seed, uint64(at)))
		s.say("step %d", at)
		s.step()
		if s.ending {
			s.shutDown()
		}
		if err := s.server.Check(); err != nil {
			s.fail("%v", err)
		}
	}
	s.rng = rand.New(rand.NewPCG(seed, uint64(ops)))
	s.finish()
	return s, 0, nil
}

// fill has the disk be full, or not any more: new jobs are refused then, and everything else
// goes on.
func (s *sim) fill(full bool) {
	if full != s.full {
		s.fills++
	}
	s.full = full
	s.disk.full.Store(full)
	s.server.Look()
}

// name names the queues, so that each is of the same shard in every play and no name is longer
// than in another.
func (s *sim) name() {
	for i := range broadcast + 1 {
		name := ""
		for k := 0; name == "" || s.server.ShardOf(name) != i%s.shards; k++ {
			name = fmt.Sprintf("q%d.%03d", i, k)
		}
		s.queues = append(s.queues, name)
	}
	s.queues = append(s.queues, "dwork")
}

// audit asks for everything that is there; false: it has to wait for somebody's dump.
func (s *sim) audit() bool {
	s.settle()
	s.checkSettings(false)
	body := s.dump(s.server, s.era)
	if body == nil {
		return false
	}
	there := s.dumped(s.turn, body)
	for _, j := range s.jobs { // the order of a dump is the server's affair
		if there[j] {
			s.say("%v is there", j)
		}
		switch j.by {
		case ofPeriodic:
			if j.now == maybe && !there[j] {
				s.end(j)
			} else if j.now == maybe {
				j.now = sure
			}
		case ofDwork:
			s.look(j)
		}
	}
	s.auditGraph()
	s.counted()
	s.say("audited")
	return true
}

// finish lets everybody behave until all is done, and all leave: then nothing is left that
// was promised, and no trace of anybody.
func (s *sim) finish() {
	s.say("finish")
	s.settle()
	s.fill(false)
	for _, c := range s.conns {
		c.peer.Broken, c.peer.Window, c.fin = false, math.MaxInt, false
	}
	s.server.Jump(time.Duration(s.wall-s.server.Now().Wall) * time.Millisecond)
	s.pass(0)                               // jobs may be due now
	s.sets(s.config[keepaliveSetting], 300) // who waits is silent
	w := s.connect(plainWorker)
	for i := range s.queues {
		w.serves(s, i)
	}
	s.drainGraph()
	s.ktsFinish()
	for range 60 {
		for s.pump(w) {
		}
		s.pass(3 * time.Second) // what was put off comes due
	}
	if !s.audit() {
		s.fail("somebody's dump is never read")
	}
	for _, j := range s.jobs {
		if j.now == sure {
			s.fail("%v is never done", j)
		}
		if j.owner != nil {
			s.fail("c%d never hears of %v", j.owner.id, j)
		}
		if j.asked {
			s.fail("the node never hears of %v", j)
		}
	}
	for _, c := range s.conns {
		for _, r := range c.requests {
			if r.receiver != nil {
				s.missed(c, r.receiver, len(s.chunks[topic(r.receiver.queue, r.receiver.name)]))
			} else if r.cmd != periodic.GrabJob && r.cmd != periodic.Sleep {
				s.fail("c%d never has an answer to its %v", c.id, r.cmd)
			}
		}
	}
	for _, c := range slices.Clone(s.conns) {
		c.peer.Close()
	}
	s.settle()
	if err := s.server.Check(); err != nil {
		s.fail("when all have left: %v", err)
	}
	s.say("all is done")
}

// pump has all peers say what they have to, hear what there is to hear and do what they have;
// false: nothing happened.
func (s *sim) pump(w *simConn) (more bool) {
	if w.grabs == 0 {
		w.grabs++
		w.ask(&simRequest{cmd: periodic.GrabJob}, nil)
	}
	for _, c := range slices.Clone(s.conns) {
		for len(c.held) > 0 && !c.garbled {
			more = true
			if c.gloom() {
				s.slaves(c)
				continue
			}
			h := c.held[0]
			c.held = c.held[1:]
			s.gives(c, h, 2)
		}
		s.deliver(c, math.MaxInt)
		s.settle()
		s.read(c, math.MaxInt)
	}
	s.commit()
	for _, c := range s.conns {
		s.read(c, math.MaxInt)
		more = more || len(c.held) > 0
	}
	return more
}

// allExit has all workers of the graph say that they leave.
func (s *sim) allExit() {
	for _, l := range locations {
		s.send(&flight{kind: dwork.Exit, location: l})
		s.land(s.flights[len(s.flights)-1])
	}
	s.flights = nil
}

// drainGraph does all tasks.
func (s *sim) drainGraph() {
	for _, f := range s.flights {
		s.land(f)
		s.commit()
	}
	s.flights = nil
	s.allExit()
	for slices.ContainsFunc(s.jobs, func(j *simJob) bool { return j.by == ofDwork && j.now != gone }) {
		s.send(&flight{kind: dwork.Steal, location: locations[0]})
		s.land(s.flights[0])
		s.flights = nil
		held := s.stolen[locations[0]]
		if len(held) == 0 {
			return
		}
		delete(s.stolen, locations[0])
		s.send(&flight{kind: dwork.Complete, location: locations[0], tasks: held})
		s.land(s.flights[0])
		s.flights = nil
		s.commit()
	}
}

// summary is what a play came to; it is the same whenever it is played.
func (s *sim) summary(seed uint64) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.trace.String()))
	return fmt.Sprintf("seed %d: %d connections, %d jobs, handed out %d times, %d done, %d results, %d crashes, trace %016x",
		seed, s.made, len(s.jobs)-1, s.handed, s.done, s.results, s.crashes, h.Sum64())
}

// parseKeep reads -sim.keep.
func parseKeep(t *testing.T, text string, ops int) []bool {
	t.Helper()
	if text == "" {
		return nil
	}
	keep := make([]bool, ops)
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		a, err := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || a < 0 || a > b || b >= ops {
			t.Fatalf("-sim.keep: %q is no range of steps below %d", part, ops)
		}
		for i := a; i <= b; i++ {
			keep[i] = true
		}
	}
	return keep
}
