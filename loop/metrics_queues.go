package loop

import (
	"math"
	"unicode/utf8"

	"treadle/loop/web"
	"treadle/sched"
)

const (
	// otherQueues is the label of all other queues together.
	otherQueues = "_other"
	// maxLabel bounds a label in bytes. Names of Gloom types may have megabytes.
	maxLabel = 256
)

// hasLabel reports whether the metrics can show a queue by its name.
func hasLabel(queue string) bool {
	return len(queue) <= maxLabel && queue != otherQueues && utf8.ValidString(queue)
}

// jobStates are the values of the label state, of each the jobs of a queue.
var jobStates = [...]struct {
	state string
	jobs  func(*sched.QueueStats) int
}{
	{"waiting", func(q *sched.QueueStats) int { return q.Waiting }},
	{"delayed", func(q *sched.QueueStats) int { return q.Delayed }},
	{"ready", func(q *sched.QueueStats) int { return q.Ready }},
	{"locked", func(q *sched.QueueStats) int { return q.Parked }},
	{"running", func(q *sched.QueueStats) int { return q.Running }},
	{"failed", func(q *sched.QueueStats) int { return q.Failed }},
	{"done", func(q *sched.QueueStats) int { return q.Done }},
}

// queueRows collects the samples of queues.
type queueRows struct {
	server  *Server
	now     int64 // Unix seconds
	states  [len(jobStates)]int
	samples []web.Sample
}

// queueSamples are the metrics of queues, and of all jobs by state. The queues without a label of their own are summed.
func (s *Server) queueSamples() []web.Sample {
	rows := queueRows{server: s, now: s.now().Wall / 1000}
	others, folded := sched.QueueStats{Oldest: math.MaxInt64}, 0
	others.Tally = s.sched.Measure(func(q *sched.QueueStats) {
		if q.Counted {
			rows.add(q)
			return
		}
		others.Add(q)
		folded++
	})
	if others.Name = otherQueues; folded > 0 || others.Tally != (sched.Tally{}) {
		rows.add(&others)
	}
	for i, st := range &jobStates {
		rows.samples = append(rows.samples,
			web.Gauge("treadle_jobs", "Jobs by state, of all queues; failed and done ones are kept by policies.", rows.states[i]).With("state", st.state))
	}
	return append(rows.samples, web.Gauge("treadle_metrics_queues_folded",
		"Queues that the label queue shows together as _other, see --metrics-max-queues.", folded))
}

// add adds the samples of a queue.
func (r *queueRows) add(q *sched.QueueStats) {
	row := func(s web.Sample, more ...string) {
		if s = s.With("queue", q.Name); len(more) > 0 {
			s = s.With(more[0], more[1])
		}
		r.samples = append(r.samples, s)
	}
	for i, st := range &jobStates {
		n := st.jobs(q)
		r.states[i] += n
		row(web.Gauge("treadle_queue_jobs", "Jobs of a queue by state; failed and done ones are kept by its policy.", n), "state", st.state)
	}
	age := int64(0)
	if q.Oldest != math.MaxInt64 {
		age = max(r.now-q.Oldest, 0)
	}
	row(web.Gauge("treadle_queue_oldest_ready_seconds", "How long the oldest ready job of a queue has been due, to the second; 0 without one, and for jobs that have no due time: tasks of a graph, and jobs that go ahead of others after a failure. Of a queue with over 256 priorities and keys, the oldest of 256.", age))
	row(web.Gauge("treadle_queue_bytes", "Bytes of the names and workloads of a queue's jobs, without tasks of a graph and kept jobs.", q.Bytes))
	row(web.Gauge("treadle_queue_paused", "1 while the policy of a queue hands out no job; of _other, how many.", q.Paused))
	const workers = "Workers that serve a queue: those that do a job of it, and the others. A worker of several queues counts for each."
	row(web.Gauge("treadle_queue_workers", workers, q.Busy), "state", "busy")
	row(web.Gauge("treadle_queue_workers", workers, q.Workers-q.Busy), "state", "idle")
	for _, p := range r.server.protocols {
		n := uint64(0)
		for space, jobs := range q.Tally.Submitted {
			if spaces[space].Protocol == p.Name() {
				n += jobs
			}
		}
		if n > 0 {
			row(web.Counter("treadle_jobs_submitted_total",
				"Jobs added, by the protocol whose jobs they are; those of cron entries are of periodic.", n), "protocol", p.Name())
		}
	}
	for e, n := range q.Tally.Ended {
		row(web.Counter("treadle_jobs_finished_total", "Jobs that ended: done; failed or timed out for the last time (timeout); removed; expired, by job-ttl.", n), "outcome", sched.JobEnd(e).String())
	}
}
