package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"treadle/codec/periodic"
	"treadle/loop/client"
)

// linearRounds is how often TestLinearizable kills the server: a few times in every test run,
// more in `make soak`.
var (
	linearRounds = flag.Int("linear.n", 4, "kills of TestLinearizable")
	linearSeed   = flag.Uint64("linear.seed", 1, "seed of TestLinearizable")
)

// Sizes of a history: large enough that operations overlap all the time, small enough to be
// judged in moments.
const (
	linFunctions = 4
	linServed    = 3 // of these have workers all the time: the last is there to have jobs that nobody takes
	linNames     = 3 // of jobs in each
	linGraphSize = 7 // tasks
	linLocations = 3
	linOpsEach   = 60
	linAcks      = 200              // a kill comes at one of the first so many acknowledgements
	linRetryWait = 10 * time.Second // no retry of Faktory comes earlier
)

// linDwork is the part of a history that the model of tasks judges.
const linDwork = "dwork"

func linFunction(i int) string              { return fmt.Sprint("f", i) }
func linName(function string, n int) string { return fmt.Sprint(function, ".", n) }
func linTaskName(i int) string              { return fmt.Sprint("t", i) }
func linLocation(i int) string              { return fmt.Sprint("w", i) }

// linSite is the data directory and the addresses of one server after the other, or the nodes of a cluster.
type linSite struct {
	dir   string
	nodes *testNodes
	up    atomic.Pointer[[]int] // the nodes that peers connect to
	last  atomic.Int64
}

// number returns a new number for a job's version or a worker.
func (s *linSite) number() int { return int(s.last.Add(1)) }

func (s *linSite) socket(name string) string {
	if s.nodes == nil {
		return "unix://" + filepath.Join(s.dir, name)
	}
	up := *s.up.Load()
	return "unix://" + s.nodes.port(up[s.number()%len(up)], name)
}

// linRound is one run of the server, from start to kill, with its history.
type linRound struct {
	site   *linSite
	ctx    context.Context
	server *process
	stop   func() // kills the server: later errors are no faults
	racy   bool
	read   map[string]string // what it had at its start, by part

	reserved chan int      // the tube's jobs of Faktory that were reserved then
	played   time.Duration // until it was killed

	began  time.Time
	fuse   atomic.Int64 // acknowledgements until it is killed
	fused  string       // the part whose they are; empty: all
	killed atomic.Bool
	once   sync.Once
	mu     sync.Mutex
	ops    map[string][]porcupine.Operation // by function, and of the tasks
	faults []error
	ends   []linEnd
	ending bool // connections end because the round does

	unjudged int // parts of which the judge came to no end
}

// linEnd is the end of the connection of a worker or master that no operation of the history tells.
type linEnd struct {
	part  string
	kind  linKind
	who   int
	early bool // the peer closed it, before the fault or after it: any leader may have noticed
}

func (r *linRound) now() int64 { return time.Since(r.began).Nanoseconds() }

// kill kills the server. Later errors are no faults.
func (r *linRound) kill() {
	r.once.Do(func() {
		r.killed.Store(true)
		r.stop()
	})
}

// runs sets the server.
func (r *linRound) runs(p *process) {
	r.server = p
	r.stop = func() { _ = p.Process.Signal(syscall.SIGKILL) } // it may have ended by itself, which the history shows
}

// fault notes an error that is a fault unless the server was killed before.
func (r *linRound) fault(err error) {
	if r.killed.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, err)
}

