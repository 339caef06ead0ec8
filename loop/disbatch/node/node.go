package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// Times of a node.
const (
	defaultInterval = time.Second
	defaultDrain    = 10 * time.Second
	// jitter is the fraction of an interval by which a tick is early or late. It spreads the queries of nodes that
	// started together.
	jitter = 0.1
	// duplicateWatch is the number of intervals that a starting node observes its entry for writes of another process.
	// duplicateSigns is the number of consecutive observations that must see a write.
	duplicateWatch = 2.5
	duplicateSigns = 2
	// orphanAge is the age from which a claimed task that has not begun counts as orphaned, as in the design text
	// of Disbatch, April 2016.
	orphanAge = 5 * time.Minute
)

// errDuplicate reports that another process updates the entry of this node.
var errDuplicate = errors.New("another process is this node: stop it, or give this one a name of its own with --node")

// Options holds the settings of a node. The zero value of a field stands for its default.
type Options struct {
	Config *config.File
	Name   string // default: name of the host
	// Executor is the command line of a process that calls RunTasks with its standard input and output. Without it the
	// node serves functions only.
	Executor []string
	// Functions is the server with the workers for plugins of the kind function. Without it the node does not serve
	// them.
	Functions Functions
	Interval  time.Duration        // between ticks; default 1 s, as in the design text of Disbatch, April 2016
	Drain     func() time.Duration // time that a stopping node waits for tasks of functions; default 10 s
	HTTP      string               // address of /metrics and /healthz; empty: none
	Profiles  bool                 // serve Go's profiles too
	Log       *slog.Logger         // default: discard
	// AllowHosts holds the host names that HTTP requests may name in addition to those of this host.
	AllowHosts []string
}

// Node is a Disbatch execution node. It claims tasks and starts them.
type Node struct {
	performer
	o             Options
	instance      instance
	randomBelow   func(n int) int                        // a random number below n
	after         func(d time.Duration) <-chan time.Time // time.After, or a clock of tests
	executor      executor
	plugins       *pluginLookup
	callsCtx      context.Context    // of database calls; outlasts Run's context by Options.Drain
	cancelCalls   context.CancelFunc // ends callsCtx
	claiming      sync.WaitGroup     // claims in progress
	functionTasks sync.WaitGroup     // tasks at workers of the server

	// The ticking goroutine alone uses the fields below.
	duplicateTick   int                         // the last tick that saw a write of another process to the node's entry
	ownHeartbeats   []int64                     // last timestamps that this process wrote to the node's entry, in ms since 1970
	heartbeats      map[string]store.Heartbeat  // by node name
	foreignLastTick map[primitive.ObjectID]bool // tasks that were foreign or new at the last tick
	runningAtStart  map[primitive.ObjectID]bool // foreign tasks that ran when this process started; nil before the first tick

	stopping chan struct{} // closed by stop

	// mu guards the fields below. Only the ticking goroutine writes ticks, view and queues, and it reads ticks without
	// mu.
	mu         sync.Mutex
	ticks      int       // snapshots that were read
	view       *snapshot // of the last tick
	limit      int       // of this node, in view
	foreign    int       // foreign tasks of view, without the tasks that got a slot since the tick
	queues     map[primitive.ObjectID]*queueState
	own        map[primitive.ObjectID]bool // tasks of this process
	slots      int                         // in use by claims and tasks of all queues
	halted     bool                        // the node claims no more tasks
	conditions map[subject]string          // reported reasons of faults
}

// subject is what has a fault: the node, or one of the queues.
type subject struct {
	about string             // without the name of the queue
	queue primitive.ObjectID // zero: the node has the fault
}

// queueState is a queue that the node serves.
type queueState struct {
	queue     store.Queue
	plugin    config.Plugin
	slots     int  // in use by claims and tasks of this process
	others    int  // tasks of other processes that count against the limit
	share     int  // slots that are refilled as soon as they are free, see Node.share
	extra     int  // claims beyond share that may still start before the next tick
	exhausted bool // a claim found no task or no room; until the next tick
	backoff   int  // the number of coming ticks that allow no extra claims
}

// New returns a node that Run starts. It does not connect to the database.
func New(o Options) (*Node, error) {
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("the host has no name, give the node one with --node: %w", err)
		}
		o.Name = host
	}
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.Drain == nil {
		o.Drain = func() time.Duration { return defaultDrain }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	site, err := store.Open(o.Config.Connection(config.ComponentNode))
	if err != nil {
		return nil, err
	}
	p, own := newPerformer(site, o.Config, o.Log), newInstance(o.Config.Database, o.Name)
	n := &Node{
		performer: *p, o: o, instance: own, randomBelow: rand.IntN, after: time.After, plugins: newPluginLookup(o.Config),
		executor:        executor{command: o.Executor, instance: own, log: o.Log, tally: p.tally},
		stopping:        make(chan struct{}),
		queues:          make(map[primitive.ObjectID]*queueState),
		own:             make(map[primitive.ObjectID]bool),
		conditions:      make(map[subject]string),
		view:            new(snapshot),
		foreignLastTick: make(map[primitive.ObjectID]bool),
		heartbeats:      make(map[string]store.Heartbeat),
	}
	n.callsCtx, n.cancelCalls = context.WithCancel(context.Background())
	return n, nil
}

