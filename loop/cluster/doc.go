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
// # Roles
//
// Only the leader runs a scheduler and a journal. Followers are cold. A node that wins an election waits until the
// first entry of its term is committed, and brings all entries up to that into its store. Then it starts as a server
// does after a kill (Node.Lead). A journal ends with the term of its Lead. It acknowledges nothing after that, even if
// the node is elected again.
//
// # Connections
//
// The nodes connect to each other with TLS: with certificates, or with a key that they derive from a shared secret.
// Nodes of one machine may connect without. Both ends begin with a hello, which names the cluster, all nodes, both ends
// and the incarnation of the data directory. A node refuses another one whose incarnation has changed: with an empty
// directory it has forgotten its votes and what it has acknowledged.
//
// A follower that needs entries that the leader no longer has gets a snapshot, the files of the leader's store, which
// replaces its own store in one step. Clients of a follower are passed on to the leader (pass.go).
//
// # Files
//
//	options.go start.go          the settings; the beginning of a node
//	node.go lead.go              Raft's state and its goroutine; the time as leader
//	storage.go                   the log
//	transport.go frame.go        connections between nodes
//	snapshot.go pass.go status.go    the other uses of connections
//
// # What is missing
//
// The nodes of a cluster are those of its first start: no node is added or removed, so a node that has lost its
// directory cannot be replaced. One group of the journal is on its way at a time. The address of a passed client is not
// kept. Clocks are not compared, a slow leader does not hand over, and a follower keeps no scheduler.
//
// The last record of a log that a damaged disk has changed looks like a write that the process did not finish, and is
// left out at the next start. If it was acknowledged and another node is lost as well, its group may be lost.
package cluster
