package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stallLimit ends a trial in which nothing moves any more. It is also the time that a server has to work off the
	// completions that were sent last.
	stallLimit = 10 * time.Second
	// trialLimit ends a trial that moves, but would never be over. The slowest, draining half a million jobs from gearmand,
	// takes a minute on busy cores.
	trialLimit = 4 * time.Minute
	// dialLimit bounds connecting, greeting and each question to a server.
	dialLimit = 10 * time.Second
)

// load says what a trial does.
type load struct {
	connections int // producers
	workers     int // 0: as many as producers
	depth       int // requests in flight a connection; a worker that is pushed its jobs has one
	jobs        int
	rate        int  // jobs a second in an open loop; 0: as fast as the answers come
	payload     int  // bytes of a workload; 0: workloadLen
	libzmq      bool // dwork workers are processes over libzmq
	functions   int  // Periodic functions, of which a worker serves functionsServed; 0: one
	functionRun int  // neighbouring jobs of one of them; 0: one

	// ready and delayed jobs stand in the server from before the clock starts until after it has stopped.
	ready, delayed int
	idlers         int  // connections that were greeted and say nothing
	collects       bool // the server is made to collect its garbage all the time
}

// side is one side of a trial: what is spoken, and where.
type side struct {
	protocol protocol
	network  string
	address  string
}

// sides are those of a trial. All are the same, unless producers and workers speak different protocols, or have
// ports of their own.
type sides struct {
	produce side
	work    side
	ask     side // for the jobs left
}

// trial is one load on one running server. Producers and workers have a pump each, so the load generator keeps two
// goroutines busy.
type trial struct {
	sides sides
	load  load

	feed      *feed
	master    *master // in place of the feed in protocols that answer, else nil
	harvest   *harvest
	producers *pump
	workers   *pump
	pacer     *pacer
	backlog   *backlog
	stop      atomic.Bool
	forget    func() bool // takes back the watch on the context
}

// newTrial prepares a trial; when ctx ends, or the trial takes longer than its limit, it stops with an error.
func newTrial(ctx context.Context, s sides, l load) *trial {
	if l.workers == 0 {
		l.workers = l.connections
	}
	t := &trial{
		sides: s, load: l,
		feed: newFeed(s.produce.protocol, l.jobs), harvest: newHarvest(s.work.protocol, l.ready+l.jobs),
	}
	t.feed.first, t.harvest.arrived.wanted = uint64(l.ready), l.jobs
	if s.produce.protocol.traits().answers {
		t.master = newMaster(s.produce.protocol, l, answered)
	}
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	release := context.AfterFunc(ctx, func() { t.stop.Store(true) })
	t.forget = func() bool { cancel(); return release() }
	return t
}

func (t *trial) close() {
	t.forget()
	t.pacer.close()
	t.backlog.close()
	t.producers.close()
	t.workers.close()
}

// dial connects and greets.
func (t *trial) dial(as role) (net.Conn, error) {
	if as == working {
		return t.sides.work.dial(as)
	}
	return t.sides.produce.dial(as)
}

// dial connects and greets; the connection has no deadline any more.
func (to side) dial(as role) (net.Conn, error) {
	conn, err := net.DialTimeout(to.network, to.address, dialLimit)
	if err != nil {
		return nil, err
	}
	err = conn.SetDeadline(time.Now().Add(dialLimit))
	if err == nil {
		err = to.protocol.greet(conn, as)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// connect makes a pump with one greeted connection for each conversation.
func (t *trial) connect(as role, connections int, talk func() conversation) (*pump, error) {
	lines := make([]*line, 0, connections)
	for range connections {
		conn, err := t.dial(as)
		if err != nil {
			return &pump{poller: -1, lines: lines}, err
		}
		fd, err := detach(conn)
		if err != nil {
			return &pump{poller: -1, lines: lines}, err
		}
		lines = append(lines, &line{fd: fd, talk: talk()})
	}
	return newPump(lines)
}

// hireProducers connects the producers, which do not submit yet.
func (t *trial) hireProducers() (err error) {
	slots := t.load.depth
	if t.load.rate > 0 {
		slots = t.load.jobs/t.load.connections + 1
	}
	t.producers, err = t.connect(producing, t.load.connections, func() conversation {
		if t.master != nil {
			return t.master
		}
		return newProducer(t.feed, slots, t.load.rate > 0)
	})
	if err == nil && t.load.rate > 0 {
		t.pacer, err = newPacer(t.producers, t.feed, t.load.rate)
	}
	return err
}

// hireWorkers connects the workers, which do not grab yet.
func (t *trial) hireWorkers() (err error) {
	depth := t.load.depth
	if t.harvest.traits.pushes {
		depth = 1
	}
	t.workers, err = t.connect(working, t.load.workers, func() conversation {
		return &worker{harvest: t.harvest, depth: depth}
	})
	return err
}

// produce submits all jobs and waits for the acknowledgements, or for the answers.
func (t *trial) produce() error {
	begin := t.producers.open
	if t.pacer != nil {
		begin = t.pacer.begin
	}
	if err := begin(); err != nil {
		return fmt.Errorf("producers: %w", err)
	}
	return t.await()
}

// await runs the producers until they have what they wait for.
func (t *trial) await() error {
	if t.master != nil {
		if err := t.producers.run(t.master, &t.stop, stallLimit); err != nil {
			return fmt.Errorf("master: %w", errors.Join(err, t.master.check()))
		}
		return nil
	}
	if err := t.producers.run(t.feed, &t.stop, stallLimit); err != nil {
		return fmt.Errorf("producers, %d of %d submits acknowledged: %w", t.feed.acked, t.feed.jobs, err)
	}
	return nil
}

// work lets the workers, who have grabbed already, take all jobs.
func (t *trial) work() error {
	err := t.workers.run(t.harvest, &t.stop, stallLimit)
	if err != nil {
		return fmt.Errorf("workers: %w", errors.Join(err, t.harvest.arrived.check()))
	}
	return nil
}

// produceAndWork does both at a time and returns the nanoseconds from the first submit to the last arrival or answer.
func (t *trial) produceAndWork() (int64, error) {
	if t.load.rate == 0 && t.master == nil {
		var err error
		if t.backlog, err = newBacklog(t.producers, t.load); err != nil {
			return 0, err
		}
		t.feed.backlog, t.harvest.backlog = t.backlog, t.backlog
	}
	if err := t.workers.open(); err != nil {
		return 0, err
	}
	return t.together(now(), t.produce)
}

// together runs the workers beside what the producers still have to do, and returns the nanoseconds from the start
// until both were done.
func (t *trial) together(start int64, produce func() error) (int64, error) {
	var working sync.WaitGroup
	var workErr error
	working.Go(func() {
		if workErr = t.work(); workErr != nil {
			t.stop.Store(true)
		}
	})
	err := produce()
	if err != nil {
		t.stop.Store(true)
	}
	working.Wait()
	last := t.harvest.last
	if t.master != nil {
		last = t.master.last
	}
	return last - start, errors.Join(workErr, err)
}

// queue submits all jobs and waits for the acknowledgements alone.
func (t *trial) queue() error {
	if t.master == nil {
		return t.produce()
	}
	t.master.awaits = submitted
	err := t.produce()
	t.master.awaits = answered
	return err
}

// drain takes and completes the jobs that are queued already, and returns how many nanoseconds that took.
func (t *trial) drain() (int64, error) {
	start := now()
	if err := t.workers.open(); err != nil {
		return 0, err
	}
	if t.master != nil {
		return t.together(start, t.await)
	}
	err := t.work()
	return t.harvest.last - start, err
}
