package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

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
	linClients   = 4
	linWorkers   = 3
	linOpsEach   = 40
)

// linHistory is what clients and workers saw.
type linHistory struct {
	began   time.Time
	version atomic.Int64
	killed  atomic.Bool // the server of this round
	early   atomic.Int64
	mu      sync.Mutex
	ops     [linFunctions][]porcupine.Operation
}

func (h *linHistory) now() int64 { return time.Since(h.began).Nanoseconds() }

// note adds an operation that began at call.
func (h *linHistory) note(function int, call int64, o linOp, output string) {
	end := h.now()
	if !o.known && o.kind != linCrash && !h.killed.Load() {
		h.early.Add(1)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops[function] = append(h.ops[function], porcupine.Operation{Input: o, Call: call, Output: output, Return: end})
}

func linFunction(i int) string { return fmt.Sprint("f", i) }

// TestLinearizable: what clients and workers see of submit, run, grab, done, fail and remove,
// over sockets of the built server, is what they would see if each happened at one moment
// between its request and its reply, also when the server is killed and started again: then
// what was not acknowledged has happened or has not.
func TestLinearizable(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(*linearSeed, 3))
	h := &linHistory{began: time.Now()}
	worker := 0
	for round := range *linearRounds {
		socket := filepath.Join(dir, "s")
		p := start(t, false, "serve", "--periodic", "unix://"+socket, "--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off",
			"--kts46", "off", "--kts46-json", "off", "--http", "off", "--data", filepath.Join(dir, "data"), "--loops", fmt.Sprint(1+round%2))
		p.until("listening")
		p.drain()
		h.killed.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		var peers sync.WaitGroup
		for n := range linClients {
			rng := rand.New(rand.NewPCG(*linearSeed, uint64(round*linClients+n)))
			peers.Go(func() { h.client(ctx, socket, rng) })
		}
		for range linWorkers {
			worker++
			me, rng := worker, rand.New(rand.NewPCG(*linearSeed, uint64(1000+worker)))
			peers.Go(func() { h.worker(ctx, socket, me, rng) })
		}
		kill := time.AfterFunc(time.Duration(20+random.IntN(80))*time.Millisecond, func() {
			h.killed.Store(true)
			_ = p.Process.Signal(syscall.SIGKILL)
		})
		<-p.drained
		kill.Stop()
		_ = p.Wait() // it was killed
		cancel()
		peers.Wait()
		call := h.now()
		for f := range linFunctions {
			h.note(f, call, linOp{kind: linCrash}, "")
		}
	}
	if n := h.early.Load(); n > 0 {
		t.Errorf("%d operations failed before the server was killed", n)
	}
	total, unknown := 0, 0
	for f, ops := range h.ops {
		for _, o := range ops {
			total++
			if in := o.Input.(linOp); !in.known && in.kind != linCrash {
				unknown++
			}
		}
		if result := porcupine.CheckOperationsTimeout(linModel.ToModel(), ops, patience); result != porcupine.Ok {
			for _, o := range ops {
				t.Logf("%12d %12d %s", o.Call, o.Return, linModel.DescribeOperation(o.Input, o.Output))
			}
			t.Fatalf("seed %d: the history of %s is not linearizable: %v", *linearSeed, linFunction(f), result)
		}
	}
	t.Logf("%d kills, %d operations, of which %d are unknown", *linearRounds, total, unknown)
	if total < *linearRounds*linFunctions*4 {
		t.Errorf("only %d operations", total)
	}
}

// client does random operations until the server is killed.
func (h *linHistory) client(ctx context.Context, socket string, rng *rand.Rand) {
	c, err := client.Dial(ctx, socket, client.Options{})
	if err != nil {
		return
	}
	defer c.Close()
	for range linOpsEach {
		f := rng.IntN(linFunctions)
		version := int(h.version.Add(1))
		j := &client.Job{Func: linFunction(f), Name: "n", Workload: fmt.Append(nil, version)}
		call := h.now()
		switch n := rng.IntN(10); {
		case n < 4:
			err = c.Submit(ctx, j)
			h.note(f, call, linOp{kind: linSubmit, version: version, known: err == nil}, "")
		case n < 7:
			err = c.Remove(ctx, j.Func, j.Name)
			h.note(f, call, linOp{kind: linRemove, known: err == nil}, "")
		default:
			var result []byte
			result, err = c.Run(ctx, j)
			h.note(f, call, linOp{kind: linRun, version: version, known: err == nil}, "")
			if err == nil {
				h.note(f, call, linOp{kind: linResult, version: version, known: true}, string(result))
			}
		}
		if err != nil {
			return
		}
	}
	<-ctx.Done()
}

// worker does jobs until the server is killed. A PING behind its word says that it was read.
func (h *linHistory) worker(ctx context.Context, socket string, me int, rng *rand.Rand) {
	w, err := client.DialWorker(ctx, socket, client.Options{})
	if err != nil {
		return
	}
	defer w.Close()
	for f := range linFunctions {
		if w.CanDo(ctx, linFunction(f)) != nil {
			return
		}
	}
	for n := 0; ; n++ {
		call := h.now()
		a, err := w.Grab(ctx)
		if err != nil { // it may have been given any of them
			for f := range linFunctions {
				h.note(f, call, linOp{kind: linGrab, worker: me}, "")
			}
			return
		}
		var f int
		if _, err := fmt.Sscanf(a.Job.Func, "f%d", &f); err != nil {
			panic(err) // no such function
		}
		h.note(f, call, linOp{kind: linGrab, worker: me, known: true}, string(a.Job.Workload))
		for range rng.IntN(8) { // others submit and remove meanwhile
			_ = w.Ping(ctx) // an error comes again
		}
		call = h.now()
		o := linOp{kind: linDone, worker: me, result: fmt.Sprintf("r%d.%d", me, n)}
		if rng.IntN(4) == 0 {
			o.kind = linFail
			err = w.Fail(ctx, a)
		} else {
			err = w.Done(ctx, a, []byte(o.result))
		}
		if err == nil {
			err = w.Ping(ctx)
		}
		o.known = err == nil
		h.note(f, call, o, "")
		if err != nil {
			return
		}
	}
}
