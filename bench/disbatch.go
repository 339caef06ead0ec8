package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/disbatch"
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

// nodeRows are measured on a Disbatch node, on a double of a database inside of this program. Sizes are tasks, in the
// idle row milliseconds. The claims are those of all tasks at once, which no worker takes meanwhile.
func nodeRows() []row {
	var rows []row
	add := func(name string, plugin string, kind kind, threads, size int) {
		rows = append(rows, row{name: "disbatch " + name, section: nodeSection, plugin: plugin, kind: kind, fixed: size, load: load{depth: threads}})
	}
	add("function 1", disbatch.KindFunction, flow, 1, 3000)
	add("function 4", disbatch.KindFunction, flow, 4, 5000)
	add("function 20", disbatch.KindFunction, flow, 20, 5000)
	add("exec 1", disbatch.KindExec, flow, 1, 1000)
	add("exec 4", disbatch.KindExec, flow, 4, 1000)
	add("exec 20", disbatch.KindExec, flow, 20, 1000)
	add("claims", disbatch.KindFunction, drain, 0, 4000)
	add("idle", disbatch.KindExec, idle, 4, 4000)
	return rows
}

// nodeTrial is a load on one node, and the database of it.
type nodeTrial struct {
	double  *mongotest.Server
	store   *disbatch.Store
	queue   disbatch.Queue
	running *server
	arrived []atomic.Uint32 // by task: how often a worker got it

	updates atomic.Int64  // of the database, by anybody
	ticked  chan struct{} // has room for the ticks of the idle row; those that find none are not of interest
	claimed sync.Once
	begun   chan struct{}         // closed with the first claim
	start   int64                 // when that was
	before  meter                 // what had been used then
	failed  error                 // to read that
	stray   atomic.Pointer[error] // that a worker was given what nobody made
}

// startNode starts a node with a configuration.
type startNode func(ctx context.Context, config string) (*server, error)

// nodeOf starts the node that a row measures: a function's tasks need a server around it.
func nodeOf(path string, r row) startNode {
	return func(ctx context.Context, config string) (*server, error) {
		return command{path: path, arguments: func(ports [portCount]string, _ string) []string {
			if r.plugin == disbatch.KindFunction {
				return serveArguments(ports, "--data", "none", "--disbatch", config, "--disbatch-node", queueName)
			}
			return []string{"disbatch", "node", "--config", config, "--node", queueName, "--http", "127.0.0.1:" + ports[0]}
		}}.start(ctx)
	}
}

// measureNode takes one sample of a node.
func (s *sample) measureNode(ctx context.Context, r row, size int, start startNode) error {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	t := &nodeTrial{arrived: make([]atomic.Uint32, size), begun: make(chan struct{}), ticked: make(chan struct{}, size)}
	stop, err := t.open(ctx, r, start)
	defer stop()
	if err != nil {
		return err
	}
	if r.kind == idle {
		err = s.idleNode(ctx, t, max(1, size/int(idleTick.Milliseconds())))
	} else {
		err = s.busyNode(ctx, t, r, size)
	}
	if said := t.running.said(); err != nil && said != "" {
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
	text := fmt.Sprintf(`{"mongohost": %q, "treadle_plugins": {"Bench": {"kind": %q, "function": %q, "command": ["/bin/true"]}}}`, t.double.Address(), r.plugin, queueName)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return stop, err
	}
	config, err := disbatch.ReadConfig(file)
	if err != nil {
		return stop, err
	}
	if t.store, err = disbatch.Open(config, disbatch.ComponentWeb); err != nil {
		return stop, err
	}
	ends = append(ends, t.store.Close)
	if _, err = t.store.InsertQueue(ctx, queueName, "Bench"); err == nil {
		t.queue, err = t.store.Queue(ctx, queueName)
	}
	if err != nil {
		return stop, err
	}
	if t.running, err = start(ctx, file); err != nil {
		return stop, err
	}
	ends = append(ends, t.running.stop)
	t.double.Inject(t.observe)
	return stop, nil
}

