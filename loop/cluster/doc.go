// Package cluster makes several servers one: it keeps the groups of the journal on all nodes with Raft. The rules of
// Raft are in go.etcd.io/raft/v3: elections, terms, which entries are committed.
//
// # Entries
//
// A Raft entry is a batch of the journal: a group, or a part of a large one, as the committer of the leader's journal
// has sealed it. Lead is the journal.Replicator of that journal. A group is committed when a majority of the nodes has
// synced it. Then its changes are acknowledged.
//
// Each node keeps the entries in the logs of a journal.Replica (storage.go), synced before anybody is told that it has
// them, and in memory from some before the last one that its store has. When a log is full, the committed entries go
// into the store. All nodes do so.
//
// The nodes themselves are such entries, too (members.go): each node computes them from the same entries, and its store
// has them as of its last entry. The first entry is that of the nodes with which the cluster begins, and no node has it
// in its log. So a node that joins gets a store first.
//
// # Roles
//
// Only the leader runs a scheduler and a journal. Followers are cold. A node that wins an election waits until the
// first entry of its term is committed, and brings all entries up to that into its store. Then it starts as a server
// does after a kill (Node.Lead). A journal ends with the term of its Lead. It acknowledges nothing after that, even if
// the node is elected again. A Lead has a lease, and ends before another node can lead (lead.go).
//
// A node that is added learns at first: it gets entries, and counts for no majority. The leader promotes it when it has
// almost the whole log (change.go).
//
// # Connections
//
// The nodes connect to each other with TLS: with certificates, or with a key that they derive from a shared secret.
// Nodes of one machine may connect without. Both ends begin with a hello, which names the cluster, the nodes with which
// it began, both ends and the incarnation of the data directory. A node refuses another one whose incarnation has
// changed: with an empty directory it has forgotten its votes and what it has acknowledged. So that no such node passes
// for a new one, the first nodes take no part until they have all met once.
//
// A follower that needs entries that the leader no longer has gets a snapshot, the files of the leader's store, which
// replaces its own store in one step. Clients of a follower are passed on to the leader (pass.go).
//
// # Files
//
//	options.go start.go          the settings; the beginning of a node
//	node.go lead.go raftlog.go   Raft's state and its goroutine; the time as leader; Raft's log lines
//	health.go clock.go           what probes and metrics say; the clocks of the others
//	members.go change.go         the nodes of the cluster; how they change, and who leads
//	storage.go apply.go leave.go     the log; how it comes into the store; the end of a node
//	transport.go frame.go        connections between nodes
//	admit.go                     which ones are taken
//	snapshot.go pass.go status.go    the other uses of connections
//
// # What is missing
//
// One group of the journal is on its way at a time. A follower keeps no scheduler. The address of a node never changes.
//
// The last record of a log that a damaged disk has changed looks like a write that the process did not finish, and is
// left out at the next start. The node then ends as soon as it hears of a leader that it has acknowledged more to. If
// it takes part in an election before that, or was the leader itself, the group of that record may be lost.
package cluster
