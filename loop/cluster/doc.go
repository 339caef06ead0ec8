// Package cluster makes several servers one: it keeps the groups of the journal on all nodes with Raft. The rules of
// Raft are in go.etcd.io/raft/v3: elections, terms, which entries are committed.
//
// # Entries
//
// A Raft entry is a batch of the journal: a group, or a part of a large one, as the committer of the leader's journal
// has sealed it. The type Leadership is the journal.Replicator of that journal. A group is committed when a majority of
// the nodes has synced it. Then its changes are acknowledged.
//
// Each node keeps the entries in the logs of a journal.Replica (storage.go). It syncs them before it acknowledges them.
// In memory it has the entries that its store lacks and some before them. When a log is full, every node applies the
// committed entries to its store.
//
// Changes of the members are entries, too (members.go): each node computes the members from the same entries, and its
// store has them as of its last entry. The first entry has the nodes with which the cluster begins, and no node has it
// in its log. So a node that joins gets a store first.
//
// # Roles
//
// Only the leader runs a scheduler and a journal. A follower keeps the log and the store, and runs neither. A node that
// wins an election waits until the first entry of its term is committed, and applies all entries up to that to its
// store (Node.AwaitLeadership). Then it starts as a server does after a kill. A journal ends with the term of its
// Leadership. It acknowledges nothing after that, even if the node is elected again. A Leadership has a lease, and ends
// before another node can lead (leadership.go).
//
// An added node is a learner at first: it gets entries, and counts for no majority. The leader promotes it when it has
// almost the whole log (change.go).
//
// # Connections
//
// The nodes connect to each other with TLS: with certificates, or with a key that they derive from a shared secret.
// Nodes of one machine may connect without TLS. Both ends begin with a hello. It has the name of the cluster, the nodes
// with which the cluster began, both ends and the incarnation of the data directory. A node refuses another one whose
// incarnation has changed: with an empty directory it has forgotten its votes and acknowledgements. The first nodes
// take no part until they have all met once, so that no such node is mistaken for a new one.
//
// A follower that needs entries that the leader no longer has gets a snapshot: the files of the leader's store, which
// replace its own store in one step. A follower forwards the connections of its clients to the leader (forward.go).
//
// # Files
//
//	options.go start.go               the settings; the start of a node
//	node.go leadership.go raftlog.go  Raft's state and its goroutine; the time as leader; Raft's log lines
//	health.go clock.go                the state for probes and metrics; the clocks of the other nodes
//	members.go change.go              the members; how they and the leader change
//	storage.go apply.go leave.go      the log; how it is applied to the store; a node's directory
//	                                  becomes a single server's
//	transport.go frame.go             connections between nodes
//	admit.go                          which connections are accepted
//	snapshot.go forward.go status.go  the other uses of connections
//
// # What is missing
//
// One group of the journal is replicated at a time. A follower keeps no scheduler. The address of a node never changes.
//
// If a damaged disk has changed the last record of a log, the record looks like an unfinished write and is left out at
// the next start. The node then fails as soon as it hears from a leader to which it has acknowledged more. If it takes
// part in an election before that, or was the leader itself, the group of that record may be lost.
package cluster
