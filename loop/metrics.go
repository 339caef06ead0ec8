package loop

import (
	"errors"
	"sync/atomic"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
	"treadle/loop/journal"
	"treadle/loop/web"
)

// counters count what happens to connections and messages.
type counters struct {
	accepted, acceptErrors atomic.Uint64
	frames                 atomic.Uint64
	unknownCommands        atomic.Uint64
	truncated              atomic.Uint64
	wrongRole              atomic.Uint64
	refusals               [periodic.Reasons]atomic.Uint64 // by the reason
	gloomErrors            atomic.Uint64
	lateDeliveries         atomic.Uint64
	closed                 [len(closeReasons) + 1]atomic.Uint64
}

// closeReasons names why the server closes connections, for the metrics' label.
var closeReasons = [...]struct {
	err   error
	label string
}{
	{errHandshake, "handshake_timeout"},
	{errUnfinished, "unfinished_message"},
	{errIdle, "keepalive"},
	{errSlowReader, "slow_reader"},
	{errHasty, "hasty"},
	{errPanic, "internal_error"},
	{errStopping, "stopping"},
	{errNotJSON, "invalid_json"},
	{errNotObject, "not_an_object"},
	{gloom.ErrTooLarge, "too_large"},
	{periodic.ErrMagic, "bad_magic"},
	{periodic.ErrHelloSize, "too_large"},
	{periodic.ErrTooLarge, "too_large"},
	{periodic.ErrShort, "too_short"},
	{periodic.ErrChecksum, "bad_checksum"},
	{periodic.ErrHello, "bad_handshake"},
}

func (c *counters) closedFor(why error) {
	for i := range closeReasons {
		if errors.Is(why, closeReasons[i].err) {
			c.closed[i].Add(1)
			return
		}
	}
	c.closed[len(closeReasons)].Add(1)
}

// samples reads every metric once.
func (s *Server) samples() []web.Sample {
	st := s.sched.Stats()
	c := &s.counters
	all := []web.Sample{
		counter("treadle_jobs_submitted_total", "Jobs added.", st.Submitted),
		counter("treadle_jobs_replaced_total", "Submissions that replaced a pending job.", st.Replaced),
		counter("treadle_jobs_ignored_total", "Submissions of a running job's name.", st.Ignored),
		counter("treadle_jobs_assigned_total", "Jobs handed to workers.", st.Assigned),
		counter("treadle_jobs_broadcast_total", "Jobs sent to all waiting workers.", st.Broadcast),
		counter("treadle_jobs_done_total", "Jobs done.", st.Done),
		counter("treadle_jobs_released_total", "Jobs failed or put off by their worker.", st.Released),
		counter("treadle_jobs_abandoned_total", "Jobs taken back because their worker left.", st.Abandoned),
		counter("treadle_jobs_timed_out_total", "Jobs taken back because their time was over.", st.TimedOut),
		counter("treadle_jobs_removed_total", "Jobs removed by a client.", st.Removed),
		counter("treadle_results_stale_total", "Results and failures from workers that did not hold the job.", st.Stale),
		gauge("treadle_queues", "Functions known.", st.Queues),
		gauge("treadle_jobs", "Jobs pending and running.", st.Jobs),
		gauge("treadle_arena_bytes", "Memory held for the bytes of jobs.", st.ArenaBytes),
		gauge("treadle_connections", "Open connections.", s.conns.Load()),
		counter("treadle_connections_accepted_total", "Connections taken in.", c.accepted.Load()),
		counter("treadle_accept_errors_total", "Failed accepts.", c.acceptErrors.Load()),
		counter("treadle_frames_total", "Requests read.", c.frames.Load()),
		counter("treadle_unknown_commands_total", "Requests with an unknown command.", c.unknownCommands.Load()),
		counter("treadle_truncated_requests_total", "Requests whose arguments were cut.", c.truncated.Load()),
		counter("treadle_wrong_role_requests_total", "Requests of the other role.", c.wrongRole.Load()),
		counter("treadle_gloom_errors_total", "Requests of the Gloom protocol answered with an error.", c.gloomErrors.Load()),
		counter("treadle_late_deliveries_total", "Deliveries whose session had ended.", c.lateDeliveries.Load()),
	}
	all = append(all, c.closedSamples()...)
	all = append(all, s.conns.samples()...)
	all = append(all, c.refusalSamples()...)
	all = append(all, s.dwork.samples()...)
	all = append(all, s.kts46.samples()...)
	if s.disbatch != nil {
		all = append(all, s.disbatch.Samples()...)
	}
	if s.feed != nil {
		all = append(all, journalSamples(s.feed.journal.Stats())...)
	}
	return all
}

