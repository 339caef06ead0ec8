package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	codec "treadle/codec/admin"
	"treadle/loop/client"
)

// Sizes of a round.
const (
	polClients   = 3
	polTurns     = 60 // of a client
	polBurstSize = 4  // jobs of a turn
	polOnceOps   = 40
	polOnceNames = 4
)

// polWork is the work of some workers, each with a connection of its own.
type polWork struct {
	queue string
	slots int
	fails bool // some jobs fail, are put off, or lose their worker
	most  int  // jobs of one worker in a round; 0: any number
}

var polWorkers = []polWork{
	{"retry", 2, true, 0}, {"dead", 1, true, 0}, {"grave", 1, false, 0},
	{"limit", 4, true, 0}, {"keys", 4, true, 0}, {"fair", 1, false, 0},
	{"rate", 2, false, 0}, {"pause", 2, true, 0}, {"old", 1, false, 3},
	{"once", 2, false, 0}, {"cron", 1, true, 0},
}

// polQueues are the queues of client. Those that hold up their jobs have fewer.
var polQueues = []string{"retry", "retry", "dead", "limit", "limit", "keys", "keys", "fair", "rate", "pause", "pause", "old"}

// client submits bursts of jobs, each with a name of its own.
func (r *polRound) client(rng *rand.Rand) {
	c, err := client.Dial(r.ctx, r.site.socket("p"), client.Options{})
	if err != nil {
		r.fault(err)
		return
	}
	defer c.Close()
	for range polTurns {
		if queue := polQueues[rng.IntN(len(polQueues))]; rng.IntN(3) == 0 {
			r.burstHTTP(rng, queue)
		} else {
			r.burst(rng, c, queue)
		}
		if r.killed.Load() {
			return
		}
	}
}

// burst submits some jobs at once. The PING shows that the server reads its clock again: it does so once for all that
// it reads at a time.
func (r *polRound) burst(rng *rand.Rand, c *client.Client, queue string) {
	pinged := r.now()
	if err := c.Ping(r.ctx); err != nil {
		r.fault(err)
		return
	}
	var burst sync.WaitGroup
	for range polBurstSize {
		n := r.site.number()
		s := polSubmit{queue: queue, name: fmt.Sprintf("%c:%d", 'a'+rng.IntN(3), n), workload: fmt.Sprint("w", n), pinged: pinged}
		burst.Go(func() { r.submit(c, s) })
	}
	burst.Wait()
}

// onceClient submits and runs jobs of few names, one after the other.
func (r *polRound) onceClient(rng *rand.Rand) {
	c, err := client.Dial(r.ctx, r.site.socket("p"), client.Options{})
	if err != nil {
		r.fault(err)
		return
	}
	defer c.Close()
	for i := 0; i < polOnceOps && !r.killed.Load(); i++ {
		n := r.site.number()
		s := polSubmit{queue: "once", name: fmt.Sprint("n", rng.IntN(polOnceNames)), workload: fmt.Sprint("w", n), awaited: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			r.submit(c, s)
			continue
		}
		j := codec.Job{Queue: s.queue, Name: s.name, Workload: s.workload}
		if s.awaited {
			j.Wait = codec.Duration(patience)
		}
		r.submitHTTP(s, &j)
	}
}

// submit makes a submission and notes its answer.
func (r *polRound) submit(c *client.Client, s polSubmit) {
	s.call = r.now()
	j := &client.Job{Func: s.queue, Name: s.name, Workload: []byte(s.workload)}
	var err error
	if s.awaited {
		var result []byte
		result, err = c.Run(r.ctx, j)
		s.result = string(result)
	} else {
		err = c.Submit(r.ctx, j)
	}
	if s.refused = errors.Is(err, client.ErrRefused); s.refused {
		err = nil
	}
	r.submitted(s, err)
}

// submitted notes the answer to a submission, or that none came.
func (r *polRound) submitted(s polSubmit, err error) {
	if s.round = r.number; err == nil {
		s.answered = r.now()
		if r.fuse.Add(-1) == 0 {
			r.kill()
		}
	} else {
		r.fault(err)
	}
	r.site.mu.Lock()
	defer r.site.mu.Unlock()
	r.site.submits = append(r.site.submits, s)
}

