package loop

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// counters are the metrics that belong to no single protocol.
type counters struct {
	acceptErrors   atomic.Uint64
	lateDeliveries atomic.Uint64
	timerLag       delays
	closed         []*closeCounter
}

// closeCounter counts the connections closed for one reason.
type closeCounter struct {
	protocol.CloseReason
	n [protocol.MaxProtocols]atomic.Uint64 // by protocolID
}

// closeCounters returns a counter for each reason to close a connection: the reasons of the server, of the protocols,
// and last any other reason.
func (s *Server) closeCounters() (all []*closeCounter) {
	reasons := []protocol.CloseReason{
		{Err: errPeerClosed, Label: "peer"},
		{Err: errHandshake, Label: "handshake_timeout"},
		{Err: errUnfinished, Label: "unfinished_message"},
		{Err: errIdle, Label: "keepalive"},
		{Err: errSlowReader, Label: "slow_reader"},
		{Err: errTooExpensive, Label: "hasty"},
		{Err: errPanic, Label: "internal_error"},
		{Err: errStopping, Label: "stopping"},
		{Err: errByOperator, Label: "operator"},
	}
	for p := range protocolsWith[protocol.LoopServed](s) {
		reasons = append(reasons, p.CloseReasons()...)
	}
	for _, r := range append(reasons, protocol.CloseReason{Label: "other"}) {
		all = append(all, &closeCounter{CloseReason: r})
	}
	return all
}

// closeCounter returns the counter of an error that ended a session.
func (c *counters) closeCounter(why error) *closeCounter {
	for _, r := range c.closed {
		if r.Err == nil || errors.Is(why, r.Err) {
			return r
		}
	}
	panic("BUG: no counter is for any other reason")
}

// scrape reads all metrics once. Until the server is ready it returns only the version and the readiness.
func (s *Server) scrape() []web.Sample {
	ok, _ := s.ready()
	all := s.basicSamples(ok)
	if s.node != nil {
		all = append(all, clusterSamples(s.node.Health())...)
	}
	if !s.serving.Load() {
		return all
	}
	return append(all, s.samples()...)
}

// basicSamples are the metrics that every server has at all times, and a node of a cluster in every role.
func (s *Server) basicSamples(ready bool) []web.Sample {
	return []web.Sample{
		web.Gauge("treadle_build_info", "1, with the versions of the program and of Go.", 1).With("version", s.o.Version).With("go", runtime.Version()),
		web.Gauge("treadle_start_time_seconds", "When the server was started, in Unix seconds.", float64(s.started.UnixMilli())/1e3),
		web.Gauge("treadle_ready", "1 while /readyz answers 200.", oneIf(ready)),
	}
}