// observe is told of every command that the database gets, before it is done. It lets all of them be.
func (t *nodeTrial) observe(command string) mongotest.Fault {
	switch command {
	case "findAndModify":
		t.claimed.Do(func() {
			t.before, t.failed = t.readMeter()
			t.start = now()
			close(t.begun)
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
	m, err := readMeter(t.running.pid)
	if err != nil {
		return m, err
	}
	for _, pid := range children(t.running.pid) {
		spent, err := cpuTime(pid)
		if err != nil {
			return m, err
		}
		m.server += spent
	}
	return m, nil
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
			before, start = m, now()
			continue
		}
		if tick > 1 {
			s.CorePercent = 100 * float64(m.server-before.server) / float64(now()-start)
		}
	}
	return nil
}

// busyNode has the node do all tasks, or, for the claims, begin all of them.
func (s *sample) busyNode(ctx context.Context, t *nodeTrial, r row, size int) error {
	if err := t.fill(ctx, size); err != nil {
		return err
	}
	threads, perTask, left := r.load.depth, 2, []int{disbatch.StatusQueued, disbatch.StatusClaimed, disbatch.StatusRunning}
	claims := r.kind == drain
	if claims {
		threads, perTask, left = size, 1, left[:2]
	}
	var working sync.WaitGroup
	defer working.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	work := func() { working.Go(func() { failed <- t.work(ctx, threads) }) }
	if r.plugin == disbatch.KindFunction && !claims {
		work()
	}
	if err := t.limit(ctx, threads); err != nil {
		return err
	}
	if err := t.await(ctx, failed, perTask*size, left); err != nil {
		return err
	}
	elapsed := now() - t.start
	after, err := t.readMeter()
	if err = errors.Join(err, t.failed); err != nil {
		return err
	}
	perMillion := func(spent time.Duration) float64 { return spent.Seconds() * 1e6 / float64(size) }
	s.Jobs, s.JobsPerSecond = size, float64(size)*1e9/float64(elapsed)
	s.ServerCPU, s.DriverCPU = perMillion(after.server-t.before.server), perMillion(after.driver-t.before.driver)
	s.CorePercent = 100 * float64(after.server-t.before.server) / float64(elapsed)
	if claims {
		work()
		if err := t.await(ctx, failed, 0, []int{disbatch.StatusRunning}); err != nil {
			return err
		}
	}
	return t.check(ctx, r.plugin == disbatch.KindFunction)
}

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
func (t *nodeTrial) await(ctx context.Context, failed <-chan error, updates int, statuses []int) error {
	ticker := time.NewTicker(settledPeriod)
	defer ticker.Stop()
	for from := t.updates.Load(); ; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %d of %d updates: %w", t.updates.Load()-from, updates, context.Cause(ctx))
		case err := <-failed:
			return fmt.Errorf("worker: %w", err)
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

// work is a Periodic worker that does what it is given, so many at a time, until ctx ends.
func (t *nodeTrial) work(ctx context.Context, depth int) error {
	p := newPeriodic()
	conn, err := side{protocol: p, network: "tcp", address: t.running.address}.dial(working)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	var in, out []byte
	for slot := range min(depth, pipeline) {
		out = p.appendGrab(out, uint32(slot))
	}
	buffer := make([]byte, pumpBuffer)
	for {
		if _, err := conn.Write(out); err != nil {
			return err
		}
		out = out[:0]
		n, err := conn.Read(buffer)
		if err != nil {
			return err
		}
		in = append(in, buffer[:n]...)
		var e event
		for {
			if n, err = p.next(in, &e); err != nil {
				return err
			}
			if n == 0 {
				break
			}
			if e.kind == assigned {
				if err := t.count(e.workload); err != nil {
					return err
				}
				out = p.appendGrab(p.appendDone(out, &e), e.slot)
			}
			in = in[n:]
		}
	}
}

// count notes that a task arrived at a worker.
func (t *nodeTrial) count(document []byte) error {
	_, rest, _ := bytes.Cut(document, []byte(taskMark))
	number, _, _ := bytes.Cut(rest, []byte(`"`))
	i, err := strconv.Atoi(string(number))
	if err != nil || i < 0 || i >= len(t.arrived) {
		stray := fmt.Errorf("a worker was given a task that nobody made: %.200q", document)
		t.stray.Store(&stray) // the task may end before anybody hears of the worker's end
		return stray
	}
	t.arrived[i].Add(1)
	return nil
}

// check says whether every task was done exactly once: by what the database holds, and by what the workers saw or, of
// commands, by what the node has counted.
func (t *nodeTrial) check(ctx context.Context, function bool) error {
	if stray := t.stray.Load(); stray != nil {
		return *stray
	}
	size := int64(len(t.arrived))
	done, err := t.store.CountTasks(ctx, map[string]any{"status": disbatch.StatusSucceeded, "complete": true})
	if err == nil && done != size {
		err = fmt.Errorf("%d of %d tasks have succeeded", done, size)
	}
	if err != nil {
		return err
	}
	for i := range t.arrived {
		if n := t.arrived[i].Load(); function && n != 1 {
			return fmt.Errorf("task %d was given to a worker %d times", i, n)
		}
	}
	if function {
		return nil
	}
	// The process that runs commands writes an end first, and then tells the node.
	ticker := time.NewTicker(settledPeriod)
	defer ticker.Stop()
	for deadline := now() + int64(dialLimit); ; <-ticker.C {
		if err = t.checkMetrics(ctx, size); err == nil || now() > deadline {
			return err
		}
	}
}

// checkMetrics says whether the node has claimed and ended so many tasks.
func (t *nodeTrial) checkMetrics(ctx context.Context, size int64) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.running.address+"/metrics", nil)
	if err != nil {
		return err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	for _, name := range []string{"treadle_disbatch_claims_total", `treadle_disbatch_tasks_total{end="succeeded"}`} {
		if line := fmt.Sprintf("\n%s %d\n", name, size); !strings.Contains(string(text), line) {
			return fmt.Errorf("the node does not count %d in %s", size, name)
		}
	}
	return nil
}
