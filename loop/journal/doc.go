// Package journal is the server's durable store and the only writer of the data directory. It
// stores records (jobs and other facts of the scheduler), documents (kts46's projects and their
// jobs) and settings.
//
// # Groups
//
// Shards append changes to buffers in memory and never wait. One goroutine, the committer,
// drains all buffers into a group, appends the group to a log and syncs the log; meanwhile the
// buffers collect the next group. After the sync the committer publishes the group's number, and
// every change up to it is durable. Before a caller acknowledges a change it waits until
// Committed reaches the number that Group returned after the append. Groups are committed in
// order. Within a shard, changes keep the order of the calls.
//
// A group keeps only the last change of a job. It keeps no change of a job that was created and
// deleted within the group: such a job is committed without having been written. After a crash a
// group is complete or absent. A group of more than 2 MiB is written in several parts, and the
// next start drops a group that lacks parts.
//
// # Checkpoints
//
// A full log is closed and the next one begins; a group never continues in another log. Another
// goroutine, the checkpointer, applies the closed log to the store: of each job the last change,
// and nothing of the jobs that came and went within the log, which are most of the jobs when
// workers keep pace. Then it reuses or removes the log's file. When a second log is full before
// the first one is in the store, the committer waits. A start applies all logs to the store
// before it replays anything.
//
// # When a change is committed
//
//	Always    when its group is synced. It survives kill -9 and a loss of power. A change of
//	          FlushLater is written to the log as soon as the committer is free, so it survives
//	          a kill, and is synced with the next group or within 10 ms
//	Interval  at once: Group returns a group that is already committed, and nothing waits.
//	          Changes are written and synced once an interval; any crash loses at most the
//	          last interval
//	Never     as Interval, but groups are written and not synced. A kill -9 loses at most the
//	          last interval, a loss of power everything that the system had not written yet.
//	          A log is synced when it is full
//
// # Failure
//
// The first failed write ends the journal: nothing more is committed or written, Failed is called
// once, and Close returns the cause. A failed sync is never retried, because the second sync
// would succeed without writing anything. The journal watches the free space so that the disk
// does not fill up unnoticed: while Full is true the caller must refuse new jobs.
//
// # The data directory
//
//	LOCK            locked by the process that uses the directory
//	store           the store: github.com/cockroachdb/pebble without its own log
//	store/log       the logs: NUMBER.log, and NUMBER.spare for a file to be reused
//	store/CLOSED    the marker of a clean shutdown: the last group that was written
//	store/FORMAT    "treadle journal 4, sum N": the format version of the directory. It is
//	                written last, so a store with this file is complete
//	store.new       a store that is being built; it is renamed to store when it is complete
//	store.old       a store that has been replaced
//	store.format-N  the store of format N that was converted
//	store.damaged-N a damaged store that a repair replaced
//	store.scratch   the temporary store in which a repair sorts records
//	store/raft      of a node of a cluster: its logs, in place of those in store/log
//	store.backup    the copy of the store that is being backed up
//	store.sent      of such a node: the copy of the store that it sends to another one
//	NODE, PEERS     of such a node: notes of package cluster
//
// A directory with NODE is a node's: it is opened with OpenReplica. Open, Check, Repair, Export and Import refuse it.
//
// Open converts an older version: it builds a store of the present version in store.new and renames both.
//
// The store has four kinds of keys. 'j' and the Seq in eight bytes, big-endian, is a record, so
// records are sorted by creation for any number of shards. 's' and a key is a setting. 'p', a
// kind and names is a document. 'm' is the head (meta) of the last group. A head holds the
// group's number, which of its batches this is and whether more follow, the previous group's
// number, the epoch (it counts openings and so identifies the writer), the highest Seq ever put,
// the number of records, whether all earlier groups were synced when it was written, and a
// checksum over its operations. The numbers continue across restarts. The checksum has no key, so any receiver
// of a group can verify it. The store of a node of a cluster also has 'r', the position that it has.
//
// # Clusters
//
// The leader of a cluster opens a Journal with Options.Replica. Its committer passes the sealed batches to a
// Replicator in place of a log, and a group is committed when Replicator.Sync returns. On every node, the leader too,
// Replica.Apply brings what is committed into the store. Package cluster decides what that is.
//
// # Logs
//
// A log is a sequence of blocks of chunks, see log.go. Every chunk has a tag under the log's
// random key, which is stored in the log's head and nowhere else. Payloads come from clients:
// without the key a client cannot send bytes that pass for a chunk at any offset, and neither can
// the file's earlier contents. A reader looks for chunks only where chunks may begin.
//
// # Damage
//
// Open checks what the store does not: it follows the chain of group heads from the tables
// through the logs. An end of a log that cannot be read, or that holds a group without all its
// parts, was never acknowledged unless the disk damaged it. Open drops it, and the server's log
// and Stats.Dropped report its place and length. It is damage when a later group records that
// everything before it was synced, or when a clean shutdown followed. A missing group, a missing
// or truncated table, and a manifest with a gap are damage too. Open refuses a damaged directory
// with a *DamageError that names file and offset. Check reports all damage. Repair keeps
// everything that can be read and has a valid tag, and of several jobs with one name the last.
//
// # Export
//
// Export and Import use JSON lines: UTF-8, one object a line. The first line is
//
//	{"treadle_journal":2}
//
// and every other line is a setting, a document or a record:
//
//	{"kind":"setting","key":"config.timeout","value":"\u0000\u0000\u0002X"}
//	{"kind":"project","project":"p","state":{"last_id":2}}
//	{"kind":"definition","project":"p","name":"a","text":"simulationParameters: ..."}
//	{"kind":"job","seq":7,"space":1,"queue":"echo","name":"a","due":1700000000000,"workload":"hi"}
//	{"kind":"job","seq":9,"space":4,"queue":"dwork","name":"salad","holder":"cook","log":[{"stage":2,"micros":1700000000000000}],"after":[8]}
//	{"kind":"job","seq":8,"space":1,"queue":"echo","name":"b","failed_at":1700000000000,"tries":1,"attempts":[{"outcome":1,"at":1700000000000,"worker":"periodic 127.0.0.1:4242","text":"no disk"}]}
//	{"kind":"job","seq":11,"space":1,"queue":"echo","name":"c","tries":1,"attempts":[{"outcome":6,"at":1700000000000,"worker":"periodic 127.0.0.1:4242"}],"done_at":1700000000000,"result":"hi"}
//	{"kind":"job","seq":12,"space":1,"queue":"echo","name":"d","lease":{"token":"00c0ffee00c0ffee0123456789abcdef","worker":"mailer","until":1700000060000,"length":60000}}
//	{"kind":"job","seq":13,"space":7,"queue":"mail","name":"13","priority":-40,"timeout":60,"counts":{"submitted":1700000000000,"runs":1,"returned":1},"workload":"hi"}
//	{"kind":"queue","seq":10,"queue":"echo"}
//	{"kind":"cron","seq":11,"queue":"echo","name":"nightly","workload":"{\"times\":\"0 2 * * * Local\",\"handled\":1700000000000}"}
//
// The kinds of records are job, queue, dropped, edge, exit and cron. The members of a record are those of Record: seq
// (ascending; by default the last one plus 1), queue, name, workload and holder (bytes), space (required for a job: 1
// Periodic, 4 dwork, 5 kts46, 7 beanstalk), sched_at, due, priority, count, timeout, revision and task (integers; by
// default 0), log and after. A job that has failed has failed_at, tries (integers) and attempts, see Attempts. A
// finished job that is kept has done_at, and result (bytes; empty ones are written) when that is kept. A job that a
// worker has leased has lease, see Lease: a reader of the token can report the job. A job that is known by its number,
// which is its seq and its name, has counts, see Counts.
//
// The kinds of documents are project, numbers, definition and progress. A document has project
// and name, the job's (bytes), and state, a JSON object, or text (bytes).
//
// Bytes that are UTF-8 are a string. Other bytes are in base64 in a member whose name ends in
// _base64: "name_base64":"/w==". Empty bytes and zeros are omitted. Import refuses anything else.
//
// Import also reads version 1, which has only jobs and settings. In version 1 the spaces 12 to 15
// are the other kinds of records, the workload of a dwork or kts46 job contains its holder, log,
// predecessors and revision, and kts46's documents are settings.
package journal
