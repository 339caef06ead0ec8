//go:build invariants

package site

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/fuzz/sim/play"
	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/store"
)

// hostCount is the number of hosts, maxTasks the largest number of tasks, and lateTasks the number of tasks that are
// created at the end.
const (
	hostCount = 3
	maxTasks  = 40
	lateTasks = 8
)

// interval is the time between two ticks of a node, drain how long a stopping node waits for its tasks.
const (
	interval = time.Second
	drain    = 10 * time.Second
)

const configText = `{ "mongohost": "mongodb://database/?loadBalanced=true", "database": "site", "treadle_plugins": {
	"One": {"kind": "function", "function": "one"},
	"Two": {"kind": "function", "function": "two", "timeout": 20},
	"Three": {"kind": "function", "function": "one"},
} }`

// site plays one seed against a Disbatch site.
type site struct {
	trace     *play.Trace
	ledger    ledger
	seed      uint64
	rng       *rand.Rand
	fake      *mongotest.Server
	config    *config.File
	hosts     []*host
	processes []*process  // every process that was started
	away      atomic.Bool // the database is unreachable; the connections read it
	losing    int         // number of the next claims that lose their replies

	messages []*message // messages on their way, in the order of their arrival
	sender   *process   // sender of the message that was delivered last

	mu      sync.Mutex
	arrived []*message // messages since the last settle, in any order
}

// Play is the play.Player of a Disbatch site. It is called in a bubble of testing/synctest.
func Play(seed uint64, steps int, keep []bool) (result play.Result) {
	s, at := newSite(seed), 0
	defer func() {
		if p := recover(); p != nil {
			result.FailedAt, result.Failure = at, s.trace.Caught(p, seed, at)
		}
		result.Trace, result.Summary = s.trace.Text(), s.summary(seed)
		s.abandon()
	}()
	for ; at < steps; at++ {
		if keep != nil && !keep[at] {
			continue
		}
		s.rng = rand.New(rand.NewPCG(seed, uint64(at)))
		s.trace.Logf("step %d", at)
		s.step()
	}
	s.rng = rand.New(rand.NewPCG(seed, uint64(steps)))
	s.finish()
	return result
}

// summary says in one line what the play came to.
func (s *site) summary(seed uint64) string {
	ends := map[int]int{}
	for _, t := range s.ledger.tasks {
		ends[t.status]++
	}
	return fmt.Sprintf("seed %d: %d servers, %d tasks, %d succeeded, %d failed, %d orphaned, trace %016x",
		seed, len(s.processes), len(s.ledger.tasks), ends[store.StatusSucceeded], ends[store.StatusFailed], ends[store.StatusOrphaned], s.trace.Sum())
}

// newSite returns a site with its queues, made by a seed.
func newSite(seed uint64) *site {
	s := &site{trace: new(play.Trace), seed: seed, rng: rand.New(rand.NewPCG(seed, math.MaxUint64)), fake: mongotest.New()}
	var err error
	if s.config, err = config.Parse([]byte(configText)); err != nil {
		panic(err) // the database is ours
	}
	s.ledger.queues = []*queue{
		{name: "one", limit: 1 + s.rng.IntN(3), sort: "fifo", schema: store.Schema2018, plugin: "One"},
		{name: "two", limit: 1 + s.rng.IntN(3), sort: "lifo", schema: store.Schema2016, plugin: "Two", timeout: 20 * time.Second},
		{name: "three", limit: 1 + s.rng.IntN(3), sort: "default", schema: store.Schema2018, plugin: "Three"},
	}
	for i, q := range s.ledger.queues {
		q.id = objectID(1000 + i)
		s.run(bson.D{{Key: "insert", Value: "queues"}, {Key: "documents", Value: bson.A{q.document()}}})
	}
	for i := range hostCount {
		h := &host{number: i, name: fmt.Sprint("h", i), limit: store.NoLimit, skew: time.Duration(s.rng.IntN(7200)-3600) * time.Second}
		if s.rng.IntN(3) == 0 {
			h.limit = 1 + s.rng.IntN(3)
			s.run(bson.D{{Key: "insert", Value: "nodes"}, {Key: "documents", Value: bson.A{
				bson.D{{Key: "_id", Value: objectID(2000 + i)}, {Key: "node", Value: h.name}, {Key: "maxthreads", Value: h.limit}},
			}}})
		}
		s.hosts = append(s.hosts, h)
	}
	return s
}

// objectID is an id that is larger for a larger number.
func objectID(n int) (id primitive.ObjectID) {
	id[0], id[10], id[11] = 0x60, byte(n>>8), byte(n)
	return id
}