// operate changes policies, and submits jobs that come after a change for certain.
func (r *polRound) operate(rng *rand.Rand, over <-chan struct{}) {
	c, err := client.Dial(r.ctx, r.site.socket("p"), client.Options{})
	if err != nil {
		r.fault(err)
		return
	}
	defer c.Close()
	for !r.killed.Load() {
		select {
		case <-over:
			return
		default:
		}
		if r.set("limit", "concurrency", fmt.Sprint(1+rng.IntN(3))) {
			r.burst(rng, c, "limit")
		}
		pause := polPauses[r.site.pauses%len(polPauses)]
		if r.site.pauses++; r.set("pause", "paused", pause) {
			r.burst(rng, c, "pause")
		}
	}
}

// polPauses are what an operator does with the queue pause, one after the other.
var polPauses = []string{"hand-out", "no", "both", "hand-out", "submits", "no"}

// errPolLeft is the end of a connection that its worker has closed.
var errPolLeft = errors.New("the worker has left")

// serve does the jobs of a queue until the server is killed.
func (r *polRound) serve(rng *rand.Rand, w polWork) {
	left := w.most
	if left == 0 {
		left = math.MaxInt
	}
	for left > 0 && !r.killed.Load() {
		c, err := client.DialWorker(r.ctx, r.site.socket("p"), client.Options{})
		if err != nil {
			r.fault(err)
			return
		}
		for err = c.CanDo(r.ctx, w.queue); err == nil && left > 0; left-- {
			err = r.job(rng, c, &w)
		}
		if c.Close(); err != nil && !errors.Is(err, errPolLeft) {
			r.fault(err)
			return
		}
	}
}

// job does one job. A PING after the report shows that the server has read it.
func (r *polRound) job(rng *rand.Rand, c *client.Worker, w *polWork) (err error) {
	run := polRun{round: r.number, ends: r.number, queue: w.queue, asked: r.now()}
	a, err := c.Grab(r.ctx)
	if err != nil {
		return err
	}
	run.got, run.name, run.workload = r.now(), a.Job.Name, string(a.Job.Workload)
	for range 1 + linHold(rng) {
		at := r.now()
		if c.Ping(r.ctx) == nil { // an error comes again
			run.pinged = at
		}
	}
	run.end, run.text = r.now(), fmt.Sprint("r", r.site.number())
	if killed := r.killedAt.Load(); killed != 0 {
		run.end = min(run.end, killed)
	}
	n := rng.IntN(10)
	switch {
	case !w.fails || n < 5:
		run.how, err = linDone, c.Done(r.ctx, a, []byte(run.text))
	case n == 5:
		run.how, err = linLeave, errPolLeft
		c.Close()
	case n == 6:
		run.how, err = linLater, c.Later(r.ctx, a, 0, 1)
	default:
		run.how, err = linFail, c.FailWith(r.ctx, a, []byte(run.text))
	}
	if err == nil {
		err = c.Ping(r.ctx)
	}
	if err == nil {
		run.said = r.now()
	}
	r.site.mu.Lock()
	defer r.site.mu.Unlock()
	r.site.runs = append(r.site.runs, run)
	return err
}

// polEnds is what the last server keeps of jobs that have ended.
type polEnds struct {
	failed, done map[string][]client.JobDetails // by queue
	cron         []client.CronStatus
}

// list reads what the server keeps.
func (r *polRound) list(t *testing.T) {
	ends := polEnds{failed: make(map[string][]client.JobDetails), done: make(map[string][]client.JobDetails)}
	for _, queue := range []string{"retry", "dead"} {
		ends.failed[queue] = r.kept(t, "state:failed queue:"+queue)
	}
	for _, queue := range []string{"old", "once"} {
		ends.done[queue] = r.kept(t, "state:done,expired queue:"+queue)
	}
	var err error
	if ends.cron, err = r.admin.Cron(r.ctx); err != nil {
		t.Fatal(err)
	}
	r.site.ends = ends
}

// kept returns the jobs that a filter means.
func (r *polRound) kept(t *testing.T, filter string) (all []client.JobDetails) {
	for after, more := "", true; more; {
		page, err := r.admin.Jobs(r.ctx, filter, after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Jobs {
			d, err := r.admin.JobByID(r.ctx, page.Jobs[i].ID)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		after, more = page.Next, page.Next != ""
	}
	return all
}
