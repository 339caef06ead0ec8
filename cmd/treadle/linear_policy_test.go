package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"treadle/loop/client"
)

// polRules are the policies and cron entries of the configuration file. Those of polSettings are set at run time.
const polRules = `
[queue.retry]
retries = 2
backoff = "40ms..10s x2"
[queue.keys]
key = "name before :"
key-concurrency = 1
[queue.fair]
key = "name before :"
fair = "key"
[queue.old]
job-ttl = "100ms"
keep-done = 1000000
[[cron]]
name = "file"
queue = "cron"
schedule = "@every 1s"
overlap = "queue"
`

// polSettings are set when the first server has started.
var polSettings = [][3]string{
	{"dead", "retries", "1"}, {"dead", "backoff", "20ms"}, {"dead", "dead-letter", "grave"},
	{"limit", "concurrency", "2"}, {"rate", "rate", "1/s burst 3"}, {"pause", "paused", "no"},
	{"once", "unique-for", "1s"}, {"once", "keep-results", "1000000"},
}

// The policies as the rules of the judge have them.
const (
	polTTL    = int64(100 * time.Millisecond)
	polUnique = int64(time.Second)
	polRate   = 1 // a second
	polBurst  = 3
	polEvery  = time.Second // of the cron entries
	// polSlack is for clocks that count milliseconds.
	polSlack = int64(10 * time.Millisecond)
	// polDelay is for a server that reads its clock, and does what is due some time later.
	polDelay = int64(500 * time.Millisecond)
)

// polRetries are the retries and the first back-off of a queue; each further back-off is twice as long or, in dead, as
// long.
var polRetries = map[string]struct {
	retries, factor int
	first           int64
}{
	"retry": {2, 2, int64(40 * time.Millisecond)},
	"dead":  {1, 1, int64(20 * time.Millisecond)},
}

// polSite is one data directory with the history of all servers on it. Its times are nanoseconds since it began.
type polSite struct {
	*linSite
	began  time.Time
	config string

	mu      sync.Mutex
	submits []polSubmit
	runs    []polRun
	sets    []polSet
	pauses  int           // that operators have set
	kills   map[int]int64 // by round: until then the server lived
	starts  map[int]int64 // by round: from then on it was asked
	cron    map[string][2]time.Time
	ends    polEnds
	leases  []*polLease // that a killed server has given, and nobody has reported on since
	faults  []string    // answers that no rule allows
}

// polSubmit is a submission.
type polSubmit struct {
	round                 int
	queue, name, workload string
	pinged                int64 // the server has read its clock for this job after it
	call, answered        int64 // answered is 0 without an answer
	refused               bool
	awaited               bool // it is a RUN_JOB, which ends with result
	result                string
	notBefore             int64 // it is due then
}

// polRun is one run of a job, as its worker saw it.
type polRun struct {
	round                 int
	queue, name, workload string
	asked, got            int64   // the worker asked for a job and had it
	pinged                int64   // the server has read its clock for the report after it
	end                   int64   // until then the worker had the job for certain
	how                   linKind // what the worker did then
	said                  int64   // the server had read the report; 0: it is not known
	text                  string  // the result, or the error text

	ends int // the round in which the run ended

	// Of workers over HTTP:
	leased       bool
	acknowledged bool  // its end is on disk, or follows from what is
	sent         bool  // the result was sent, perhaps in vain
	delay        int64 // what the worker put the next run off by; 0: the policy says it
}

// polSet is a change of a policy. That which a server has at its start is one, too.
type polSet struct {
	round             int
	queue, key, value string
	call, answered    int64 // answered is 0 without an answer
	read              bool  // a server that has started has it
}

// polRound is one run of the server.
type polRound struct {
	*linRound
	site      *polSite
	number    int
	admin     *client.Admin
	killedAt  atomic.Int64
	http      *http.Client
	leaseFuse atomic.Int64 // answers about leases until the server is killed
}

// kill kills the server, which has lived until killedAt.
func (r *polRound) kill() {
	r.killedAt.CompareAndSwap(0, r.now())
	r.linRound.kill()
}

