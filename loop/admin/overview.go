package admin

import (
	"cmp"
	"math"
	"net/http"
	"slices"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// getOverview answers with the state of the server and its busiest queues. It reads what the metrics read: the first
// --metrics-max-queues queues one by one, all others as a sum.
func (i *Interface) getOverview(r *http.Request) (any, error) {
	query, err := parameters(r)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(query.Get("limit"), defaultPage)
	if err != nil {
		return nil, err
	}
	now, health, stats := i.host.Now(), i.host.Health(), i.host.Sched().Stats()
	o := &codec.Overview{
		At: now.Wall, Started: health.Started, Ready: health.Ready, Health: health.Text,
		Submitted: stats.Submitted, Done: stats.Done, Failed: stats.Fails + stats.TimedOut + stats.Abandoned,
		Memory: health.Memory, MemoryLimit: health.MemoryLimit, Queues: []codec.OverviewQueue{},
	}
	if j := health.Journal; j != nil {
		o.Journal = &codec.OverviewJournal{Unacknowledged: j.Unacknowledged, Bytes: j.Bytes, Free: j.Free}
	}
	var all []sched.QueueStats
	rest, folded := i.host.Sched().Measure(func(q *sched.QueueStats) { all = append(all, *q) })
	slices.SortFunc(all, func(a, b sched.QueueStats) int {
		return cmp.Or(cmp.Compare(b.Ready+b.Running+b.Delayed, a.Ready+a.Running+a.Delayed), cmp.Compare(a.Name, b.Name))
	})
	table := i.policies()
	for n := range all {
		if n < limit {
			q := overviewOf(&all[n], now)
			showPause(&q.Queue, table, all[n].Name)
			o.Queues = append(o.Queues, q)
			continue
		}
		rest.Add(&all[n])
		folded++
	}
	rest.Name = ""
	o.Rest, o.RestQueues = overviewOf(&rest, now), folded
	return o, nil
}

// overviewOf returns a queue of an overview, without its pause.
func overviewOf(s *sched.QueueStats, now sched.Time) codec.OverviewQueue {
	q := codec.OverviewQueue{Busy: s.Busy, Finished: s.Tally.Ended[sched.EndingDone],
		GivenUp: s.Tally.Ended[sched.EndingFailed] + s.Tally.Ended[sched.EndingTimedOut]}
	q.Queue.Queue, q.QueueBytes = codec.Name(protocol.Unescape(s.Name))
	q.Workers, q.Ready, q.Delayed, q.Running, q.Locked, q.Waiting, q.Failed, q.Done = s.Workers, s.Ready, s.Delayed, s.Running, s.Parked,
		s.Waiting, s.Failed, s.Done
	for _, n := range s.Tally.Submitted {
		q.Submitted += n
	}
	if s.Oldest != math.MaxInt64 {
		q.Oldest = max(now.Wall/1000-s.Oldest, 0)
	}
	return q
}
