//go:build invariants

package fuzz

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/mongotest"
)

// The simulation of a Disbatch site: three hosts, each a node inside of a server in memory with
// Periodic workers of functions, around the double of their database. Nodes, driver and double
// are the real ones, with their goroutines, in a bubble of testing/synctest: its clock stands
// still while anybody can go on. Whatever one of them asks of the database or of its server
// waits on its way, there and back, until the play lets it pass; so what happens, and in which
// order, is decided by the seed alone. A ledger follows each task's document.

// siteHosts is how many hosts there are, siteTasks how many tasks at most, and siteLateTasks how
// many more come at the end.
const (
	siteHosts     = 3
	siteTasks     = 40
	siteLateTasks = 8
)

// siteInterval is the time between ticks of a node, drain how long one that stops waits.
const (
	siteInterval = time.Second
	siteDrain    = 10 * time.Second
)

const siteConfig = `{ "mongohost": "mongodb://database/?loadBalanced=true", "database": "site", "treadle_plugins": {
	"One": {"kind": "function", "function": "one"},
	"Two": {"kind": "function", "function": "two", "timeout": 20},
	"Three": {"kind": "function", "function": "one"},
} }`

// site is one play.
type site struct {
	siteLedger
	seed   uint64
	rng    *rand.Rand
	trace  strings.Builder
	first  string // failure
	double *mongotest.Server
	config *disbatch.Config
	hosts  []*siteHost
	lives  []*siteLife // all that there were
	away   atomic.Bool // the database is; the connections read it
	losing int         // of the claims to come, lose their replies

	passages []*passage // in the order in which they came
	passing  *siteLife  // whose passage was let pass last

	mu      sync.Mutex
	arrived []*passage // since the last settle, in any order
}

func (s *site) say(format string, args ...any) { fmt.Fprintf(&s.trace, format+"\n", args...) }

func (s *site) fail(format string, args ...any) {
	if s.first == "" {
		s.first = fmt.Sprintf(format, args...)
	}
	panic(simFailure(s.first))
}

// playSite is a player.
func playSite(t *testing.T, seed uint64, ops int, keep []bool) (result played) {
	synctest.Test(t, func(*testing.T) {
		s, at := newSite(seed), 0
		defer func() {
			if p := recover(); p != nil {
				f, ok := p.(simFailure)
				if !ok {
					panic(p)
				}
				result.failedAt, result.failure = at, fmt.Errorf("seed %d, step %d: %s", seed, at, f)
			}
			result.trace, result.summary = s.trace.String(), s.summary(seed)
			s.letGo()
		}()
		for ; at < ops; at++ {
			if keep != nil && !keep[at] {
				continue
			}
			s.rng = rand.New(rand.NewPCG(seed, uint64(at)))
			s.say("step %d", at)
			s.step()
		}
		s.rng = rand.New(rand.NewPCG(seed, uint64(ops)))
		s.finish()
	})
	return result
}

// summary is what a play came to; it is the same whenever it is played.
func (s *site) summary(seed uint64) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.trace.String()))
	ends := map[int]int{}
	for _, t := range s.tasks {
		ends[t.status]++
	}
	return fmt.Sprintf("seed %d: %d servers, %d tasks, %d succeeded, %d failed, %d orphaned, trace %016x",
		seed, len(s.lives), len(s.tasks), ends[disbatch.StatusSucceeded], ends[disbatch.StatusFailed], ends[disbatch.StatusOrphaned], h.Sum64())
}

