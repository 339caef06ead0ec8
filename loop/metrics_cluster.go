package loop

import (
	"maps"
	"slices"

	"treadle/loop/cluster"
	"treadle/loop/web"
)

// clusterSamples returns the metrics of a node of a cluster.
func clusterSamples(h cluster.Health) []web.Sample {
	all := make([]web.Sample, 0, 16)
	for _, role := range []string{"leader", "follower", "candidate", "learner"} {
		all = append(all, web.Gauge("treadle_cluster_role", "1 for the role that the node has, 0 for the others.", oneIf(role == h.Role)).With("role", role))
	}
	all = append(all,
		web.Gauge("treadle_cluster_term", "Term of the cluster, which grows with each election.", h.Term),
		web.Gauge("treadle_cluster_behind_entries", "Entries of the log that the leader has and this node has not, as far as it knows.", h.Behind),
		web.Gauge("treadle_cluster_contact_seconds", "Time since the node has heard of the leader; of a leader, since it asked the majority that has answered last.", h.Contact.Seconds()),
		web.Gauge("treadle_cluster_clock_seconds", "How far the clock of the node is ahead of those of the others.", h.ClockAhead.Seconds()),
		web.Counter("treadle_cluster_snapshots_total", "Copies of the whole store.", h.SnapshotsSent).With("direction", "sent"),
		web.Counter("treadle_cluster_snapshots_total", "Copies of the whole store.", h.SnapshotsReceived).With("direction", "received"),
		web.Counter("treadle_cluster_proposals_refused_total", "Parts of groups that the leader could not propose, since it leads no more.", h.ProposalsRefused),
	)
	for _, id := range slices.Sorted(maps.Keys(h.OthersBehind)) {
		all = append(all, web.Gauge("treadle_cluster_node_behind_entries",
			"Entries of the log that another node has not acknowledged; the leader alone has these rows.", h.OthersBehind[id]).With("node", id))
	}
	return all
}