// note adds an operation that began at call and ended with an error or a reply.
func (r *linRound) note(part string, call int64, o linOp, output string, err error) {
	if err == nil && o.kind.acknowledged() && (r.fused == "" || r.fused == part) && r.fuse.Add(-1) == 0 {
		r.kill()
	}
	end := r.now()
	if o.known = err == nil; !o.known {
		r.fault(fmt.Errorf("%s: %w", o.describe(output), err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops[part] = append(r.ops[part], porcupine.Operation{Input: o, Call: call, Output: output, Return: end})
}

// TestLinearizable: the replies that peers of Periodic in both framings, Gloom, dwork, beanstalkd and Faktory get from
// the built server are those of a server in which each operation happens at one moment between its request and its
// reply. The operations are submit, run, grab, done, fail, delay, remove, STATUS, those on tasks, release, bury, kick
// and touch, while workers leave with their jobs. After a kill and a start acknowledged changes are there, and each
// other change has happened or has not.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	site := &linSite{dir: t.TempDir()}
	random := rand.New(rand.NewPCG(*linearSeed, 3))
	var last *linRound
	total, unknown := 0, 0
	for n := range *linearRounds + 1 {
		r := site.start(t, n)
		if last != nil {
			last.judge(t, r.read)
			for _, ops := range last.ops {
				total += len(ops)
				for _, o := range ops {
					if !o.Input.(linOp).known {
						unknown++
					}
				}
			}
		}
		if last = r; n < *linearRounds {
			r.fuse.Store(int64(random.IntN(linAcks)))
			if n%4 == 1 || n%4 == 2 {
				r.fused = linTubeName
			}
			r.play(n)
			for _, err := range r.faults {
				t.Errorf("before the server was killed: %v", err)
			}
			if t.Failed() {
				t.FailNow()
			}
		}
	}
	t.Logf("%d kills, %d operations, of which %d are unknown", *linearRounds, total, unknown)
	if total < *linearRounds*linOpsEach {
		t.Errorf("only %d operations", total)
	}
}

// start starts a server on the data directory of the last one and reads its state.
func (s *linSite) start(t *testing.T, n int) *linRound {
	grab, loops := "hold", 1+n%2
	if n%4 >= 2 {
		grab = "document"
	}
	r := &linRound{site: s, began: time.Now(), racy: loops > 1, ops: make(map[string][]porcupine.Operation)}
	r.runs(start(t, false, "serve", "--periodic", s.socket("p"), "--gloom-masters", s.socket("m"), "--gloom-slaves", s.socket("s"), "--dwork", s.socket("d"),
		"--beanstalk", s.socket("b"), "--faktory", s.socket("f"), "--admin", s.socket("a"), "--kts46", "off", "--kts46-json", "off", "--http", "off",
		"--data", filepath.Join(s.dir, "data"), "--loops", fmt.Sprint(loops), "--periodic-grab", grab))
	for range 7 {
		r.server.until("listening")
	}
	r.server.drain()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	r.ctx = ctx
	r.reads(t)
	return r
}

// reads reads the state at the beginning.
func (r *linRound) reads(t *testing.T) {
	r.read = r.site.readJobs(r.ctx, t)
	r.read[linDwork] = r.site.readTasks(r.ctx, t)
	r.read[linTubeName], r.reserved = r.site.readTube(r.ctx, t)
}

// answered makes a request. In a cluster it makes it until there is an answer: on a busy machine the leader may change
// at any time.
func (s *linSite) answered(ctx context.Context, t *testing.T, ask func() error) {
	t.Helper()
	for err := ask(); err != nil; err = ask() {
		if s.nodes == nil || ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// readJobs reads the functions' jobs.
func (s *linSite) readJobs(ctx context.Context, t *testing.T) map[string]string {
	var dump bytes.Buffer
	s.answered(ctx, t, func() error {
		dump.Reset()
		c, err := client.Dial(ctx, s.socket("p"), client.Options{})
		if err == nil {
			_, err = c.Dump(ctx, &dump, nil)
			c.Close()
		}
		return err
	})
	jobs := make(map[string][]linJob)
	for rest := dump.Bytes()[8:]; len(rest) > 0; { // behind their number
		var j periodic.Job
		k, err := periodic.ParseJob(rest, &j)
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[k:]
		due := linNow
		if at := int(j.SchedAt); at == linFirst || at == linSecond {
			due = at
		}
		jobs[string(j.Func)] = append(jobs[string(j.Func)], linJob{name: string(j.Name), version: linVersion(string(j.Workload)), due: due, count: int(j.Count)})
	}
	read := make(map[string]string)
	for i := range linFunctions {
		read[linFunction(i)] = linDisk(jobs[linFunction(i)])
	}
	return read
}

// readTasks reads the tasks of the graph.
func (s *linSite) readTasks(ctx context.Context, t *testing.T) (read string) {
	s.answered(ctx, t, func() error {
		read = ""
		h, err := client.DialHub(ctx, s.socket("d"))
		if err != nil {
			return err
		}
		defer h.Close()
		for i := range linGraphSize {
			switch info, err := h.Lookup(ctx, linTaskName(i)); {
			case err == nil:
				read += linTaskText(info.Name, info.After, info.Location)
			case !errors.Is(err, client.ErrNoTask):
				return err
			}
		}
		return nil
	})
	return read
}

// play runs all peers until the server is killed, at the latest when the peers with a share of the work have done it.
func (r *linRound) play(n int) {
	var clients, workers sync.WaitGroup
	random := func() *rand.Rand { return rand.New(rand.NewPCG(*linearSeed, uint64(r.site.number()))) }
	var functions []string
	for i := range linFunctions {
		functions = append(functions, linFunction(i))
	}
	served := functions[:linServed]
	if n%2 == 0 {
		functions = served
	}
	plain, crc := client.Options{}, client.Options{Framing: client.CRC}
	ready := make(chan struct{})
	steady := random()
	workers.Go(func() { r.steadyWorker(steady, served, func() { close(ready) }) })
	<-ready // without a worker a RUN_JOB of the CRC framing is refused
	for _, o := range []client.Options{plain, crc, plain} {
		rng := random()
		clients.Go(func() { r.client(rng, o) })
	}
	for range 2 {
		rng := random()
		clients.Go(func() {
			var left linLeft
			for n := linOpsEach / 2; n > 0; {
				n -= r.master(rng, &left, n)
			}
		})
	}
	for i := range linLocations {
		rng := random()
		clients.Go(func() { r.hub(rng, linLocation(i)) })
	}
	for range 2 {
		rng := random()
		clients.Go(func() { r.tubes(rng) })
	}
	fetches := random()
	workers.Go(func() { r.faktory(fetches) }) // nobody waits for its FETCH, which waits for others' jobs
	for _, w := range []func(*rand.Rand, *linLeft) bool{
		func(rng *rand.Rand, left *linLeft) bool { return r.worker(rng, left, plain, functions) },
		func(rng *rand.Rand, left *linLeft) bool { return r.worker(rng, left, crc, functions) },
		func(rng *rand.Rand, left *linLeft) bool { return r.worker(rng, left, plain, []string{linDwork}) },
		func(rng *rand.Rand, left *linLeft) bool { return r.slave(rng, left, functions) },
		func(rng *rand.Rand, left *linLeft) bool { return r.slave(rng, left, served) },
		func(rng *rand.Rand, left *linLeft) bool { return r.slave(rng, left, []string{linDwork}) },
		func(rng *rand.Rand, left *linLeft) bool { return r.worker(rng, left, plain, []string{linTubeName}) },
		func(rng *rand.Rand, left *linLeft) bool { return r.slave(rng, left, []string{linTubeName}) },
	} {
		rng := random()
		if rng.IntN(3) > 0 {
			continue // with fewer workers jobs wait longer, and are still there when the server is killed
		}
		workers.Go(func() {
			var left linLeft
			for w(rng, &left) {
			}
		})
	}
	clients.Wait()
	r.kill()
	r.played = time.Since(r.began)
	if r.server != nil {
		<-r.server.drained
		_ = r.server.Wait() // it was killed
	}
	workers.Wait()
}

// judge checks the history of each part, which ends with the state that the next server reads.
func (r *linRound) judge(t *testing.T, read map[string]string) {
	call := r.now()
	for part := range r.read {
		ops := append(r.ops[part], porcupine.Operation{Input: linOp{kind: linKilled, known: true}, Call: call, Output: read[part], Return: call + 1})
		model := linModel(linStart(r.read[part], r.racy))
		switch {
		case part == linDwork:
			model = linModel(linGraphStart(r.read[part]))
		case part == linTubeName && r.played > linRetryWait:
			t.Logf("the history of %s is not judged: in %v retries of Faktory may have come due", part, r.played)
			continue
		case part == linTubeName:
			start := linTubeStart(r.read[part])
			start.lives = r.site.nodes != nil
			model = linModel(start)
		}
		limit := patience
		if r.site.nodes != nil { // connections that end by themselves may leave too much open
			limit /= 6
		}
		result := porcupine.CheckOperationsTimeout(model.ToModel(), ops, limit)
		if result == porcupine.Unknown && r.site.nodes != nil {
			t.Logf("the history of %s is not judged: it takes too long", part)
			r.unjudged++
			continue
		}
		if result != porcupine.Ok {
			t.Fatalf("seed %d: the history of %s, which began with %q, is not linearizable: %v\n%s", *linearSeed, part, r.read[part], result, linReport(model, ops))
		}
	}
}

// linUnexplained returns the call of the operation whose reply is the first that cannot be explained: without the
// replies from it on the history is linearizable.
func linUnexplained(model porcupine.NondeterministicModel, ops []porcupine.Operation) int64 {
	byReturn := slices.Clone(ops)
	slices.SortFunc(byReturn, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	at, _ := slices.BinarySearchFunc(byReturn, true, func(last porcupine.Operation, _ bool) int {
		var part []porcupine.Operation
		for _, o := range ops {
			if in := o.Input.(linOp); o.Return > last.Return && o.Call < last.Return {
				in.known = false
				o.Input, o.Output = in, ""
			} else if o.Return > last.Return {
				continue
			}
			part = append(part, o)
		}
		if porcupine.CheckOperationsTimeout(model.ToModel(), part, patience/8) == porcupine.Ok {
			return -1
		}
		return 1
	})
	return byReturn[min(at, len(byReturn)-1)].Call
}

// linReport lists a history. It marks the operations outside of its longest linearizable part with *, and the first
// whose reply cannot be explained with >.
func linReport(model porcupine.NondeterministicModel, ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for i := range ops {
		ops[i].ClientId = i
	}
	_, info := porcupine.CheckOperationsVerbose(model.ToModel(), ops, patience)
	longest := make(map[int]bool)
	for _, part := range info.PartialLinearizationsOperations()[0] {
		if len(part) > len(longest) {
			clear(longest)
			for _, o := range part {
				longest[o.ClientId] = true
			}
		}
	}
	first := linUnexplained(model, ops)
	var text strings.Builder
	for i, o := range ops {
		mark := "*"
		switch {
		case o.Call == first:
			mark = ">"
		case longest[i]:
			mark = " "
		}
		fmt.Fprintf(&text, "%s%12d %12d %s\n", mark, o.Call, o.Return, model.DescribeOperation(o.Input, o.Output))
	}
	return text.String()
}