// closedSamples has one sample for each label: protocols share some.
func (c *counters) closedSamples() (all []web.Sample) {
	at := make(map[string]int)
	for i := range c.closed {
		label := "other"
		if i < len(closeReasons) {
			label = closeReasons[i].label
		}
		k, ok := at[label]
		if !ok {
			k = len(all)
			at[label] = k
			all = append(all, web.Sample{Name: "treadle_connections_closed_total", Help: "Connections closed by the server.",
				Counter: true, Label: "reason", LabelValue: label})
		}
		all[k].Value += float64(c.closed[i].Load())
	}
	return all
}

// diskFull counts a request of any protocol that is refused for want of disk.
func (c *counters) diskFull() { c.refusals[periodic.ReasonDisk].Add(1) }

// refusalSamples has one sample for each reason for which a request may be refused at a limit.
func (c *counters) refusalSamples() (all []web.Sample) {
	for why := periodic.ReasonDisk; why <= periodic.ReasonSetting; why++ {
		s := counter("treadle_refused_requests_total", "Requests refused at a limit, by a setting or for want of disk.", c.refusals[why].Load())
		s.Label, s.LabelValue = "reason", why.String()
		all = append(all, s)
	}
	return all
}

func counter(name, help string, v uint64) web.Sample {
	return web.Sample{Name: name, Help: help, Counter: true, Value: float64(v)}
}

func gauge[N int | int64 | uint64 | float64](name, help string, v N) web.Sample {
	return web.Sample{Name: name, Help: help, Value: float64(v)}
}

func journalSamples(st journal.Stats) []web.Sample {
	histogram := func(name, help string, h journal.Histogram) web.Sample {
		return web.Sample{Name: name, Help: help, Value: h.Sum, Buckets: h.Cumulative(), Count: h.Count()}
	}
	failed := 0
	if st.LastError != "" {
		failed = 1
	}
	return []web.Sample{
		histogram("treadle_journal_commit_seconds", "Time from the taking of a group of changes to its commit.", st.Commit),
		histogram("treadle_journal_group_records", "Changes committed together.", st.Group),
		counter("treadle_journal_groups_total", "Groups committed.", st.Groups),
		counter("treadle_journal_records_total", "Changes committed.", st.Records),
		counter("treadle_journal_bytes_total", "Bytes of changes committed.", st.Bytes),
		counter("treadle_journal_stalls_total", "Groups that the store held back.", st.Stalls),
		gauge("treadle_journal_backlog", "Changes appended and not committed.", st.Backlog),
		gauge("treadle_journal_jobs", "Records stored.", st.Jobs),
		gauge("treadle_journal_recovered", "Records read at the start.", st.Recovered),
		gauge("treadle_journal_recovery_seconds", "Time that reading them took.", st.Recovery.Seconds()),
		gauge("treadle_journal_dropped_bytes", "Bytes at the end of a log that the start left out: a group that was not complete, or damage.", st.Dropped),
		gauge("treadle_journal_size_bytes", "Size of the data directory.", st.Size),
		gauge("treadle_journal_free_bytes", "Free space on its disk.", st.Free),
		gauge("treadle_journal_failed", "1 when nothing is committed any more; the log says why.", failed),
	}
}