// TestLinearizablePolicies: the policies and cron entries of queues hold for the jobs that clients and workers of the
// built server see, also while policies change and over kill -9. A part of them submits and works over HTTP, under
// leases that outlive the servers. The rules of the judge are those of polSite.judge. Everything follows from answers
// and from what is kept in the end.
func TestLinearizablePolicies(t *testing.T) {
	t.Parallel()
	s := &polSite{linSite: &linSite{dir: t.TempDir()}, began: time.Now(), config: config(t, polRules),
		kills: make(map[int]int64), starts: make(map[int]int64), cron: make(map[string][2]time.Time)}
	random := rand.New(rand.NewPCG(*linearSeed, 4))
	for n := range *linearRounds + 1 {
		r := s.start(t, n)
		r.fuse.Store(int64(200 + random.IntN(polTurns*polClients*polBurstSize)))
		last := n == *linearRounds
		if n%2 == 0 && !last {
			r.leaseFuse.Store(int64(1 + random.IntN(polLeaseAcks)))
		}
		r.play(t, last)
		for _, err := range r.faults {
			t.Errorf("before the server was killed: %v", err)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	s.endLeases()
	r := s.start(t, *linearRounds+1)
	r.list(t)
	r.kill()
	r.admin.Close()
	faults := s.judge()
	t.Logf("%d kills, %d submissions, %d runs, %d changes of policies, leases: %v", *linearRounds+1, len(s.submits), len(s.runs), len(s.sets), s.outcomes())
	for _, fault := range faults[:min(len(faults), 20)] {
		t.Errorf("seed %d: %s", *linearSeed, fault)
	}
}

// start starts a server on what the last one left and reads its policies.
func (s *polSite) start(t *testing.T, n int) *polRound {
	base := &linRound{site: s.linSite, began: s.began}
	base.runs(start(t, false, "serve", "--config", s.config, "--periodic", s.socket("p"), "--admin", s.socket("a"), "--gloom-masters", "off", "--gloom-slaves", "off",
		"--dwork", "off", "--kts46", "off", "--kts46-json", "off", "--http", "off", "--data", filepath.Join(s.dir, "data"), "--loops", fmt.Sprint(1+n%2)))
	for range 2 {
		base.server.until("listening")
	}
	base.server.drain()
	// The last server has what all before it have left: two jobs of "limit" at a time.
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Duration(n)*2*time.Second)
	t.Cleanup(cancel)
	base.ctx = ctx
	r := &polRound{linRound: base, site: s, number: n, admin: client.NewAdmin(s.socket("a")), http: s.dialHTTP()}
	s.starts[n] = r.now()
	for _, p := range polSettings {
		if n == 0 {
			r.set(p[0], p[1], p[2])
			continue
		}
		r.readSetting(t, p[0], p[1])
	}
	if n == 0 {
		s.cron["file"] = [2]time.Time{time.Now()} // the changes that were answered have its state on disk
		if _, err := r.admin.AddCron(ctx, client.CronEntry{Name: "added", Queue: "cron", Schedule: "@every 1s", Overlap: "queue"}, false); err != nil {
			t.Fatal(err)
		}
		s.cron["added"] = [2]time.Time{time.Now()}
	}
	return r
}

// readSetting reads a value that was set at run time: the last one that was answered, or one whose answer did not come.
func (r *polRound) readSetting(t *testing.T, queue, key string) {
	s := polSet{round: r.number, queue: queue, key: key, call: r.now(), read: true}
	table, err := r.admin.Policy(r.ctx, queue)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range table.Values {
		if v.Key == key {
			s.value = v.Value
		}
	}
	s.answered = r.now()
	var possible []string
	for _, before := range r.site.sets {
		switch {
		case before.queue != queue || before.key != key:
		case before.answered != 0:
			possible = []string{before.value}
		default:
			possible = append(possible, before.value)
		}
	}
	if !slices.Contains(possible, s.value) {
		t.Errorf("seed %d: after kill %d the %s of %s is %q, want one of %q", *linearSeed, r.number, key, queue, s.value, possible)
	}
	r.site.sets = append(r.site.sets, s)
}

// set changes a policy. It returns false without an answer.
func (r *polRound) set(queue, key, value string) bool {
	s := polSet{round: r.number, queue: queue, key: key, value: value, call: r.now()}
	_, err := r.admin.SetPolicy(r.ctx, queue, map[string]*string{key: &value})
	if err == nil {
		s.answered = r.now()
	} else {
		r.fault(err)
	}
	r.site.mu.Lock()
	defer r.site.mu.Unlock()
	r.site.sets = append(r.site.sets, s)
	return err == nil
}

// play runs clients, workers and an operator until the server is killed: in the middle of it or, in the last round,
// when all jobs have ended.
func (r *polRound) play(t *testing.T, last bool) {
	var clients, workers, operators sync.WaitGroup
	random := func() *rand.Rand { return rand.New(rand.NewPCG(*linearSeed, uint64(r.site.number()))) }
	over := make(chan struct{})
	if !last {
		for range polClients {
			rng := random()
			clients.Go(func() { r.client(rng) })
		}
		once, operator := random(), random()
		clients.Go(func() { r.onceClient(once) })
		operators.Go(func() { r.operate(operator, over) })
	}
	work := func(w polWork) {
		for range w.slots {
			rng := random()
			workers.Go(func() { r.serve(rng, w) })
		}
	}
	for _, w := range polWorkers {
		work(w)
	}
	for _, queues := range polReservers {
		rng := random()
		workers.Go(func() { r.reserver(rng, queues) })
	}
	clients.Wait()
	if last {
		ended := r.endCron("file") && r.endCron("added")
		work(polWork{queue: "old", slots: 1}) // what has not expired until now
		if !ended || !r.finish() {
			t.Errorf("the last server did not end all jobs: %s", r.left(t.Context()))
		}
	}
	close(over)
	r.kill()
	operators.Wait()
	<-r.server.drained
	_ = r.server.Wait() // it was killed
	workers.Wait()
	r.admin.Close()
	r.http.CloseIdleConnections()
	r.site.kills[r.number] = r.killedAt.Load()
}

// finish has all jobs end: it returns true when no queue has any, and that is on disk.
func (r *polRound) finish() bool {
	if !r.set("pause", "paused", "no") || !r.set("rate", "rate", "100000/s") {
		return false
	}
	c, err := client.Dial(r.ctx, r.site.socket("p"), client.Options{})
	if err != nil {
		r.fault(err)
		return false
	}
	defer c.Close()
	for {
		idle := r.idle(c)
		moving, err := r.admin.Jobs(r.ctx, "state:failed queue:dead", "", 1)
		if err != nil {
			r.fault(err)
			return false
		}
		if idle && len(moving.Jobs) == 0 && r.idle(c) {
			return r.set("limit", "concurrency", "2")
		}
		if r.ctx.Err() != nil {
			return false
		}
	}
}

// idle reports whether no queue has a job.
func (r *polRound) idle(c *client.Client) bool {
	rows, err := c.Status(r.ctx)
	if err != nil {
		r.fault(err)
		return false
	}
	return !slices.ContainsFunc(rows, func(q client.Queue) bool { return q.Jobs > 0 })
}

// left describes some of the jobs that have not ended.
func (r *polRound) left(ctx context.Context) string {
	page, err := r.admin.Jobs(ctx, "", "", 20)
	b, _ := json.Marshal(page) // it was read as JSON
	return fmt.Sprintf("%v %s", err, b)
}

// endCron pauses an entry when it has had a time or two.
func (r *polRound) endCron(name string) bool {
	for r.ctx.Err() == nil {
		e, err := r.admin.CronEntry(r.ctx, name, 1)
		if err != nil || len(e.Next) == 0 {
			r.fault(errors.Join(err, fmt.Errorf("%s: %v", name, e.Next)))
			return false
		}
		next, err := time.Parse(time.RFC3339, e.Next[0])
		if err != nil {
			r.fault(err)
			return false
		}
		if from := r.site.cron[name][0]; next.Sub(from) > 2*polEvery {
			r.site.cron[name] = [2]time.Time{from, next}
			return r.admin.PauseCron(r.ctx, name, "") == nil
		}
	}
	return false
}