func newSite(seed uint64) *site {
	s := &site{seed: seed, rng: rand.New(rand.NewPCG(seed, math.MaxUint64)), double: mongotest.New()}
	var err error
	if s.config, err = disbatch.ParseConfig([]byte(siteConfig)); err != nil {
		panic(err) // it is ours
	}
	s.queues = []*siteQueue{
		{name: "one", limit: 1 + s.rng.IntN(3), sort: disbatch.SortFIFO, schema: disbatch.Schema2018, plugin: "One"},
		{name: "two", limit: 1 + s.rng.IntN(3), sort: disbatch.SortLIFO, schema: disbatch.Schema2016, plugin: "Two", timeout: 20 * time.Second},
		{name: "three", limit: 1 + s.rng.IntN(3), sort: disbatch.SortDefault, schema: disbatch.Schema2018, plugin: "Three"},
	}
	for i, q := range s.queues {
		q.id = siteID(1000 + i)
		s.run(bson.D{{Key: "insert", Value: "queues"}, {Key: "documents", Value: bson.A{q.document()}}})
	}
	for i := range siteHosts {
		h := &siteHost{number: i, name: fmt.Sprint("h", i), limit: disbatch.NoLimit, skew: time.Duration(s.rng.IntN(7200)-3600) * time.Second}
		if s.rng.IntN(3) == 0 {
			h.limit = 1 + s.rng.IntN(3)
			s.run(bson.D{{Key: "insert", Value: "nodes"}, {Key: "documents", Value: bson.A{
				bson.D{{Key: "_id", Value: siteID(2000 + i)}, {Key: "node", Value: h.name}, {Key: "maxthreads", Value: h.limit}},
			}}})
		}
		s.hosts = append(s.hosts, h)
	}
	return s
}

// siteID is an id that is larger for a larger number.
func siteID(n int) (id primitive.ObjectID) {
	id[0], id[10], id[11] = 0x60, byte(n>>8), byte(n)
	return id
}

// run has the database do something at once.
func (s *site) run(command bson.D) bson.Raw {
	reply, err := bson.Marshal(s.double.Run(append(command, bson.E{Key: "$db", Value: "site"})))
	if err != nil {
		panic(err) // the double makes documents
	}
	if ok, _ := bson.Raw(reply).Lookup("ok").DoubleOK(); ok != 1 {
		s.fail("%v: %s", command, bson.Raw(reply))
	}
	return reply
}

