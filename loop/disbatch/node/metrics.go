package node

import (
	"fmt"
	"sync/atomic"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
	"treadle/loop/web"
)

// ends holds the values of the metrics' label end, in the order of counts. Other statuses of plugins share one value,
// since a label must have few.
var ends = [...]string{"succeeded", "failed", "other"}

// endKind returns the index of a status in ends.
func endKind(status int) int {
	switch status {
	case store.StatusSucceeded:
		return 0
	case store.StatusFailed:
		return 1
	}
	return 2
}

// tally counts the operations of a process on tasks.
type tally struct {
	ended  [len(ends)]atomic.Uint64
	errors atomic.Uint64 // failed calls of the database, including retries

	// Only a node uses the counters below.
	claimed, released, orphaned atomic.Uint64
	ticked                      atomic.Int64 // time at which a tick last read the database, in ms since 1970; 0: never
}

// counts holds the increments of a process that runs commands since its last report.
type counts struct {
	Ended  [len(ends)]int64 `bson:"ended"`
	Errors int64            `bson:"errors"`
}

// take returns the counts since the last take and resets them.
func (t *tally) take() (c counts) {
	for i := range t.ended {
		c.Ended[i] = int64(t.ended[i].Swap(0))
	}
	c.Errors = int64(t.errors.Swap(0))
	return c
}

// add adds the counts of another process.
func (t *tally) add(c counts) {
	for i, n := range c.Ended {
		t.ended[i].Add(uint64(n))
	}
	t.errors.Add(uint64(c.Errors))
}

// Samples returns the current metrics of the node.
func (n *Node) Samples() []web.Sample {
	n.mu.Lock()
	slots, tasks, queues := n.slots, len(n.own), len(n.queues)
	n.mu.Unlock()
	all := []web.Sample{
		web.Counter("treadle_disbatch_claims_total", "Tasks claimed.", n.tally.claimed.Load()),
		web.Counter("treadle_disbatch_given_back_total", "Claimed tasks that were queued again.", n.tally.released.Load()),
		web.Counter("treadle_disbatch_orphaned_total", "Tasks marked as orphaned.", n.tally.orphaned.Load()),
		web.Counter("treadle_disbatch_database_errors_total", "Calls of the database that failed.", n.tally.errors.Load()),
		web.Gauge("treadle_disbatch_slots", "Slots in use: claims under way and tasks.", slots),
		web.Gauge("treadle_disbatch_tasks", "Tasks that this process has claimed and that are not at their end.", tasks),
		web.Gauge("treadle_disbatch_queues", "Queues that this node serves.", queues),
		web.Gauge("treadle_disbatch_last_tick_seconds", "When the node had last read its queues, in seconds since 1970; 0 is never.",
			float64(n.tally.ticked.Load())/1000),
	}
	for i, end := range ends {
		all = append(all, web.Counter("treadle_disbatch_tasks_total", "Tasks that ended.", n.tally.ended[i].Load()).With("end", end))
	}
	return all
}

// serveMetrics serves HTTP, if configured, until the caller calls stop.
func (n *Node) serveMetrics() (stop func(), err error) {
	if n.o.HTTP == "" {
		return func() {}, nil
	}
	guard, err := web.NewGuard(web.GuardOptions{Allow: n.o.AllowHosts, Listen: []string{n.o.HTTP}, Log: n.log})
	if err != nil {
		return nil, &config.SettingError{Err: fmt.Errorf("--allow-host: %w", err)}
	}
	l, err := config.Listen(n.o.HTTP, "--http")
	if err != nil {
		return nil, err
	}
	n.log.Info("listening", "protocol", "http", "address", "http://"+l.Addr().String())
	routes := []web.Route{web.Probe("/healthz", func() (bool, string) { return true, "ok" })}
	if n.o.Profiles {
		routes = append(routes, web.Profiles()...)
	}
	server, done := web.New(l, guard, n.Samples, nil, routes...), make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(); err != nil {
			n.log.Error("HTTP stopped", "error", err.Error())
		}
	}()
	return func() {
		_ = server.Close() // open requests get no answer
		<-done
	}, nil
}
