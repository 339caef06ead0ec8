package loop

import (
	"errors"
	"sync/atomic"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/loop/web"
)

// counters counts connections and messages.
type counters struct {
	accepted, acceptErrors atomic.Uint64
	frames                 atomic.Uint64
	refusals               [protocol.Reasons]atomic.Uint64 // by protocol.Reason
	lateDeliveries         atomic.Uint64
	closed                 []*closing
}

// closing counts the connections closed for one reason.
type closing struct {
	protocol.CloseReason
	n atomic.Uint64
}

// closings returns a counter for each reason to close a connection: the server's own, those of the
// protocols, and last any other.
func (s *Server) closings() (all []*closing) {
	reasons := []protocol.CloseReason{
		{Err: errHandshake, Label: "handshake_timeout"},
		{Err: errUnfinished, Label: "unfinished_message"},
		{Err: errIdle, Label: "keepalive"},
		{Err: errSlowReader, Label: "slow_reader"},
		{Err: errTooExpensive, Label: "hasty"},
		{Err: errPanic, Label: "internal_error"},
		{Err: errStopping, Label: "stopping"},
	}
	for p := range protocolsWith[protocol.LoopServed](s) {
		reasons = append(reasons, p.CloseReasons()...)
	}
	for _, r := range append(reasons, protocol.CloseReason{Label: "other"}) {
		all = append(all, &closing{CloseReason: r})
	}
	return all
}

// closing returns the counter of an error that ended a session.
func (c *counters) closing(why error) *closing {
	for _, r := range c.closed {
		if r.Err == nil || errors.Is(why, r.Err) {
			return r
		}
	}
	panic("no closing is for any other reason")
}

// samples reads all metrics once.
func (s *Server) samples() []web.Sample {
	st := s.sched.Stats()
	c := &s.counters
	all := []web.Sample{
		web.Counter("treadle_jobs_submitted_total", "Jobs added.", st.Submitted),
		web.Counter("treadle_jobs_replaced_total", "Submissions that replaced a pending job.", st.Replaced),
		web.Counter("treadle_jobs_ignored_total", "Submissions of a running job's name, or of one that was done within unique-for.", st.Ignored),
		web.Counter("treadle_jobs_assigned_total", "Jobs handed to workers.", st.Assigned),
		web.Counter("treadle_jobs_broadcast_total", "Jobs sent to all waiting workers.", st.Broadcast),
		web.Counter("treadle_jobs_done_total", "Jobs done.", st.Done),
		web.Counter("treadle_jobs_released_total", "Jobs failed or put off by their worker.", st.Released),
		web.Counter("treadle_jobs_abandoned_total", "Jobs released because their worker left.", st.Abandoned),
		web.Counter("treadle_jobs_timed_out_total", "Jobs released at their time-out.", st.TimedOut),
		web.Counter("treadle_jobs_removed_total", "Jobs removed by a client.", st.Removed),
		web.Counter("treadle_jobs_given_up_total", "Jobs that failed more often than their queue's policy allows.", st.GivenUp),
		web.Counter("treadle_jobs_retried_total", "Failed jobs that were made ready again by hand.", st.Retried),
		web.Counter("treadle_jobs_moved_total", "Failed jobs that went to a dead-letter queue.", st.Moved),
		web.Counter("treadle_jobs_evicted_total", "Failed jobs that were removed because there were too many or because they were too old.", st.Evicted),
		web.Counter("treadle_jobs_expired_total", "Jobs that no worker started within their queue's job-ttl.", st.Expired),
		web.Counter("treadle_names_forgotten_total", "Names of done jobs that were forgotten before their queue's unique-for, because there were too many.", st.Forgotten),
		web.Counter("treadle_results_stale_total", "Results and failures from workers that did not hold the job.", st.Stale),
		web.Gauge("treadle_queues", "Functions known.", st.Queues),
		web.Gauge("treadle_jobs", "Jobs pending and running.", st.Jobs),
		web.Gauge("treadle_failed_jobs", "Jobs that were given up and are kept.", st.Failed),
		web.Gauge("treadle_kept_jobs", "Jobs that are done or have expired, and are kept.", st.KeptDone),
		web.Gauge("treadle_remembered_names", "Names of done jobs that are remembered for unique-for alone.", st.KeptNames),
		web.Gauge("treadle_arena_bytes", "Memory held for the bytes of jobs.", st.ArenaBytes),
		web.Gauge("treadle_connections", "Open connections.", s.conns.count()),
		web.Counter("treadle_connections_accepted_total", "Connections accepted.", c.accepted.Load()),
		web.Counter("treadle_accept_errors_total", "Failed accepts.", c.acceptErrors.Load()),
		web.Counter("treadle_frames_total", "Requests read.", c.frames.Load()),
		web.Counter("treadle_late_deliveries_total", "Deliveries whose session had ended.", c.lateDeliveries.Load()),
	}
	all = append(all, c.closedSamples()...)
	all = append(all, s.conns.samples()...)
	all = append(all, c.refusalSamples()...)
	all = append(all, s.refusingSamples()...)
	for _, p := range s.protocols {
		all = append(all, p.Samples()...)
	}
	if s.journal != nil {
		all = append(all, journalSamples(s.journal.stats())...)
	}
	return all
}

// closedSamples returns one sample for each label. Some protocols share a label.
func (c *counters) closedSamples() (all []web.Sample) {
	at := make(map[string]int)
	for _, c := range c.closed {
		k, ok := at[c.Label]
		if !ok {
			k = len(all)
			at[c.Label] = k
			all = append(all, web.Sample{Name: "treadle_connections_closed_total", Help: "Connections closed by the server.",
				Counter: true, Label: "reason", LabelValue: c.Label})
		}
		all[k].Value += float64(c.n.Load())
	}
	return all
}

// refusalSamples returns one sample for each reason to refuse a request.
func (c *counters) refusalSamples() (all []web.Sample) {
	for why := protocol.ReasonDisk; why < protocol.Reasons; why++ {
		s := web.Counter("treadle_refused_requests_total", "Requests refused at a limit, by a setting or for want of disk.", c.refusals[why].Load())
		s.Label, s.LabelValue = "reason", why.String()
		all = append(all, s)
	}
	return all
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
		histogram("treadle_journal_commit_seconds", "Time to commit a group of changes.", st.Commit),
		histogram("treadle_journal_group_records", "Changes committed together.", st.Group),
		web.Counter("treadle_journal_groups_total", "Groups committed.", st.Groups),
		web.Counter("treadle_journal_records_total", "Changes committed.", st.Records),
		web.Counter("treadle_journal_bytes_total", "Bytes of changes committed.", st.Bytes),
		web.Counter("treadle_journal_stalls_total", "Groups that the store delayed.", st.Stalls),
		web.Gauge("treadle_journal_backlog", "Changes appended and not committed.", st.Backlog),
		web.Gauge("treadle_journal_jobs", "Records stored.", st.Jobs),
		web.Gauge("treadle_journal_recovered", "Records read at the start.", st.Recovered),
		web.Gauge("treadle_journal_recovery_seconds", "Time that reading them took.", st.Recovery.Seconds()),
		web.Gauge("treadle_journal_dropped_bytes", "Bytes at the end of a log that the start left out: a group that was not complete, or damage.", st.Dropped),
		web.Gauge("treadle_journal_size_bytes", "Size of the data directory.", st.Size),
		web.Gauge("treadle_journal_free_bytes", "Free space on its disk.", st.Free),
		web.Gauge("treadle_journal_failed", "1 when nothing is committed any more; the log says why.", failed),
	}
}