// step does the next thing.
func (s *site) step() {
	h := s.hosts[s.rng.IntN(siteHosts)]
	switch n := s.rng.IntN(1000); {
	case h.life == nil:
		s.start(h)
	case n < 60:
		s.submits()
	case n < 160:
		s.works(h)
	case n < 640:
		s.lets()
	case n < 780:
		for range s.rng.IntN(20) {
			s.lets()
		}
	case n < 940:
		s.pass(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
	case n < 950:
		s.pass(time.Duration(s.rng.IntN(30)) * time.Second)
	case n < 962:
		s.kill(h)
	case n < 974:
		s.stop(h)
	case n < 980:
		s.stopsInOrder(h)
	default:
		s.comesAndGoes()
	}
}

// submits creates a task, as a command interface does.
func (s *site) submits() {
	if len(s.tasks) < siteTasks {
		s.create(s.queues[s.rng.IntN(len(s.queues))])
	}
}

// lets has something pass, mostly as it should.
func (s *site) lets() {
	if len(s.passages) == 0 {
		return
	}
	i := s.rng.IntN(len(s.passages))
	p := s.passages[i]
	s.passages = slices.Delete(s.passages, i, i+1)
	fault := mongotest.None
	if s.rng.IntN(25) == 0 {
		fault = []mongotest.Fault{mongotest.LoseReply, mongotest.LoseCall, mongotest.CutReply, mongotest.Refuse}[s.rng.IntN(4)]
	}
	s.let(p, fault)
}

// let has one thing pass; that takes a moment, which is never the same, so that nothing that
// waits for a time waits for the same one.
func (s *site) let(p *passage, fault mongotest.Fault) {
	s.say("%s%s", p, []string{"", ", its reply is lost", ", lost", "", ", its reply is cut", ", refused"}[fault])
	s.passing = p.life
	p.pass(fault)
	s.settle()
	time.Sleep(time.Duration(1 + s.rng.IntN(int(time.Millisecond))))
	s.settle()
}

// settle waits until nobody can go on, and checks all.
func (s *site) settle() {
	synctest.Wait()
	s.mu.Lock()
	arrived := s.arrived
	s.arrived = nil
	s.mu.Unlock()
	slices.SortStableFunc(arrived, func(a, b *passage) int { return strings.Compare(a.String(), b.String()) })
	for _, p := range arrived {
		s.say("+ %v", p)
	}
	s.passages = append(s.passages, arrived...)
	for _, h := range s.hosts {
		if h.life != nil {
			s.hears(h.life)
		}
	}
	s.follow()
	for _, h := range s.hosts {
		if h.life != nil {
			s.over(h.life)
		}
	}
}

// pass lets time go by.
func (s *site) pass(d time.Duration) {
	s.say("%v pass", d)
	time.Sleep(d)
	for _, h := range s.hosts {
		if h.life != nil {
			h.life.server.Advance(d)
		}
	}
	s.settle()
}

// comesAndGoes has the database be away, or be there again.
func (s *site) comesAndGoes() {
	away := !s.away.Load()
	s.away.Store(away)
	s.say("the database is away: %v", away)
	if away {
		// One after the other: calls that fail at one instant are in no order.
		for slices.ContainsFunc(s.passages, (*passage).breaks) {
			i := slices.IndexFunc(s.passages, (*passage).breaks)
			p := s.passages[i]
			s.passages = slices.Delete(s.passages, i, i+1)
			s.let(p, mongotest.LoseCall)
		}
		for _, h := range s.hosts {
			if h.life != nil {
				s.cut(h.life, true)
			}
		}
	}
	s.settle()
}

// finish lets everybody behave until all tasks have ended, and has all hosts stop. Of tasks
// that come now the first claims lose their replies: no server starts any more that would find
// what the one before it has forgotten, and the end comes before they are orphans.
func (s *site) finish() {
	s.say("finish")
	if s.away.Load() {
		s.comesAndGoes()
	}
	for i := range siteLateTasks {
		s.create(s.queues[i%len(s.queues)])
	}
	s.losing = siteLateTasks
	for range 400 {
		for _, h := range s.hosts {
			switch {
			case h.life == nil:
				s.start(h)
			case len(h.life.workers) < 2:
				s.joins(h.life)
			}
		}
		s.goOn(nil)
		if s.allEnded() {
			break
		}
	}
	for _, t := range s.tasks {
		if t.status < disbatch.StatusSucceeded && t.status != disbatch.StatusOrphaned {
			s.fail("%v never ends, its status is %d at %q", t, t.status, t.node)
		}
	}
	for _, h := range s.hosts {
		if h.life != nil && !h.life.stopping {
			s.stopsInOrder(h)
		}
	}
	s.say("all is done")
}

// goOn has all that is on its way pass, of one life or of all, lets workers do what they have,
// and some time pass.
func (s *site) goOn(only *siteLife) {
	for round := 0; round < 50; round++ {
		i := slices.IndexFunc(s.passages, func(p *passage) bool { return only == nil || p.life == only })
		if i < 0 {
			break
		}
		p := s.passages[i]
		s.passages = slices.Delete(s.passages, i, i+1)
		fault := mongotest.None
		if s.losing > 0 && !p.back && strings.HasPrefix(p.what, `{"findAndModify"`) {
			s.losing--
			fault = mongotest.LoseReply
		}
		s.let(p, fault)
	}
	for _, h := range s.hosts {
		if h.life == nil || only != nil && h.life != only {
			continue
		}
		for _, w := range slices.Clone(h.life.workers) {
			if w.task != nil && (only == nil || s.rng.IntN(10) == 0) {
				s.gives(w, s.rng.IntN(8))
			}
		}
	}
	s.pass(200 * time.Millisecond)
}

// letGo ends what a play has left running.
func (s *site) letGo() {
	s.away.Store(true)
	for _, h := range s.hosts {
		if h.life != nil {
			s.bury(h.life)
		}
	}
	for _, l := range s.lives {
		for ended := false; !ended; {
			for _, p := range s.passages {
				p.pass(mongotest.LoseCall)
			}
			select {
			case <-l.ended:
				ended = true
			case <-time.After(time.Second):
			}
			synctest.Wait()
			s.mu.Lock()
			s.passages, s.arrived = s.arrived, nil
			s.mu.Unlock()
		}
	}
	time.Sleep(siteDrain) // the driver's goroutines
}
