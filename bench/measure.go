package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"treadle/bench/load"
	"treadle/bench/peer"
	"treadle/loop/disbatch/config"
)

const (
	// delayLeast is the delay in seconds of the earliest delayed job.
	delayLeast = 24 * 3600
	// delayedFirst is the id of the first delayed job, above the ids of all jobs that arrive.
	delayedFirst = 1 << 40
	// minRestMB ends the wait for a server to return the memory of finished jobs.
	minRestMB = 40.0
	restTick  = 500 * time.Millisecond
	// appendLen is the size of an append in the row of the disk: a job of 100 bytes and the overhead of a journal.
	appendLen = 200
)

// measure starts a fresh server, takes one sample of it, and ends it.
func measure(ctx context.Context, r row, p peer.Contender, size int) (sample, error) {
	s := sample{Section: r.Section, Row: r.Name, Server: p.Name}
	if p.Name == peer.RawDisk {
		return s, s.syncDisk(ctx, peer.DiskPlace(), size)
	}
	if r.Plugin != "" {
		return s, s.measureNode(ctx, r, size, func(ctx context.Context, file string) (*peer.Server, error) {
			return peer.StartNode(ctx, p.Path, file, r.Plugin == config.KindFunction) // tasks of a function need a server
		})
	}
	running, err := p.Start(ctx)
	if err != nil {
		return s, err
	}
	defer running.Stop()
	err = s.measureServer(ctx, r, p, running, size)
	if err == nil {
		return s, nil
	}
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	return s, fmt.Errorf("%w\nthe server's output ends with:\n%s", err, running.LastOutput())
}

// measureServer takes one sample of a running server.
func (s *sample) measureServer(ctx context.Context, r row, p peer.Contender, running *peer.Server, size int) error {
	switch {
	case apiKinds[r.Kind] != nil:
		return s.measureAPI(ctx, r, running, size)
	case r.Kind == kindHub:
		return s.hub(ctx, r, running, size)
	case r.Kind == kindFrames:
		return s.frames(ctx, r.Load, running, size)
	}
	if err := fill(ctx, running, r.Load); err != nil {
		return err
	}
	l := r.Load
	if r.Kind != kindIdle {
		l.Jobs = size
	}
	t := load.New(ctx, r.endpoints(p, running), l)
	defer t.Close()
	switch r.Kind {
	case kindFlow:
		phase := func() error { return s.flow(t, r, running.PID) }
		switch {
		case r.Collecting:
			return repeatDuring(ctx, collectPause, phase, collect(running))
		case r.ChangingPolicy:
			return repeatDuring(ctx, changePause, phase, togglePolicy(running))
		case r.Watched:
			return repeatDuring(ctx, scrapePause, phase, watch(running))
		}
		return phase()
	case kindDrain:
		if err := inOrder(t.Connect, t.Produce); err != nil {
			return err
		}
		return s.timedUntilEmpty(t, running.PID, t.Drain)
	case kindMemory:
		if err := s.memoryQueued(t, running.PID); err != nil || !isTreadle(p.Name) {
			return err
		}
		return s.memoryAfterDrain(t, running.PID, time.Duration(r.Rest)*time.Second)
	case kindIdle:
		return s.idle(t, running.PID, size)
	}
	return fmt.Errorf("rows.toml has a kind %q, which there is not", r.Kind)
}

// inOrder runs steps until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// timedUntilEmpty times one phase, after which the server must hold no job.
func (s *sample) timedUntilEmpty(t *load.Trial, pid int, phase func() (int64, error)) error {
	if err := s.timed(pid, t.Load.Jobs, phase); err != nil {
		return err
	}
	return t.Settle()
}

// flow measures a row whose producers and workers run at the same time.
func (s *sample) flow(t *load.Trial, r row, pid int) error {
	leave, err := t.Idle(r.Idle)
	if err != nil {
		return err
	}
	defer leave()
	if err := t.Connect(); err != nil {
		return err
	}
	if err := s.timedUntilEmpty(t, pid, t.ProduceAndWork); err != nil {
		return err
	}
	s.Rate = t.Load.Rate
	s.set("silent", float64(r.Idle))
	s.set("MB/s", s.Figures["jobs/s"]*float64(r.Payload)/1e6)
	found := t.Summary()
	s.setLatency("submit", found.Submit)
	s.setLatency("to worker", found.ToWorker)
	s.setLatency("answer", found.Answer)
	if r.ChangingPolicy {
		s.set("longest", max(found.Submit.Max, found.Grab.Max))
	}
	return nil
}

// frames has the requests of jobs sent back, over as many connections as producers and workers have, in a pump for
// either.
func (s *sample) frames(ctx context.Context, l load.Load, running *peer.Server, size int) error {
	to := load.Endpoint{Protocol: peer.NewEchoed(), Network: running.Network, Address: running.Address}
	var halves [2]*load.Trial
	for i := range halves {
		halves[i] = load.New(ctx, load.Endpoints{Produce: to, Work: to, Ask: to},
			load.Load{Connections: l.Connections, Depth: l.Depth / peer.FramesAJob, Jobs: (size + i) / 2})
		defer halves[i].Close()
		if err := halves[i].ConnectProducers(); err != nil {
			return err
		}
	}
	return s.timed(running.PID, size, elapsed(func() error {
		return load.Parallel(len(halves), func(i int) error { return halves[i].Produce() })
	}))
}