// Run serves until ctx ends. Then it releases claimed tasks that have not begun and waits for the tasks of functions.
// Tasks that are commands continue in their process. Run waits for a database that does not answer.
func (n *Node) Run(ctx context.Context) error {
	defer n.store.Close()
	defer n.plugins.processes.Wait()
	defer n.cancelCalls()
	stop, err := n.serveMetrics()
	if err != nil {
		return err
	}
	defer stop()
	if err := n.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	n.log.Info("the Disbatch node is ready", "node", n.o.Name, "database", n.o.Config.Database)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-timer.C:
			if err := n.tick(ctx); err != nil && ctx.Err() == nil {
				n.tally.errors.Add(1)
				n.setCondition("tick", n.store.Explain(err).Error())
			} else {
				n.setCondition("tick", "")
			}
			timer.Reset(n.interval())
		}
	}
	n.stop()
	return nil
}

// interval returns the time to the next tick, with jitter.
func (n *Node) interval() time.Duration {
	largest := int(jitter * float64(n.o.Interval))
	return n.o.Interval + time.Duration(n.randomBelow(2*largest+1)-largest)
}

// prepare waits for the database, checks that no other process has the name of this node, and creates missing indexes.
func (n *Node) prepare(ctx context.Context) error {
	if err := n.retry.Usable(ctx); err != nil {
		return err
	}
	if err := n.checkExecutor(ctx); err != nil {
		return err
	}
	if err := n.checkDuplicate(ctx); err != nil {
		return err
	}
	for _, fault := range n.store.EnsureIndexes(ctx) {
		n.log.Warn("going on without an index", "error", fault.Error())
	}
	return nil
}

// checkExecutor is Usable for the executor, which has its own user and password.
func (n *Node) checkExecutor(ctx context.Context) error {
	if n.o.Executor == nil || len(n.o.Config.Auth) == 0 {
		return nil
	}
	site, err := store.Open(n.o.Config.Connection(config.ComponentRunner))
	if err != nil {
		return err
	}
	defer site.Close()
	return site.Retrier(n.log, nil).Usable(ctx)
}

// checkDuplicate returns errDuplicate if the entry of this node keeps changing while this process does not write it. It
// compares timestamps for equality only, since clocks of hosts differ. One change proves nothing: the last write of a
// killed process may arrive late.
func (n *Node) checkDuplicate(ctx context.Context) error {
	before, err := n.retryEntry(ctx)
	if err != nil || before.Timestamp.IsZero() {
		return err
	}
	for range duplicateSigns {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.after(time.Duration(duplicateWatch * float64(n.o.Interval))):
		}
		after, err := n.retryEntry(ctx)
		if err != nil || after.Timestamp.Equal(before.Timestamp) {
			return err
		}
		before = after
	}
	return fmt.Errorf("node %s: %w", n.o.Name, errDuplicate)
}

// retryEntry is entry for a starting node. It waits for a database that does not answer.
func (n *Node) retryEntry(ctx context.Context) (e store.Node, err error) {
	err = n.retry.Do(ctx, "starting", func() (err error) {
		e, err = n.entry(ctx)
		return err
	})
	return e, err
}

// setCondition logs the reason of a fault of the node once per change. An empty reason ends the fault.
func (n *Node) setCondition(about, reason string) {
	n.noteCondition(subject{about: about}, about, reason)
}

// setQueueCondition is setCondition for a fault of a queue. The fault ends with the queue too, see adjust.
func (n *Node) setQueueCondition(about string, q *store.Queue, reason string) {
	n.noteCondition(subject{about, q.ID}, about+" "+q.Name+" "+q.ID.Hex(), reason)
}

// noteCondition records the reason of a fault and logs a change. about names the subject in the log.
func (n *Node) noteCondition(of subject, about, reason string) {
	n.mu.Lock()
	changed := n.conditions[of] != reason
	if reason == "" {
		delete(n.conditions, of)
	} else {
		n.conditions[of] = reason
	}
	n.mu.Unlock()
	switch {
	case !changed:
	case reason == "":
		n.log.Info("a fault of the Disbatch node is over", "about", about)
	default:
		n.log.Warn("a fault of the Disbatch node", "about", about, "reason", reason)
	}
}

// stop releases claimed tasks that have not begun and waits for the tasks of functions. The order matters: no claim
// begins after halted, ReleaseAll runs when all claims have ended, and the executor begins no task after detach.
func (n *Node) stop() {
	n.mu.Lock()
	n.halted = true
	queues := n.view.queues
	n.mu.Unlock()
	close(n.stopping)
	after := time.AfterFunc(n.o.Drain(), n.cancelCalls)
	defer after.Stop()
	n.claiming.Wait() // a claim ends with the time-out of its call; a later one would miss the release below
	err := n.retry.Do(n.callsCtx, "releasing tasks", func() (err error) {
		if queues == nil { // before the first tick; an earlier process may have claimed tasks
			if queues, err = n.store.Queues(n.callsCtx); err != nil {
				return err
			}
		}
		released, err := n.store.ReleaseAll(n.callsCtx, n.o.Name, queues)
		n.tally.released.Add(uint64(released))
		if released > 0 {
			n.log.Info("gave claimed tasks back", "tasks", released)
		}
		return err
	})
	if err != nil {
		n.log.Warn("claimed tasks stay claimed until this node starts again", "error", err.Error())
	}
	n.executor.detach()
	n.functionTasks.Wait()
	n.log.Info("the Disbatch node has stopped", "node", n.o.Name)
}
