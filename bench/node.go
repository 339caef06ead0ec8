package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"treadle/bench/load"
	"treadle/bench/peer"
	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/store"
)

const (
	// taskMark stands before a task's number in its payload. A worker gets the payload as one line of JSON.
	taskMark, taskNumber = `"task":"`, "%08d"
	// insertBlock is the number of tasks in one insert, and settledPeriod the time between looks for unfinished tasks.
	insertBlock, settledPeriod = 1000, time.Millisecond
	// updatesPerTask is how often the node updates a task in the database: when it begins and when it ends.
	updatesPerTask = 2
	// workerDepth bounds the tasks that the worker of a node asks for at a time.
	workerDepth = 64
	// idleTick is the period in which an idle node looks at its queues.
	idleTick = time.Second
)

// nodeTrial is a load on one node and on its database.
type nodeTrial struct {
	fake    *mongotest.Server
	store   *store.Store
	queue   store.Queue
	running *peer.Server
	ends    []func() // stop the fake, the node and the store

	updates atomic.Int64  // commands that changed the database
	ticked  chan struct{} // ticks of the idle row; a tick that does not fit is lost
	claimed sync.Once
	start   int64 // moment of the first claim
	before  meter // the reading of that moment
	failed  error // error of that reading
}

// startNode starts a node with a configuration.
type startNode func(ctx context.Context, config string) (*peer.Server, error)

// measureNode takes one sample of a node.
func (s *sample) measureNode(ctx context.Context, r row, size int, start startNode) error {
	ctx, cancel := context.WithTimeout(ctx, load.TrialLimit)
	defer cancel()
	t := &nodeTrial{ticked: make(chan struct{}, size)}
	defer t.close()
	if err := t.open(ctx, r, start); err != nil {
		return err
	}
	var err error
	if r.Kind == kindIdle {
		err = s.idleNode(ctx, t, max(1, size/int(idleTick.Milliseconds())))
	} else if err = t.fill(ctx, size); err == nil {
		err = s.busyNode(ctx, t, r, size)
	}
	if err != nil {
		err = fmt.Errorf("%w\nthe node's output ends with:\n%s", err, t.running.LastOutput())
	}
	return err
}

// open starts the fake and the node. Its queue has no threads yet, so nothing runs. After an error close is due, too.
func (t *nodeTrial) open(ctx context.Context, r row, start startNode) (err error) {
	if t.fake, err = mongotest.Start(); err != nil {
		return err
	}
	t.ends = append(t.ends, t.fake.Stop)
	directory, err := os.MkdirTemp("", "treadle-bench-")
	if err != nil {
		return err
	}
	t.ends = append(t.ends, func() { _ = os.RemoveAll(directory) })
	file := filepath.Join(directory, "config.json")
	text := fmt.Sprintf(`{"mongohost": %q, "treadle_plugins": {"Bench": {"kind": %q, "function": %q, "command": ["/bin/true"]}}}`, t.fake.Address(), r.Plugin, load.QueueName)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	site, err := config.Read(file)
	if err != nil {
		return err
	}
	if t.store, err = store.Open(site.Connection(config.ComponentWeb)); err != nil {
		return err
	}
	t.ends = append(t.ends, t.store.Close)
	if _, err = t.store.InsertQueue(ctx, load.QueueName, "Bench"); err == nil {
		t.queue, err = t.store.Queue(ctx, load.QueueName)
	}
	if err == nil {
		t.running, err = start(ctx, file)
	}
	if err != nil {
		return err
	}
	t.ends = append(t.ends, t.running.Stop)
	t.fake.Inject(t.observe)
	return nil
}

// close undoes open, in reverse order.
func (t *nodeTrial) close() {
	for _, end := range slices.Backward(t.ends) {
		end()
	}
}

// observe sees every command before the database executes it, and lets all pass.
func (t *nodeTrial) observe(command string) mongotest.Fault {
	switch command {
	case "findAndModify":
		t.claimed.Do(func() {
			t.before, t.failed = readMeter(t.running.PID)
			t.start = load.Now()
		})
	case "update":
		t.updates.Add(1)
	case "aggregate": // a tick counts the tasks with one
		select {
		case t.ticked <- struct{}{}:
		default:
		}
	}
	return mongotest.None
}

// idleNode measures a node that has a queue and no tasks, over a number of ticks.
func (s *sample) idleNode(ctx context.Context, t *nodeTrial, ticks int) error {
	if err := t.limit(ctx, 4); err != nil {
		return err
	}
	for tick := range ticks + 2 { // the first one is part of the start
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.ticked:
		}
		now, err := readMeter(t.running.PID)
		if err != nil {
			return err
		}
		if tick == 1 {
			t.before, t.start = now, load.Now()
		} else if tick > 1 {
			s.set("% of a core", 100*float64(now.since(t.before).server)/float64(load.Now()-t.start))
		}
	}
	return nil
}

