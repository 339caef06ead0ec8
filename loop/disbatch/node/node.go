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

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/config"
)

// Times of the node.
const (
	defaultInterval = time.Second
	defaultDrain    = 10 * time.Second
	// jitter is the part of an interval by which ticks are earlier or later, so that nodes
	// that were started together do not ask together.
	jitter = 0.1
	// duplicateWatch is how many intervals a starting node waits to see whether another process
	// writes its entry, duplicateSigns how many such waits in a row must show a write.
	duplicateWatch = 2.5
	duplicateSigns = 2
	// orphanAge is how long a task may be claimed and not begun, the document's.
	orphanAge = 5 * time.Minute
)

// ErrDuplicate says that another process updates the entry of this node.
var ErrDuplicate = errors.New("another process is this node: stop it, or give this one a name of its own with --node")

// Options are the settings of a node; the zero value of a field means its default.
type Options struct {
	Config *config.File
	Name   string // default: the host's
	// Runner is the command that runs RunTasks with the node's pipes; without it
	// plugins that need one are not available.
	Runner []string
	// Functions is the server whose workers do tasks; without it plugins of the kind
	// function are not available.
	Functions Functions
	Interval  time.Duration // between ticks, default 1 s, the document's
	Drain     time.Duration // for the tasks of functions that a stopping node waits for, default 10 s
	HTTP      string        // address of /metrics and /healthz; empty: none
	Profiles  bool          // Go's profiles are there, too
	Log       *slog.Logger  // default: discard
	// AllowHosts are host names that HTTP requests may be sent to, beside the host's own.
	AllowHosts []string
}

// Node is a Disbatch execution node: it claims tasks and has them run.
type Node struct {
	performer
	o      Options
	life   nodeLife
	pick   func(n int) int                        // one of n, by chance
	after  func(d time.Duration) <-chan time.Time // how a node that starts waits
	runner runner
	loader *loader
	calls  context.Context    // of calls of the database, ends some time after the node is told to
	end    context.CancelFunc // of calls
	claims sync.WaitGroup     // claims under way
	waits  sync.WaitGroup     // tasks that workers of the server do

	// Of the goroutine that ticks.
	ticks   int
	written []int64                     // the last times that this node wrote to its entry, in ms
	known   map[primitive.ObjectID]bool // tasks of this node that were not this process's at the last tick
	seen    map[string]sighting         // by name of a node
	left    map[primitive.ObjectID]bool // tasks of this node that ran when it started; nil before the first tick

	stopping chan struct{} // closed when the node is told to stop

	mu     sync.Mutex
	view   view
	queues map[primitive.ObjectID]*queueState
	local  map[primitive.ObjectID]bool // tasks that this process deals with
	slots  int                         // held by claimers and tasks, over all queues
	halted bool                        // nothing is claimed any more
	said   map[string]string           // what was reported, by what it is about
}

// view is what a tick saw of the database.
type view struct {
	config  *config.File
	queues  []disbatch.Queue
	nodes   []disbatch.Node
	limit   int // of this node
	foreign int // tasks of this node that another life of it has
}

// queueState is what a node knows of a queue that it serves.
type queueState struct {
	queue   disbatch.Queue
	plugin  config.Plugin
	slots   int  // held by claimers and tasks of this process
	others  int  // tasks that count against the limit and are not this process's
	share   int  // slots that are refilled at once
	turn    int  // claims beyond the share until the next tick
	drained bool // nothing was there to claim; until the next tick, or after more of them
	rest    int  // ticks after the next without a turn
}

// New prepares a node.
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
	if o.Drain == 0 {
		o.Drain = defaultDrain
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	store, err := disbatch.Open(o.Config, config.ComponentNode)
	if err != nil {
		return nil, err
	}
	p, life := newPerformer(store, o.Config, o.Log), newLife(o.Config.Database, o.Name)
	n := &Node{
		performer: *p, o: o, life: life, pick: rand.IntN, after: time.After, runner: runner{command: o.Runner, life: life, log: o.Log, tally: p.tally}, loader: newLoader(o.Config),
		stopping: make(chan struct{}),
		queues:   make(map[primitive.ObjectID]*queueState), local: make(map[primitive.ObjectID]bool), said: make(map[string]string),
		known: make(map[primitive.ObjectID]bool), seen: make(map[string]sighting),
	}
	n.calls, n.end = context.WithCancel(context.Background())
	return n, nil
}

