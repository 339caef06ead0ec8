package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"treadle/bench/load"
	"treadle/bench/peer"
	"treadle/loop/disbatch"
	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
)

const (
	// taskMark stands before a task's number in its payload, which a worker gets as one line of JSON.
	taskMark, taskNumber = `"task":"`, "%08d"
	// insertBlock is how many tasks are made in one call, and settledPeriod the time between looks for the last ones.
	insertBlock, settledPeriod = 1000, time.Millisecond
	// idleTick is the time between two looks of an idle node at its queues.
	idleTick = time.Second
)

// nodeTrial is a load on one node, and the database of it.
type nodeTrial struct {
	double  *mongotest.Server
	store   *disbatch.Store
	queue   disbatch.Queue
	running *peer.Server

	updates atomic.Int64  // of the database, by anybody
	ticked  chan struct{} // has room for the ticks of the idle row; those that find none are not of interest
	claimed sync.Once
	start   int64 // when the first claim was
	before  meter // what had been used then
	failed  error // to read that
}

// startNode starts a node with a configuration.
type startNode func(ctx context.Context, config string) (*peer.Server, error)

// nodeOf starts the node that a row measures: a function's tasks need a server around it.
func nodeOf(path string, r row) startNode {
	return func(ctx context.Context, file string) (*peer.Server, error) {
		return peer.StartNode(ctx, path, file, r.plugin == config.KindFunction)
	}
}

// measureNode takes one sample of a node.
func (s *sample) measureNode(ctx context.Context, r row, size int, start startNode) error {
	ctx, cancel := context.WithTimeout(ctx, load.TrialLimit)
	defer cancel()
	t := &nodeTrial{ticked: make(chan struct{}, size)}
	stop, err := t.open(ctx, r, start)
	defer stop()
	if err != nil {
		return err
	}
	if r.kind == idle {
		err = s.idleNode(ctx, t, max(1, size/int(idleTick.Milliseconds())))
	} else if err = t.fill(ctx, size); err == nil {
		err = s.busyNode(ctx, t, r, size)
	}
	if said := t.running.Said(); err != nil && said != "" {
		err = fmt.Errorf("%w\nthe node's output ends with:\n%s", err, said)
	}
	return err
}

// open starts the double and the node with a queue that has no limit yet, so that nothing runs in it. The returned
// function ends what was started, also after an error.
func (t *nodeTrial) open(ctx context.Context, r row, start startNode) (stop func(), err error) {
	var ends []func()
	stop = func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}
	if t.double, err = mongotest.Start(); err != nil {
		return stop, err
	}
	ends = append(ends, t.double.Stop)
	directory, err := os.MkdirTemp("", "treadle-bench-")
	if err != nil {
		return stop, err
	}
	ends = append(ends, func() { _ = os.RemoveAll(directory) })
	file := filepath.Join(directory, "config.json")
	text := fmt.Sprintf(`{"mongohost": %q, "treadle_plugins": {"Bench": {"kind": %q, "function": %q, "command": ["/bin/true"]}}}`, t.double.Address(), r.plugin, load.QueueName)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return stop, err
	}
	site, err := config.Read(file)
	if err != nil {
		return stop, err
	}
	if t.store, err = disbatch.Open(site, config.ComponentWeb); err != nil {
		return stop, err
	}
	ends = append(ends, t.store.Close)
	if _, err = t.store.InsertQueue(ctx, load.QueueName, "Bench"); err == nil {
		t.queue, err = t.store.Queue(ctx, load.QueueName)
	}
	if err != nil {
		return stop, err
	}
	if t.running, err = start(ctx, file); err != nil {
		return stop, err
	}
	ends = append(ends, t.running.Stop)
	t.double.Inject(t.observe)
	return stop, nil
}