// busyNode has the node do all tasks. It checks that each is done exactly once: in the database, and by the worker of a
// function or the counters of a node with commands.
func (s *sample) busyNode(ctx context.Context, t *nodeTrial, r row, size int) (err error) {
	if r.Plugin != config.KindFunction {
		if err := s.timeNode(ctx, t, size, r.Load.Depth); err != nil {
			return err
		}
		return errors.Join(t.checkDone(ctx, size), t.checkCount(ctx, size))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause // the worker's end is the reason
		}
		cancel(nil)
	}()
	to := load.Endpoint{Protocol: peer.NewPeriodic(peer.PeriodicOptions{Parse: parseTask}), Network: "tcp", Address: t.running.Address}
	worker := load.New(ctx, load.Endpoints{Produce: to, Work: to, Ask: to}, load.Load{Workers: 1, Depth: min(r.Load.Depth, workerDepth), Jobs: size})
	defer worker.Close()
	if err := worker.ConnectWorkers(); err != nil {
		return err
	}
	var working sync.WaitGroup
	defer working.Wait()
	defer worker.Stop()
	working.Go(func() {
		if err := worker.Work(); err != nil {
			cancel(err)
		}
	})
	if err := s.timeNode(ctx, t, size, r.Load.Depth); err != nil {
		return err
	}
	working.Wait()
	return errors.Join(t.checkDone(ctx, size), worker.Check())
}

// timeNode gives the queue its threads, and times the tasks from the first claim until all have ended.
func (s *sample) timeNode(ctx context.Context, t *nodeTrial, size, threads int) error {
	err := t.limit(ctx, threads)
	if err == nil {
		err = t.await(ctx, updatesPerTask*size)
	}
	if err != nil {
		return err
	}
	t.claimed.Do(func() {}) // orders the writes of the first claim before these reads
	elapsed := load.Now() - t.start
	after, err := readMeter(t.running.PID)
	spent := after.since(t.before)
	s.setSpeed(size, elapsed, spent)
	s.set("% of a core", 100*float64(spent.server)/float64(elapsed))
	return errors.Join(err, t.failed)
}

// limit sets the number of threads of the queue.
func (t *nodeTrial) limit(ctx context.Context, threads int) error {
	_, err := t.store.UpdateQueue(ctx, &t.queue, store.QueueChange{Limit: &threads})
	return err
}

// fill inserts all tasks.
func (t *nodeTrial) fill(ctx context.Context, size int) error {
	for first := 0; first < size; first += insertBlock {
		var block []any
		for i := first; i < min(first+insertBlock, size); i++ {
			block = append(block, map[string]string{"task": fmt.Sprintf(taskNumber, i)})
		}
		if _, err := t.store.InsertTasks(ctx, &t.queue, block); err != nil {
			return err
		}
	}
	return nil
}

// await returns when all tasks have ended. A look costs the database time, so the first one follows the given number of
// updates.
func (t *nodeTrial) await(ctx context.Context, updates int) error {
	pending := map[string]any{"status": map[string]any{"$in": []int{store.StatusQueued, store.StatusClaimed, store.StatusRunning}}}
	ticker := time.NewTicker(settledPeriod)
	defer ticker.Stop()
	for from := t.updates.Load(); ; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %d of %d updates: %w", t.updates.Load()-from, updates, context.Cause(ctx))
		case <-ticker.C:
		}
		if t.updates.Load()-from < int64(updates) {
			continue
		}
		rest, err := t.store.Search(ctx, pending, store.SearchOptions{Limit: 1})
		if err != nil || len(rest) == 0 {
			return err
		}
	}
}

// parseTask reads the number of a task. The workload of a task is its document.
func parseTask(document []byte) (number uint64, sent int64, ok bool) {
	_, rest, _ := bytes.Cut(document, []byte(taskMark))
	digits, _, _ := bytes.Cut(rest, []byte(`"`))
	number, err := strconv.ParseUint(string(digits), 10, 32)
	return number, 0, err == nil
}

// checkDone checks that every task has succeeded.
func (t *nodeTrial) checkDone(ctx context.Context, size int) error {
	done, err := t.store.CountTasks(ctx, map[string]any{"status": store.StatusSucceeded, "complete": true})
	if err == nil && done != int64(size) {
		err = fmt.Errorf("%d of %d tasks have succeeded", done, size)
	}
	return err
}

// checkCount checks that the node has claimed and ended n tasks. The process that runs commands writes an end before it
// tells the node: the counters may be late.
func (t *nodeTrial) checkCount(ctx context.Context, size int) error {
	ticker := time.NewTicker(settledPeriod)
	defer ticker.Stop()
	for deadline := load.Now() + int64(load.DialLimit); ; <-ticker.C {
		if err := t.counts(ctx, size); err == nil || load.Now() > deadline {
			return err
		}
	}
}

// counts compares the counters at this moment.
func (t *nodeTrial) counts(ctx context.Context, size int) error {
	page, err := httpGet(ctx, t.running.Address, "/metrics")
	for _, name := range []string{"treadle_disbatch_claims_total", `treadle_disbatch_tasks_total{end="succeeded"}`} {
		if err == nil && !strings.Contains(page, fmt.Sprintf("\n%s %d\n", name, size)) {
			err = fmt.Errorf("the node does not count %d in %s", size, name)
		}
	}
	return err
}