// Run serves until ctx ends; then it gives back what has not begun, and waits for the tasks
// of functions. Tasks that are commands go on without it. A database that is away is waited
// for.
func (n *Node) Run(ctx context.Context) error {
	defer n.store.Close()
	defer n.loader.lives.Wait()
	defer n.end()
	stop, err := n.serveMetrics()
	if err != nil {
		return err
	}
	defer stop()
	if err := n.begins(ctx); err != nil {
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
				n.say("tick", n.store.Explain(err).Error())
			} else {
				n.say("tick", "")
			}
			timer.Reset(n.interval())
		}
	}
	n.stop()
	return nil
}

func (n *Node) interval() time.Duration {
	most := int(jitter * float64(n.o.Interval))
	return n.o.Interval + time.Duration(n.pick(2*most+1)-most)
}

// begins waits for the database, sees that no other process is this node, and ensures the
// indexes.
func (n *Node) begins(ctx context.Context) error {
	if err := n.retry.Usable(ctx); err != nil {
		return err
	}
	if err := n.runnerUsable(ctx); err != nil {
		return err
	}
	if err := n.duplicate(ctx); err != nil {
		return err
	}
	for _, fault := range n.store.EnsureIndexes(ctx) {
		n.log.Warn("going on without an index", "error", fault.Error())
	}
	return nil
}

// runnerUsable is Usable for the process that runs the tasks, which has a password of its own.
func (n *Node) runnerUsable(ctx context.Context) error {
	if n.o.Runner == nil || len(n.o.Config.Auth) == 0 {
		return nil
	}
	store, err := disbatch.Open(n.o.Config, config.ComponentRunner)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Retrier(n.log, nil).Usable(ctx)
}

// duplicate returns ErrDuplicate if the entry of this node keeps changing while this process does not write it. Clocks of
// other hosts are not believed. One change alone proves nothing: the last write of a process that was killed may arrive late.
func (n *Node) duplicate(ctx context.Context) error {
	before, err := n.patientEntry(ctx)
	if err != nil || before.Timestamp.IsZero() {
		return err
	}
	for range duplicateSigns {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.after(time.Duration(duplicateWatch * float64(n.o.Interval))):
		}
		after, err := n.patientEntry(ctx)
		if err != nil || after.Timestamp.Equal(before.Timestamp) {
			return err
		}
		before = after
	}
	return fmt.Errorf("node %s: %w", n.o.Name, ErrDuplicate)
}

// patientEntry is entry for a node that starts: a database that is away is waited for.
func (n *Node) patientEntry(ctx context.Context) (e disbatch.Node, err error) {
	err = n.retry.Do(ctx, "starting", func() (err error) {
		e, err = n.entry(ctx)
		return err
	})
	return e, err
}

// say reports something once, until it changes; nothing ends it.
func (n *Node) say(about, what string) {
	n.mu.Lock()
	changed := n.said[about] != what
	if what == "" {
		delete(n.said, about)
	} else {
		n.said[about] = what
	}
	n.mu.Unlock()
	switch {
	case !changed:
	case what == "":
		n.log.Info("well again", "about", about)
	default:
		n.log.Warn("not well", "about", about, "reason", what)
	}
}

// giveBack queues claimed tasks of this node again: one by id, or all that have not begun.
func (n *Node) giveBack(ctx context.Context, queues []disbatch.Queue, only ...primitive.ObjectID) (int64, error) {
	given, err := n.store.release(ctx, n.o.Name, queues, only...)
	n.tally.givenBack.Add(uint64(given))
	return given, err
}

// stop gives back what has not begun, and waits for functions.
func (n *Node) stop() {
	n.mu.Lock()
	n.halted = true
	queues := n.view.queues
	n.mu.Unlock()
	close(n.stopping)
	after := time.AfterFunc(n.o.Drain, n.end)
	defer after.Stop()
	n.claims.Wait() // each ends with the time-out of a call
	err := n.retry.Do(n.calls, "giving tasks back", func() (err error) {
		if queues == nil { // no tick has read them, and an earlier life may have claimed
			if queues, err = n.store.Queues(n.calls); err != nil {
				return err
			}
		}
		given, err := n.giveBack(n.calls, queues)
		if given > 0 {
			n.log.Info("gave claimed tasks back", "tasks", given)
		}
		return err
	})
	if err != nil {
		n.log.Warn("claimed tasks stay claimed until this node starts again", "error", err.Error())
	}
	n.runner.release()
	n.waits.Wait()
	n.log.Info("the Disbatch node has stopped", "node", n.o.Name)
}
