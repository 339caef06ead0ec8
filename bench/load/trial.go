package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// StallLimit ends a trial in which nothing moves. It is also the time that a server has for the last completions.
	StallLimit = 10 * time.Second
	// TrialLimit ends a trial that moves without an end. The slowest one, draining half a million jobs from gearmand,
	// takes a minute on busy cores.
	TrialLimit = 4 * time.Minute
	// DialLimit bounds connecting, greeting and each question to a server.
	DialLimit = 10 * time.Second
)

// Load describes a trial.
type Load struct {
	Connections int // producers
	Workers     int // 0: as many as producers
	Depth       int // requests in flight a connection; a worker that is pushed its jobs has one
	Jobs        int
	Rate        int           // jobs a second in an open loop; 0: as fast as the answers come
	Stall       time.Duration // ends the trial when nothing moves for so long; 0: StallLimit
	Functions   int           // of the jobs; a worker serves some. 0: one function, served by all workers
	Keys        int           // of the jobs; 0: none

	// Ready and Delayed jobs are in the server from before the clock starts until after it has stopped.
	Ready, Delayed int
	First          uint64 // the id of the first job behind the ready ones
}

// Endpoint is one end of a trial: a protocol and an address.
type Endpoint struct {
	Protocol Protocol
	Network  string
	Address  string
}