// observe is told of every command that the database gets, before it is done. It lets all of them be.
func (t *nodeTrial) observe(command string) mongotest.Fault {
	switch command {
	case "findAndModify":
		t.claimed.Do(func() {
			t.before, t.failed = t.readMeter()
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

// readMeter adds the process that runs a node's commands to the node.
func (t *nodeTrial) readMeter() (meter, error) {
	return readMeter(append(children(t.running.PID), t.running.PID)...)
}

// children are the processes that a process has started and that have not ended.
func children(parent int) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range all {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent: the name may have blanks and parentheses
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// idleNode measures what a node uses that has a queue and no tasks, over so many ticks.
func (s *sample) idleNode(ctx context.Context, t *nodeTrial, ticks int) error {
	if err := t.limit(ctx, 4); err != nil {
		return err
	}
	var before meter
	var start int64
	for tick := range ticks + 2 { // the first one is part of the start
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.ticked:
		}
		m, err := t.readMeter()
		if err != nil {
			return err
		}
		if tick == 1 {
			before, start = m, load.Now()
		} else if tick > 1 {
			s.CorePercent = 100 * float64(m.server-before.server) / float64(load.Now()-start)
		}
	}
	return nil
}

// busyNode has the node do all tasks, or, for the claims, begin all of them. Each must be done exactly once: by what the
// database holds, and by what the worker saw or, of commands, by what the node has counted.
func (s *sample) busyNode(ctx context.Context, t *nodeTrial, r row, size int) (err error) {
	threads, perTask, left := r.load.Depth, 2, []int{disbatch.StatusQueued, disbatch.StatusClaimed, disbatch.StatusRunning}
	claims := r.kind == drain
	if claims {
		threads, perTask, left = size, 1, left[:2]
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause // the worker's end is the reason
		}
		cancel(nil)
	}()
	work, check := func() {}, func() error { return t.checkCount(ctx, size) }
	if r.plugin == config.KindFunction {
		to := load.Side{Protocol: taskWorker{peer.NewPeriodic(peer.PeriodicOptions{})}, Network: "tcp", Address: t.running.Address}
		worker := load.New(ctx, load.Sides{Produce: to, Work: to, Ask: to}, load.Load{Workers: 1, Depth: min(threads, pipeline), Jobs: size})
		defer worker.Close()
		if err := worker.ConnectWorkers(); err != nil {
			return err
		}
		var working sync.WaitGroup
		defer working.Wait()
		defer worker.Stop()
		work = func() {
			working.Go(func() {
				if err := worker.Work(); err != nil {
					cancel(err)
				}
			})
		}
		check = func() error {
			working.Wait()
			return errors.Join(ctx.Err(), worker.Check())
		}
	}
	if !claims {
		work()
	}
	if err := t.limit(ctx, threads); err != nil {
		return err
	}
	if err := t.await(ctx, perTask*size, left); err != nil {
		return err
	}
	t.claimed.Do(func() {}) // what the first claim has written is seen here
	elapsed := load.Now() - t.start
	after, err := t.readMeter()
	if err = errors.Join(err, t.failed); err != nil {
		return err
	}
	s.add(size, elapsed, t.before, after)
	s.CorePercent = 100 * float64(after.server-t.before.server) / float64(elapsed)
	if claims {
		work()
		if err := t.await(ctx, 0, []int{disbatch.StatusRunning}); err != nil {
			return err
		}
	}
	return errors.Join(t.checkDone(ctx, size), check())
}

// limit sets how many threads the queue has.
func (t *nodeTrial) limit(ctx context.Context, threads int) error {
	_, err := t.store.UpdateQueue(ctx, &t.queue, disbatch.QueueChange{Limit: &threads})
	return err
}

// fill makes all tasks.
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

// await returns when no task has one of these statuses. To look costs the database time, so nobody looks before the
// node has made so many updates.
func (t *nodeTrial) await(ctx context.Context, updates int, statuses []int) error {
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
		rest, err := t.store.Search(ctx, map[string]any{"status": map[string]any{"$in": statuses}}, disbatch.SearchOptions{Limit: 1})
		if err != nil || len(rest) == 0 {
			return err
		}
	}
}

// taskWorker does the tasks of a node: the workload of each is its document.
type taskWorker struct{ load.Protocol }

// Traits implements load.Protocol.
func (w taskWorker) Traits() load.Traits {
	t := w.Protocol.Traits()
	t.Parse = func(document []byte) (uint64, int64, bool) {
		_, rest, _ := bytes.Cut(document, []byte(taskMark))
		number, _, _ := bytes.Cut(rest, []byte(`"`))
		i, err := strconv.ParseUint(string(number), 10, 32)
		return i, 0, err == nil
	}
	return t
}

// checkDone says whether every task has succeeded.
func (t *nodeTrial) checkDone(ctx context.Context, size int) error {
	done, err := t.store.CountTasks(ctx, map[string]any{"status": disbatch.StatusSucceeded, "complete": true})
	if err == nil && done != int64(size) {
		err = fmt.Errorf("%d of %d tasks have succeeded", done, size)
	}
	return err
}

// checkCount says whether the node has claimed and ended so many tasks. The process that runs commands writes an end
// first, and then tells the node.
func (t *nodeTrial) checkCount(ctx context.Context, size int) error {
	ticker := time.NewTicker(settledPeriod)
	defer ticker.Stop()
	for deadline := load.Now() + int64(load.DialLimit); ; <-ticker.C {
		if err := t.counts(ctx, size); err == nil || load.Now() > deadline {
			return err
		}
	}
}

// counts is checkCount at this moment.
func (t *nodeTrial) counts(ctx context.Context, size int) error {
	page, err := ask(ctx, t.running.Address, "/metrics")
	if err != nil {
		return err
	}
	counted := parseMetrics(page)
	for _, name := range []string{"treadle_disbatch_claims_total", `treadle_disbatch_tasks_total{end="succeeded"}`} {
		if counted[name] != float64(size) {
			return fmt.Errorf("the node counts %v in %s, not %d", counted[name], name, size)
		}
	}
	return nil
}