// hub measures over the dwork protocol.
func (s *sample) hub(ctx context.Context, r row, running *peer.Server, size int) error {
	ctx, cancel := context.WithTimeout(ctx, load.TrialLimit)
	defer cancel()
	h := load.NewDworkLoad(running.Hub, size, r.Load.Depth)
	creating := r.Load.Workers == 0
	phase := func() error { return h.Work(ctx, r.Load.Workers) }
	switch {
	case creating:
		phase = func() error { return h.Create(ctx) }
	case r.Libzmq:
		program, clean, err := load.BuildREQ(ctx)
		if err != nil {
			return err
		}
		defer clean()
		phase = func() error { return h.WorkREQ(ctx, program, r.Load.Workers) }
	}
	if !creating {
		if err := h.Create(ctx); err != nil {
			return err
		}
	}
	err := s.timed(running.PID, size, elapsed(phase))
	s.setLatency("submit", h.Latency())
	return err
}

// fill submits the jobs that stay in the server while other jobs flow.
func fill(ctx context.Context, running *peer.Server, l load.Load) error {
	soon := time.Now().Unix() + delayLeast
	for _, part := range []struct {
		options peer.PeriodicOptions
		jobs    int
		first   uint64
	}{
		{peer.PeriodicOptions{DueFrom: soon}, l.Delayed, delayedFirst},
		{peer.PeriodicOptions{Untimed: true, Keys: l.Keys}, l.Ready, 0},
	} {
		if part.jobs == 0 {
			continue
		}
		to := load.Endpoint{Protocol: peer.NewPeriodic(part.options), Network: running.Network, Address: running.Address}
		t := load.New(ctx, load.Endpoints{Produce: to, Work: to, Ask: to},
			load.Load{Connections: l.Connections, Depth: l.Depth, Jobs: part.jobs, First: part.first})
		err := inOrder(t.ConnectProducers, t.Produce)
		t.Close()
		if err != nil {
			return fmt.Errorf("filling the server: %w", err)
		}
	}
	return nil
}

// memoryQueued measures the growth of the server's memory from its first connections to the last acknowledged submit.
func (s *sample) memoryQueued(t *load.Trial, pid int) error {
	if err := t.ConnectProducers(); err != nil {
		return err
	}
	grown, err := metered(pid, t.Produce)
	if err != nil {
		return err
	}
	pending, err := t.Pending()
	if err == nil && pending != t.Load.Jobs {
		err = fmt.Errorf("%d jobs were acknowledged, the server holds %d", t.Load.Jobs, pending)
	}
	s.Jobs = t.Load.Jobs
	s.set("MB/1M", float64(grown.resident)/float64(s.Jobs)) // bytes a job are megabytes a million
	return err
}

// memoryAfterDrain drains the server, and waits up to a limit until it has given the memory of the jobs back.
func (s *sample) memoryAfterDrain(t *load.Trial, pid int, limit time.Duration) error {
	drain := func() error {
		_, err := t.Drain()
		return err
	}
	if err := inOrder(t.ConnectWorkers, drain, t.Settle); err != nil {
		return err
	}
	for start := time.Now(); ; time.Sleep(restTick) {
		resident, err := peer.ResidentBytes(pid)
		if err != nil {
			return err
		}
		if t.Stopped() {
			return load.ErrStopped
		}
		rest := float64(resident) / 1e6
		if rest < minRestMB || time.Since(start) > limit {
			s.set("MB later", rest)
			s.set("after s", time.Since(start).Seconds())
			return nil
		}
	}
}

// idle measures the growth of the server's memory over many greeted connections, and the processor time that it takes
// to greet them. The first connection is not counted: it may set up structures that all connections share.
func (s *sample) idle(t *load.Trial, pid, connections int) error {
	leave, err := t.Idle(1)
	if err != nil {
		return err
	}
	defer leave()
	connections = min(connections, descriptors())
	leaveMany := func() {}
	grown, err := metered(pid, func() (err error) {
		leaveMany, err = t.Idle(connections)
		return err
	})
	defer leaveMany()
	s.set("silent", float64(connections))
	s.set("KB/conn", float64(grown.resident)/1024/float64(connections))
	s.set("connect us", float64(grown.server.Microseconds())/float64(connections))
	return err
}

// syncDisk appends to a new file, with a sync after each append, and times the two together.
func (s *sample) syncDisk(ctx context.Context, place string, appends int) error {
	directory, err := os.MkdirTemp(place, "treadle-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	file, err := os.OpenFile(filepath.Join(directory, "appended"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // every append was synced, or has failed already
	record, took := make([]byte, appendLen), load.NewLatencies()
	start := load.Now()
	for range appends {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		begin := load.Now()
		if _, err := file.Write(record); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(file.Fd())); err != nil {
			return fmt.Errorf("fdatasync: %w", err)
		}
		took.Record(load.Now() - begin)
	}
	s.Jobs = appends
	s.set("jobs/s", float64(appends)/seconds(load.Now()-start))
	s.setLatency("submit", took.Quantiles())
	return nil
}