// Dial connects and greets. The connection has no deadline.
func (to Endpoint) Dial(as Role) (net.Conn, error) {
	conn, err := net.DialTimeout(to.Network, to.Address, DialLimit)
	if err != nil {
		return nil, err
	}
	err = conn.SetDeadline(time.Now().Add(DialLimit))
	if err == nil {
		err = to.Protocol.Greet(conn, as)
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

// Endpoints are the ends of a trial. They are the same unless producers and workers speak different protocols, or have
// ports of their own.
type Endpoints struct {
	Produce Endpoint
	Work    Endpoint
	Ask     Endpoint // for the jobs left
}

// Trial is one load on one running server. Producers and workers have a pump each, so the load generator keeps two
// goroutines busy.
type Trial struct {
	Load      Load
	endpoints Endpoints

	producerSide *producerSide
	workerSide   *workerSide
	producers    *pump
	workers      *pump
	pacer        *pacer
	backlog      *backlog
	stop         atomic.Bool
	forget       func() bool // ends the watch on the context
}

// New prepares a trial; when ctx ends, or the trial takes longer than its limit, it stops with an error. Close ends it.
func New(ctx context.Context, s Endpoints, l Load) *Trial {
	if l.Workers == 0 {
		l.Workers = l.Connections
	}
	l.Stall = cmp.Or(l.Stall, StallLimit)
	t := &Trial{
		endpoints: s, Load: l,
		producerSide: newProducerSide(s.Produce.Protocol, l.Jobs), workerSide: newWorkerSide(s.Work.Protocol, l.Ready+l.Jobs),
	}
	t.producerSide.first, t.workerSide.arrived.wanted = l.First+uint64(l.Ready), l.Jobs
	ctx, cancel := context.WithTimeout(ctx, TrialLimit)
	release := context.AfterFunc(ctx, t.Stop)
	t.forget = func() bool { cancel(); return release() }
	return t
}

// Stop makes whatever runs return an error soon.
func (t *Trial) Stop() { t.stop.Store(true) }

// Stopped reports whether the trial was stopped.
func (t *Trial) Stopped() bool { return t.stop.Load() }

// Close closes all connections.
func (t *Trial) Close() {
	t.forget()
	t.pacer.close()
	t.backlog.close()
	t.producers.close()
	t.workers.close()
}

// connect makes a pump with one greeted connection for each conversation.
func (t *Trial) connect(to Endpoint, as Role, n int, newConversation func() conversation) (*pump, error) {
	connections := make([]*connection, 0, n)
	for range n {
		conn, err := to.Dial(as)
		if err != nil {
			return &pump{poller: -1, connections: connections}, err
		}
		fd, err := detach(conn)
		if err != nil {
			return &pump{poller: -1, connections: connections}, err
		}
		connections = append(connections, &connection{fd: fd, conversation: newConversation()})
	}
	return newPump(connections)
}

// Connect connects the workers, which do not grab yet, and the producers, which do not submit yet.
func (t *Trial) Connect() error { return errors.Join(t.ConnectWorkers(), t.ConnectProducers()) }

// ConnectProducers connects the producers, which do not submit yet.
func (t *Trial) ConnectProducers() (err error) {
	slots := t.Load.Depth
	if t.Load.Rate > 0 {
		slots = t.Load.Jobs/t.Load.Connections + 1
	}
	t.producers, err = t.connect(t.endpoints.Produce, Producing, t.Load.Connections, func() conversation {
		return newProducer(t.producerSide, slots, t.Load.Rate > 0)
	})
	if err == nil && t.Load.Rate > 0 {
		t.pacer, err = newPacer(t.producers, t.producerSide, t.Load.Rate)
	}
	return err
}

// ConnectWorkers connects the workers, which do not grab yet.
func (t *Trial) ConnectWorkers() (err error) {
	depth := t.Load.Depth
	if t.workerSide.traits.PushesJobs {
		depth = 1
	}
	t.workers, err = t.connect(t.endpoints.Work, Working, t.Load.Workers, func() conversation {
		return &worker{side: t.workerSide, depth: depth}
	})
	return err
}

// Produce submits all jobs and waits for the acknowledgements, or for the answers.
func (t *Trial) Produce() error {
	begin := t.producers.open
	if t.pacer != nil {
		begin = t.pacer.begin
	}
	err := begin()
	if err == nil {
		err = t.producers.run(t.producerSide, &t.stop, t.Load.Stall)
	}
	if err != nil {
		return fmt.Errorf("producers, %d of %d submits acknowledged: %w", t.producerSide.acked, t.producerSide.jobs, errors.Join(err, t.producerSide.check()))
	}
	return nil
}

// work lets the workers, which have grabbed already, take all jobs.
func (t *Trial) work(limit time.Duration) error {
	err := t.workers.run(t.workerSide, &t.stop, limit)
	if err != nil {
		return fmt.Errorf("workers: %w", errors.Join(err, t.workerSide.arrived.check()))
	}
	return nil
}

// Work takes and completes all jobs, however long the next one takes to come.
func (t *Trial) Work() error {
	if err := t.workers.open(); err != nil {
		return err
	}
	return t.work(TrialLimit)
}

// ProduceAndWork does both at a time and returns the nanoseconds from the first submit to the last arrival or answer.
func (t *Trial) ProduceAndWork() (int64, error) {
	if t.Load.Rate == 0 && !t.producerSide.traits.Answers {
		var err error
		if t.backlog, err = newBacklog(t.producers, t.Load); err != nil {
			return 0, err
		}
		t.producerSide.backlog, t.workerSide.backlog = t.backlog, t.backlog
	}
	if err := t.workers.open(); err != nil {
		return 0, err
	}
	start := Now()
	var both sync.WaitGroup
	var workErr error
	both.Go(func() {
		if workErr = t.work(t.Load.Stall); workErr != nil {
			t.Stop()
		}
	})
	err := t.Produce()
	if err != nil {
		t.Stop()
	}
	both.Wait()
	return max(t.workerSide.last, t.producerSide.last) - start, errors.Join(workErr, err)
}

// Drain takes and completes the jobs that are queued already, and returns how many nanoseconds that took.
func (t *Trial) Drain() (int64, error) {
	start := Now()
	if err := t.workers.open(); err != nil {
		return 0, err
	}
	err := t.work(t.Load.Stall)
	return t.workerSide.last - start, err
}

// Settle waits until the server holds only the ready and delayed jobs from before, and checks that every job arrived
// exactly once.
func (t *Trial) Settle() error {
	allowed := 0
	if t.Load.Depth > 1 {
		allowed = t.workerSide.traits.Unfinished * t.Load.Depth * t.Load.Workers
	}
	standing := t.Load.Ready + t.Load.Delayed
	for deadline := Now() + int64(t.Load.Stall); ; time.Sleep(time.Millisecond) {
		pending, err := t.Pending()
		if err != nil {
			return fmt.Errorf("cannot ask for the jobs left: %w", err)
		}
		if pending < standing {
			return fmt.Errorf("the server holds %d jobs of the %d that nobody took", pending, standing)
		}
		if pending <= standing+allowed {
			break
		}
		if t.Stopped() {
			return ErrStopped
		}
		if Now() > deadline {
			return fmt.Errorf("the server still holds %d jobs %v after the last one arrived", pending-standing, t.Load.Stall)
		}
	}
	if err := t.workers.run(confirmation{t.workerSide}, &t.stop, t.Load.Stall); err != nil {
		return fmt.Errorf("%d completions were not acknowledged: %w", t.workerSide.owed, err)
	}
	return t.Check()
}

// Check checks that every job arrived exactly once. It first reads all bytes that have arrived, so that it sees a job
// that a server sent twice.
func (t *Trial) Check() error {
	if err := errors.Join(t.workers.sweep(), t.producers.sweep()); err != nil {
		return err
	}
	return errors.Join(t.workerSide.arrived.check(), t.producerSide.check())
}

// Pending asks over a fresh connection for the number of jobs that the server holds.
func (t *Trial) Pending() (int, error) {
	conn, err := t.endpoints.Ask.Dial(Idling)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(DialLimit)); err != nil {
		return 0, err
	}
	return t.endpoints.Ask.Protocol.Pending(conn)
}

// Idle opens connections that are greeted and say nothing more; leave closes them.
func (t *Trial) Idle(connections int) (leave func(), err error) {
	var open []net.Conn
	leave = func() {
		for _, conn := range open {
			conn.Close()
		}
	}
	for i := range connections {
		conn, err := t.endpoints.Produce.Dial(Idling)
		if err != nil {
			leave()
			return nil, fmt.Errorf("idle connection %d: %w", i, err)
		}
		open = append(open, conn)
	}
	return leave, nil
}

// Summary is a trial's latencies.
type Summary struct {
	Submit   Quantiles // from submit, with a rate from when it was due, to its acknowledgement
	ToWorker Quantiles // from the same moment to the arrival at a worker
	Answer   Quantiles // from submit to the arrival of the result
	Grab     Quantiles // from a grab to the arrival of a job; of connections with one request in flight
}

// Summary returns the latencies so far.
func (t *Trial) Summary() Summary {
	f := Summary{Submit: t.producerSide.latency.Quantiles(), ToWorker: t.workerSide.latency.Quantiles(), Grab: t.workerSide.grabbed.Quantiles()}
	if t.producerSide.traits.Answers {
		f.Answer = t.producerSide.answers.Quantiles()
	}
	return f
}
