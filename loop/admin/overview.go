package admin

import (
	"math"
	"net/http"
	"slices"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// getOverview answers with the state of the server and its busiest queues.
func (api *API) getOverview(r *http.Request) (any, error) {
	query, err := parameters(r)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(query.Get("limit"), defaultPage)
	if err != nil {
		return nil, err
	}
	now, health, stats := api.host.Now(), api.host.Health(), api.host.Sched().Stats()
	o := &codec.Overview{
		At: now.Wall, Started: health.Started, Version: health.Version, Ready: health.Ready, Health: health.Text, Cluster: health.Cluster,
		Disbatch:  api.o.Disbatch != nil,
		Submitted: stats.Submitted, Done: stats.Done, Failed: stats.RunsFailed + stats.TimedOut + stats.Abandoned, Rates: api.rates("", true),
		Memory: health.Memory, MemoryLimit: health.MemoryLimit, Connections: []codec.ProtocolConnections{}, Queues: []codec.Queue{},
	}
	if j := health.Journal; j != nil {
		o.Journal = &codec.OverviewJournal{Sync: j.Sync, Unacknowledged: j.Unacknowledged, Bytes: j.Bytes, Free: j.Free, MinFree: j.MinFree}
	}
	for _, c := range health.Connections {
		o.Connections = append(o.Connections, codec.ProtocolConnections{
			Protocol: c.Protocol, Clients: c.Open[protocol.RoleClient], Workers: c.Open[protocol.RoleWorker], Others: c.Open[protocol.RoleNone],
		})
	}
	table := api.policies()
	attention := newAttention(now, health, api.host.Spaces(), table)
	rest := sched.QueueStats{Oldest: math.MaxInt64}
	first := firstQueues{limit: limit, leave: rest.Add}
	tally := api.host.Sched().Measure(func(s *sched.QueueStats) {
		attention.addQueue(s)
		first.of++
		first.add(int64(s.Ready+s.Running+s.Delayed), s)
	})
	rest.Add(&sched.QueueStats{Oldest: math.MaxInt64, Tally: tally})
	slices.SortFunc(first.all, func(a, b placed) int { return a.compare(&b.place) })
	for n := range first.all {
		o.Queues = append(o.Queues, api.queueOf(&first.all[n].stats, now, table))
	}
	o.Rest, o.RestQueues = api.sumOf(&rest, now), first.of-len(first.all)
	o.Attention, o.AttentionMore = attention.list()
	return o, nil
}

// getCluster answers with the nodes of the server's cluster.
func (api *API) getCluster(r *http.Request) (any, error) {
	if _, err := parameters(r); err != nil {
		return nil, err
	}
	return api.host.Cluster(r.Context()), nil
}