// samples reads the metrics of a server that serves.
func (s *Server) samples() []web.Sample {
	all := append(s.jobSamples(), s.queueSamples()...)
	all = append(all,
		web.Counter("treadle_accept_errors_total", "Failed accepts.", s.counters.acceptErrors.Load()),
		web.Counter("treadle_late_deliveries_total", "Deliveries whose session had ended.", s.counters.lateDeliveries.Load()),
		delaySample("treadle_loop_turn_seconds", "Time that a turn of an event loop takes: connections wait for it.", s.turns()...),
		delaySample("treadle_timer_lag_seconds", "How late the timer runs that makes jobs due and ends time-outs.", &s.counters.timerLag),
	)
	all = append(all, s.tls.samples()...)
	all = append(all, s.conns.samples()...)
	all = append(all, s.conns.closedSamples(s.counters.closed)...)
	all = append(all, s.refusingSamples()...)
	for _, p := range s.protocols {
		all = append(all, p.Samples()...)
	}
	if s.journal != nil {
		all = append(all, s.journalSamples(s.journal.stats())...)
	}
	return all
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// jobSamples are the counters that queues have no part in.
func (s *Server) jobSamples() []web.Sample {
	st := s.sched.Stats()
	return []web.Sample{
		web.Counter("treadle_jobs_replaced_total", "Submissions that replaced a pending job.", st.Replaced),
		web.Counter("treadle_jobs_ignored_total", "Submissions of a running job's name, or of one that was done within unique-for.", st.Ignored),
		web.Counter("treadle_jobs_assigned_total", "Jobs handed to workers.", st.Assigned),
		web.Counter("treadle_jobs_broadcast_total", "Jobs sent to all waiting workers.", st.Broadcast),
		web.Counter("treadle_jobs_released_total", "Jobs failed or put off by their worker.", st.Released),
		web.Counter("treadle_runs_failed_total", "Jobs failed by their worker, of treadle_jobs_released_total; most are tried again.", st.RunsFailed),
		web.Counter("treadle_jobs_abandoned_total", "Jobs released because their worker left.", st.Abandoned),
		web.Counter("treadle_jobs_timed_out_total", "Jobs released at their time-out; most are tried again.", st.TimedOut),
		web.Counter("treadle_jobs_retried_total", "Failed jobs that were made ready again by hand.", st.Retried),
		web.Counter("treadle_jobs_moved_total", "Jobs that went to another queue: failed ones to a dead-letter queue, and those that operators moved.", st.Moved),
		web.Counter("treadle_jobs_evicted_total", "Failed jobs that were removed because there were too many or because they were too old.", st.Evicted),
		web.Counter("treadle_names_forgotten_total", "Names of done jobs that were forgotten before their queue's unique-for, because there were too many.", st.Forgotten),
		web.Counter("treadle_results_stale_total", "Results and failures from workers that did not hold the job.", st.Stale),
		durationSample("treadle_job_wait_seconds", "How long jobs were due when they were handed out, to the second; without jobs that have no due time: tasks of a graph, and jobs that go ahead of others after a failure.", &st.Waits, sched.WaitBounds[:]),
		durationSample("treadle_job_run_seconds", "Time from the hand-out of a job to the report of its worker (done, failed or put off), to the millisecond.", &st.Runs, sched.RunBounds[:]),
		web.Gauge("treadle_queues", "Functions known.", st.Queues),
		web.Gauge("treadle_remembered_names", "Names of done jobs that are remembered for unique-for alone.", st.KeptNames),
		web.Gauge("treadle_arena_bytes", "Memory held for the bytes of jobs.", st.ArenaBytes),
	}
}

// journalSamples returns the metrics of the journal.
func (s *Server) journalSamples(st journal.Stats) []web.Sample {
	grouped := func(name, help string, h journal.Histogram) web.Sample {
		return web.Sample{Name: name, Help: help, Value: h.Sum, Buckets: h.Cumulative(), Count: h.Count()}
	}
	return []web.Sample{
		grouped("treadle_commit_seconds", "Time to commit a group of changes.", st.Commit),
		grouped("treadle_commit_records", "Changes committed together.", st.Group),
		web.Counter("treadle_commit_bytes_total", "Bytes of changes committed.", st.Bytes),
		web.Counter("treadle_journal_stalls_total", "Groups that the store delayed.", st.Stalls),
		web.Gauge("treadle_journal_unacknowledged_records", "Changes appended and not committed.", st.Backlog),
		web.Gauge("treadle_journal_jobs", "Records stored.", st.Jobs),
		web.Gauge("treadle_journal_recovered", "Records read at the start.", st.Recovered),
		web.Gauge("treadle_journal_recovery_seconds", "Time that reading them took.", st.Recovery.Seconds()),
		web.Gauge("treadle_journal_dropped_bytes", "Bytes at the end of a log that the start left out: a group that was not complete, or damage.", st.Dropped),
		web.Gauge("treadle_journal_bytes", "Size of the data directory.", st.Size),
		web.Gauge("treadle_disk_free_bytes", "Free space on the disk of the data directory.", st.Free),
		web.Gauge("treadle_journal_last_error_timestamp_seconds", "When the journal failed, in Unix seconds, and the server began to stop; 0 is never. The log says why.", float64(s.failedAt.Load())/1e3),
	}
}

// delayBounds are the bounds of histograms of short delays, in microseconds, ascending and inclusive.
var delayBounds = [...]int64{100, 500, 1e3, 5e3, 10e3, 50e3, 100e3, 500e3, 1e6, 5e6}

// delays counts short delays by size. Any goroutine may use it.
type delays struct {
	counts [len(delayBounds) + 1]atomic.Uint64
	sum    atomic.Int64 // in microseconds
}

// observe counts a delay in microseconds. A delay that a step of the clock has made negative counts as 0.
func (d *delays) observe(micros int64) {
	micros, i := max(micros, 0), 0
	for i < len(delayBounds) && micros > delayBounds[i] {
		i++
	}
	d.counts[i].Add(1)
	d.sum.Add(micros)
}

// delaySample returns the sample of all delays together.
func delaySample(name, help string, all ...*delays) web.Sample {
	counts, sum := make([]uint64, len(delayBounds)+1), int64(0)
	for _, d := range all {
		for i := range counts {
			counts[i] += d.counts[i].Load()
		}
		sum += d.sum.Load()
	}
	return histogram(name, help, counts, delayBounds[:], sum, time.Second.Microseconds())
}

// durationSample returns the sample of durations in milliseconds.
func durationSample(name, help string, d *sched.Durations, bounds []int64) web.Sample {
	return histogram(name, help, d.Counts[:], bounds, d.Sum, time.Second.Milliseconds())
}

// histogram returns the sample of counts by bounds, with the last above all bounds, whose unit is a part of a second.
func histogram(name, help string, counts []uint64, bounds []int64, sum, second int64) web.Sample {
	h := web.Sample{Name: name, Help: help, Value: float64(sum) / float64(second), Buckets: make(map[float64]uint64, len(bounds))}
	for i, n := range counts {
		if h.Count += n; i < len(bounds) {
			h.Buckets[float64(bounds[i])/float64(second)] = h.Count
		}
	}
	return h
}

// turns returns the durations of the turns of all event loops.
func (s *Server) turns() (all []*delays) {
	for i := range s.reactors {
		if r := s.reactors[i].Load(); r != nil {
			all = append(all, &r.turnTimes)
		}
	}
	return all
}