// run runs a command in the database at once.
func (s *site) run(command bson.D) bson.Raw {
	reply, err := bson.Marshal(s.fake.Run(append(command, bson.E{Key: "$db", Value: "site"})))
	if err != nil {
		panic(err) // the fake makes documents
	}
	if ok, _ := bson.Raw(reply).Lookup("ok").DoubleOK(); ok != 1 {
		s.trace.Failf("the database refuses %v: %s", command, bson.Raw(reply))
	}
	return reply
}

// stepTable are the steps of Play, for a host that has a server.
var stepTable = play.NewTable(
	play.Of(60, func(s *site, _ *host) { s.submit() }),
	play.Of(100, (*site).work),
	play.Of(480, func(s *site, _ *host) { s.deliverOne() }),
	play.Of(140, func(s *site, _ *host) {
		for range s.rng.IntN(20) {
			s.deliverOne()
		}
	}),
	play.Of(160, func(s *site, _ *host) { s.pass(time.Duration(s.rng.IntN(1500)) * time.Millisecond) }),
	play.Of(10, func(s *site, _ *host) { s.pass(time.Duration(s.rng.IntN(30)) * time.Second) }),
	play.Of(12, (*site).kill),
	play.Of(12, (*site).stop),
	play.Of(6, (*site).stopInOrder),
	play.Of(20, func(s *site, _ *host) { s.toggleDatabase() }),
)

// step does the next thing.
func (s *site) step() {
	h := s.hosts[s.rng.IntN(hostCount)]
	next := stepTable.Draw(s.rng)
	if h.process == nil {
		next = (*site).start
	}
	next(s, h)
}

// submit creates a task, as a command interface does.
func (s *site) submit() {
	if len(s.ledger.tasks) < maxTasks {
		s.create(s.ledger.queues[s.rng.IntN(len(s.ledger.queues))])
	}
}

// deliverOne delivers one message, in one case of 25 with a fault.
func (s *site) deliverOne() {
	if len(s.messages) == 0 {
		return
	}
	i := s.rng.IntN(len(s.messages))
	m := s.messages[i]
	s.messages = slices.Delete(s.messages, i, i+1)
	fault := mongotest.None
	if s.rng.IntN(25) == 0 {
		fault = []mongotest.Fault{mongotest.LoseReply, mongotest.LoseCall, mongotest.CutReply, mongotest.Refuse}[s.rng.IntN(4)]
	}
	s.deliver(m, fault)
}

// deliver delivers a message. It takes a random moment, so that no two timers end at the same time.
func (s *site) deliver(m *message, fault mongotest.Fault) {
	s.trace.Logf("%s%s", m, []string{"", ", its reply is lost", ", lost", "", ", its reply is cut", ", refused"}[fault])
	s.sender = m.process
	m.pass(fault)
	s.settle()
	time.Sleep(time.Duration(1 + s.rng.IntN(int(time.Millisecond))))
	s.settle()
}

// settle waits until every goroutine waits, and checks everything.
func (s *site) settle() {
	synctest.Wait()
	s.mu.Lock()
	arrived := s.arrived
	s.arrived = nil
	s.mu.Unlock()
	slices.SortStableFunc(arrived, func(a, b *message) int { return strings.Compare(a.String(), b.String()) })
	for _, m := range arrived {
		s.trace.Logf("+ %v", m)
	}
	s.messages = append(s.messages, arrived...)
	for _, h := range s.hosts {
		if h.process != nil {
			s.readAll(h.process)
		}
	}
	s.checkTasks()
	for _, h := range s.hosts {
		if h.process != nil {
			s.checkEnded(h.process)
		}
	}
}

// pass lets time pass.
func (s *site) pass(d time.Duration) {
	s.trace.Logf("%v pass", d)
	time.Sleep(d)
	for _, h := range s.hosts {
		if h.process != nil {
			h.process.server.Advance(d)
		}
	}
	s.settle()
}

// toggleDatabase makes the database unreachable, or reachable again.
func (s *site) toggleDatabase() {
	away := !s.away.Load()
	s.away.Store(away)
	s.trace.Logf("the database is away: %v", away)
	if away {
		// One after the other: calls that fail at one instant are in no order.
		for slices.ContainsFunc(s.messages, (*message).breaks) {
			i := slices.IndexFunc(s.messages, (*message).breaks)
			m := s.messages[i]
			s.messages = slices.Delete(s.messages, i, i+1)
			s.deliver(m, mongotest.LoseCall)
		}
		for _, h := range s.hosts {
			if h.process != nil {
				s.cut(h.process, true)
			}
		}
	}
	s.settle()
}
