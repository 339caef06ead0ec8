package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"treadle/loop/client"
)

var (
	clusterRounds = flag.Int("cluster.rounds", len(clusterFaults), "rounds of TestClusterHistories, one for each fault in turn")
	clusterFor    = flag.Duration("cluster.for", 0, "go on with rounds of TestClusterHistories, with faults at random, for so long")
)

// clusterRound is a round of histories on a cluster. It goes on for a while after the fault.
type clusterRound struct {
	*linRound
	t      *testing.T
	nodes  *testNodes
	fault  *clusterFault
	random *rand.Rand

	term     uint64
	cancel   func()        // ends all that still wait for an answer
	over     chan struct{} // closed when the fault is over
	faulted  int64         // peers know of no fault before
	gap      time.Duration // until the next acknowledgement
	replaced bool          // another leader came before the fault, as on a machine with too much to do
}

// TestClusterHistories: the replies that peers of Periodic, Gloom, dwork, beanstalkd and Faktory get from any node of a
// cluster are those of one server that may start again while a fault lasts, see TestLinearizable: nothing that a
// majority of the nodes has acknowledged is lost, and an old leader answers nothing that the new one does not know. The
// first three faults are in every test run.
func TestClusterHistories(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		*clusterRounds = min(*clusterRounds, 3)
	}
	newClusterSite(newNodes(t)).playRounds(t, clusterFaults, *clusterRounds, *clusterFor)
}

