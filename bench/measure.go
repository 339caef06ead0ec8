package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// sample is what one measurement of one contender in one row found. Values that the row does not have are 0.
type sample struct {
	Section section `json:"section,omitempty"`
	Row     string  `json:"row"`
	Server  string  `json:"server"`
	Round   int     `json:"round"`
	Jobs    int     `json:"jobs,omitempty"`
	Rate    int     `json:"rate,omitempty"` // jobs a second in an open loop

	JobsPerSecond float64   `json:"jobs_per_second,omitempty"`
	Submit        quantiles `json:"submit,omitzero"`    // from submit, in the paced row from when it was due, to its acknowledgement
	ToWorker      quantiles `json:"to_worker,omitzero"` // from the same moment to the arrival at a worker
	Answer        quantiles `json:"answer,omitzero"`    // from submit to the arrival of the result at the master
	ServerCPU     float64   `json:"server_cpu_s_per_million,omitempty"`
	DriverCPU     float64   `json:"driver_cpu_s_per_million,omitempty"`
	Attackers     int       `json:"attackers,omitempty"`          // connections at a time
	Attacks       float64   `json:"attacks_per_second,omitempty"` // connections that the attackers made

	QueuedMB    float64 `json:"mb_per_million_queued,omitempty"`
	RestMB      float64 `json:"mb_after_drain,omitempty"`
	RestSeconds float64 `json:"seconds_after_drain,omitempty"` // until the server had given back so much
	IdleKB      float64 `json:"kb_per_idle_connection,omitempty"`
	CorePercent float64 `json:"percent_of_a_core,omitempty"`     // that a Disbatch node used
	ConnectCPU  float64 `json:"server_us_per_connect,omitempty"` // processor time to accept and greet one connection

	Payload     int         `json:"payload_bytes,omitempty"`
	Ready       int         `json:"ready,omitempty"`       // jobs that stood in the server meanwhile
	Delayed     int         `json:"delayed,omitempty"`     //
	Connections int         `json:"connections,omitempty"` // those that said nothing; fewer than asked for where files are limited
	Collections collections `json:"collections,omitzero"`

	against string // the row to compare this one with
	elapsed int64  // nanoseconds of all passes
	spent   meter  // of all passes
}

// meter reads the processor time of the server and of this process.
type meter struct {
	server, driver time.Duration
}

func readMeter(pid int) (meter, error) {
	server, err := cpuTime(pid)
	if err != nil {
		return meter{}, fmt.Errorf("cannot read the server's processor time: %w", err)
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return meter{}, err
	}
	return meter{server: server, driver: time.Duration(usage.Utime.Nano() + usage.Stime.Nano())}, nil
}

// measure starts a fresh server, takes one sample of it, and ends it.
func measure(ctx context.Context, r row, c contender, size int) (sample, error) {
	s := sample{Section: r.section, Row: r.name, Server: c.name, against: r.against}
	if c.variant == rawDisk {
		return s, s.syncDisk(ctx, diskPlace(), size)
	}
	if r.section == nodeSection {
		return s, s.measureNode(ctx, r, size, nodeOf(c.path, r))
	}
	running, err := c.start(ctx)
	if err != nil {
		return s, err
	}
	defer running.stop()
	if c.variant == frameEcho {
		return s, s.echoFlow(ctx, r.load, running, size)
	}
	if r.section == attackSection {
		return s, s.underAttack(ctx, r, running, size)
	}
	if r.section == dworkSection {
		if c.variant == echoVariant {
			running.hub = running.address
		}
		return s, s.measureHub(ctx, r, c, running, size)
	}
	err = fill(ctx, running, r.load)
	for range max(1, r.passes) {
		if err != nil {
			break
		}
		err = s.pass(ctx, r, c, running, size)
	}
	if err == nil {
		return s, nil
	}
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	if said := running.said(); said != "" {
		err = fmt.Errorf("%w\nthe server's output ends with:\n%s", err, said)
	}
	return s, err
}

// pass is one trial on a running server, on connections of its own.
func (s *sample) pass(ctx context.Context, r row, c contender, running *server, size int) error {
	l := r.load
	l.jobs = size
	if r.kind == idle {
		l.jobs = 0
	}
	t := newTrial(ctx, r.sides(c, running), l)
	defer t.close()
	switch r.kind {
	case flow:
		return s.collected(ctx, running, l, func() error { return s.flow(t, running.pid) })
	case drain:
		return s.drain(t, running.pid)
	case memory:
		if err := s.queued(t, running.pid); err != nil || !c.ours {
			return err
		}
		return s.rest(t, running.pid)
	default:
		return s.idle(t, running.pid, size)
	}
}

// timed runs one phase between two readings of the meter and fills in what follows from its duration, and that of the
// passes before.
func (s *sample) timed(t *trial, pid int, phase func() (int64, error)) error {
	before, err := readMeter(pid)
	if err != nil {
		return err
	}
	elapsed, err := phase()
	if err != nil {
		return err
	}
	after, err := readMeter(pid)
	if err != nil {
		return err
	}
	s.Jobs += t.load.jobs
	s.elapsed += elapsed
	s.spent.server += after.server - before.server
	s.spent.driver += after.driver - before.driver
	perMillion := func(spent time.Duration) float64 { return spent.Seconds() * 1e6 / float64(s.Jobs) }
	s.JobsPerSecond = float64(s.Jobs) / time.Duration(s.elapsed).Seconds()
	s.ServerCPU, s.DriverCPU = perMillion(s.spent.server), perMillion(s.spent.driver)
	return t.settle()
}

func (s *sample) flow(t *trial, pid int) error {
	idlers, err := t.crowd(t.load.idlers)
	if err != nil {
		return err
	}
	defer leave(idlers)
	if err := errors.Join(t.hireWorkers(), t.hireProducers()); err != nil {
		return err
	}
	if err := s.timed(t, pid, t.produceAndWork); err != nil {
		return err
	}
	s.Rate, s.Payload, s.Connections = t.load.rate, t.load.payload, t.load.idlers
	s.Ready, s.Delayed = t.load.ready, t.load.delayed
	s.Submit, s.ToWorker = t.feed.latency.quantiles(), t.harvest.latency.quantiles()
	if t.master != nil {
		s.Submit, s.Answer = t.master.ack.quantiles(), t.master.answer.quantiles()
	}
	return nil
}

func (s *sample) drain(t *trial, pid int) error {
	if err := errors.Join(t.hireProducers(), t.hireWorkers()); err != nil {
		return err
	}
	if err := t.queue(); err != nil {
		return err
	}
	return s.timed(t, pid, t.drain)
}

// queued measures the growth of the server's memory from its first connections to the last acknowledged submit.
func (s *sample) queued(t *trial, pid int) error {
	if err := t.hireProducers(); err != nil {
		return err
	}
	before, err := residentBytes(pid)
	if err != nil {
		return err
	}
	if err := t.produce(); err != nil {
		return err
	}
	after, err := residentBytes(pid)
	if err != nil {
		return err
	}
	pending, err := t.pending()
	if err == nil && pending != t.load.jobs {
		err = fmt.Errorf("%d jobs were acknowledged, the server holds %d", t.load.jobs, pending)
	}
	s.Jobs = t.load.jobs
	s.QueuedMB = float64(after-before) / float64(s.Jobs) // bytes a job are megabytes a million
	return err
}