// playRounds plays at least so many rounds for at least so long: each fault once, and then at random.
func (s *linSite) playRounds(t *testing.T, faults []clusterFault, rounds int, long time.Duration) {
	t.Helper()
	random := rand.New(rand.NewPCG(*clusterSeed, 5))
	gaps := make(map[string][]time.Duration)
	total, replaced, parts, unjudged, began := 0, 0, 0, 0, time.Now()
	for n := 0; n < rounds || time.Since(began) < long; n++ {
		fault := &faults[n%len(faults)]
		if n >= len(faults) && long > 0 {
			fault = &faults[random.IntN(len(faults))]
		}
		r := s.round(t, fault, random)
		r.playAndJudge(n)
		gaps[fault.name] = append(gaps[fault.name], r.gap)
		for _, ops := range r.ops {
			total += len(ops)
		}
		if r.replaced {
			replaced++
		}
		parts, unjudged = parts+len(r.read), unjudged+r.unjudged
	}
	if unjudged > max(2, parts/50) {
		t.Errorf("%d of %d histories are not judged", unjudged, parts)
	}
	for name, all := range gaps {
		slices.Sort(all)
		t.Logf("%s: %d rounds, no answer for %v, at most %v", name, len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	t.Logf("%d operations, %d of %d histories not judged; in %d rounds the leader changed before the fault", total, unjudged, parts, replaced)
}

// newClusterSite starts nodes with more settings.
func newClusterSite(n *testNodes, settings ...string) *linSite {
	n.t.Helper()
	n.serves = func(i int) []string {
		args := append([]string{"--kts46", "off", "--kts46-json", "off", "--http", "off", "--run-dir", n.port(i, "run")}, settings...)
		for name, setting := range map[string]string{"p": "periodic", "m": "gloom-masters", "s": "gloom-slaves", "d": "dwork", "b": "beanstalk", "f": "faktory", "a": "admin"} {
			args = append(args, "--"+setting, "unix://"+n.port(i, name))
		}
		return args
	}
	for i := range n.running {
		n.start(i)
	}
	return &linSite{nodes: n}
}

// round reads the state with which a round begins. All nodes take part.
func (s *linSite) round(t *testing.T, fault *clusterFault, random *rand.Rand) *clusterRound {
	t.Helper()
	r := &clusterRound{t: t, nodes: s.nodes, fault: fault, random: random, over: make(chan struct{})}
	_, r.term = s.nodes.settle()
	up := s.nodes.up()
	s.up.Store(&up)
	r.linRound = &linRound{site: s, began: time.Now(), racy: true, ops: make(map[string][]porcupine.Operation)}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.ctx, r.cancel = ctx, cancel
	r.stop = func() {
		r.faulted = r.now()
		go r.breakDown()
	}
	r.reads(t)
	r.fuse.Store(int64(random.IntN(linAcks)))
	return r
}

// breakDown has the fault happen, and lets some peers go on until all nodes take part again.
func (r *clusterRound) breakDown() {
	defer close(r.over)
	defer r.cancel()
	leader, term := r.nodes.leads()
	r.replaced = term != r.term
	began := time.Now()
	rest, heal := r.fault.happen(r.nodes, leader, r.random)
	r.site.up.Store(&rest)
	r.nodes.await(rest...)
	r.gap = time.Since(began)
	for _, i := range rest {
		r.nodes.await(i)
	}
	var clients, workers sync.WaitGroup
	steady, random := make(chan struct{}), func() *rand.Rand { return rand.New(rand.NewPCG(*clusterSeed, uint64(r.site.number()))) }
	w := random()
	workers.Go(func() {
		r.steadyWorker(w, []string{linFunction(0), linFunction(1), linFunction(2)}, func() { close(steady) })
	})
	<-steady
	for _, o := range []client.Options{{}, {Framing: client.CRC}} {
		rng := random()
		clients.Go(func() { r.client(rng, o) })
	}
	for i := range 2 {
		rng := random()
		clients.Go(func() { r.hub(rng, linLocation(i)) })
	}
	time.Sleep(time.Duration(r.random.IntN(100)) * time.Millisecond)
	heal()
	clients.Wait()
	r.mu.Lock()
	r.ending = true
	r.mu.Unlock()
	r.nodes.handOver(rest[0]) // which ends the round, before a worker leaves
	r.cancel()
	workers.Wait()
}

// playAndJudge plays a round and judges it by what the next leader has.
func (r *clusterRound) playAndJudge(n int) {
	r.t.Helper()
	r.play(n)
	<-r.over
	if !r.replaced {
		for _, err := range r.faults {
			r.t.Errorf("%s: before it: %v", r.fault.name, err)
		}
	}
	r.played = time.Since(r.began)
	end := r.now()
	from := r.faulted
	if r.replaced {
		from, r.played = 0, linRetryWait+1 // the tube is not judged
	}
	keeps := r.fault.keeps || r.replaced
	for _, ops := range r.ops {
		for i := range ops {
			switch o := ops[i].Input.(linOp); {
			case !keeps:
			case !o.known:
				ops[i].Return = end // it may have come to the leader later than its peer waited for it
			case o.kind == linLeave || o.kind == linQuit:
				ops[i].Call = min(ops[i].Call, from) // the connection may have ended before its peer closed it
			}
		}
	}
	maybe := func(part string, o linOp) {
		r.ops[part] = append(r.ops[part], porcupine.Operation{Input: o, Output: "", Call: from, Return: end})
	}
	for part := range r.read {
		if part != linTubeName {
			maybe(part, linOp{kind: linRestart})
		}
	}
	for _, e := range r.ends {
		if keeps || e.early {
			maybe(e.part, linOp{kind: e.kind, worker: e.who})
		}
	}
	r.nodes.settle()
	up := r.nodes.up()
	r.site.up.Store(&up)
	next := &linRound{site: r.site}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	next.ctx = ctx
	next.reads(r.t)
	played := time.Now()
	r.judge(r.t, next.read)
	r.t.Logf("round %d: %s; %v without an answer, played for %v, judged for %v", n, r.fault.name,
		r.gap.Round(time.Millisecond), played.Sub(r.began).Round(time.Millisecond), time.Since(played).Round(time.Millisecond))
	if r.t.Failed() {
		r.t.Fatalf("round %d: %s", n, r.fault.name)
	}
}
