// Package journal is the server's durable store, and the only one that writes the
// data directory. It knows records, which are jobs and what the scheduler notes beside them,
// documents, which kts46 keeps of its projects, and settings.
//
// # Groups
//
// Shards append changes to buffers in memory and never wait. One goroutine, the
// committer, takes what all buffers hold, a group, appends it to a log and syncs it;
// meanwhile the next group gathers. When the sync is back, the group's number is
// published, and everything appended up to it is durable: whoever has to answer for
// a change waits until Committed reaches the number that Group gave after the change
// was appended. Groups are committed in order, and within a shard the order of
// changes is the order of the calls.
//
// Within a group only the last change of a job is kept, and nothing of a job that
// was put for the first time and deleted: it is committed without ever having been
// written. A group is there whole after a crash, or not at all: one of more than 2 MiB is
// written in several parts, and one that lacks parts is left out by the next start.
//
// # Checkpoints
//
// A log that is full is closed, and the next one begins; a group never goes on in another
// log. Another goroutine, the checkpointer, brings what the closed log came to into the
// store: of each job the last change, and nothing of those that came and went within the
// log, which is most of them where workers keep pace. Then the log's file is used again or
// removed. When a second log is full before the first is in the store, the committer waits.
// A start brings all logs into the store before anything is replayed.
//
// # When a change is committed
//
//	Always    when its group is synced: it survives kill -9 and a loss of power.
//	          What came with FlushLater is in the log as soon as the committer is free,
//	          where a kill finds it, and shares the next sync, or has one within 10 ms
//	Interval  at once: Group names a group that is committed already, and nobody
//	          waits. What gathered for an interval is written and synced as a group;
//	          a crash of any kind costs the last interval at most
//	Never     likewise, but groups are handed to the system and not synced: kill -9
//	          costs the last interval at most, a loss of power whatever the system
//	          had not written. Logs are synced when they are complete
//
// # Failure
//
// The first change of the disk that fails, whatever it is, ends it: no group is
// committed any more, nothing more reaches the disk, Failed is called once, and Close
// returns the reason. A sync that failed is never tried again, because the second
// one would succeed without having written anything. Space is watched so that the
// disk is not full without notice: Full tells when new jobs are to be refused.
//
// # The data directory
//
//	LOCK            held by the process that uses it
//	store           the store, of github.com/cockroachdb/pebble, whose own log is not used
//	store/log       the logs: NUMBER.log, and NUMBER.spare for one that will be used again
//	store/CLOSED    up to which group an orderly close has written everything
//	store/FORMAT    "treadle journal 4, sum N": the version of all this. It is written last,
//	                so a store with this file is whole
//	store.new       one that is being made; becomes store when it is whole
//	store.old       one that another takes the place of
//	store.damaged-N what a repair took out of use
//	store.scratch   what a repair sorts
//
// An older version is converted by Open: a store of the present one is made in store.new,
// and renamed.
//
// In the store a job is under 'j' and its Seq in eight bytes, big-endian, so that
// they come back in the order of creation whatever number of shards there are; a
// setting is under 's' and its key, a document under 'p', its kind and its names; and under 'm' every group writes its head: its
// number, which of its batches this is and whether more follow, the number of the
// group before it, the epoch (which counts openings: it names the writer), the highest
// Seq ever put, the number of jobs, whether all groups before it were synced when it was
// written, and a checksum over its operations. The numbers go on over restarts. They are
// what a replicated journal would need to append a group after the one it expects. The
// checksum has no key: whoever is given a group can verify it.
//
// # Logs
//
// A log is a sequence of blocks with chunks in them, see log.go. Every chunk carries a tag
// under a key that is drawn for the log and stands in its head alone. Payloads come from
// clients: without the key no client can send bytes that are taken for a chunk, wherever
// they come to lie, and what a file held when it was another log is not taken for one
// either. A reader looks for chunks where they begin and nowhere else.
//
// # Damage
//
// Open checks what the store would not: it follows the chain of group heads from the
// tables through the logs. A log's end that cannot be read, or holds a group that lacks
// parts, was never acknowledged, unless the disk damaged it: it is left out, and the log of
// the server and Stats.Dropped tell where it was and how long. The same is damage when a
// group behind it says that everything before it was synced, or when the store was closed
// in order behind it; so is a group that is missing, a table that is missing or cut, a
// manifest with a gap. Open refuses such a directory with a *DamageError that names file
// and offset. Check tells all that is damaged, Repair keeps what can be read and carries
// its tag, and of several jobs of one name the last.
//
// # Export
//
// Export and Import use JSON lines: UTF-8, one object a line. The first is
//
//	{"treadle_journal":2}
//
// and each other one a setting, a document or a record:
//
//	{"kind":"setting","key":"config.timeout","value":"\u0000\u0000\u0002X"}
//	{"kind":"project","project":"p","state":{"last_id":2}}
//	{"kind":"definition","project":"p","name":"a","text":"simulationParameters: ..."}
//	{"kind":"job","seq":7,"space":1,"queue":"echo","name":"a","due":1700000000000,"workload":"hi"}
//	{"kind":"job","seq":9,"space":4,"queue":"dwork","name":"salad","holder":"cook","log":[{"stage":2,"micros":1700000000000000}],"after":[8]}
//	{"kind":"queue","seq":10,"queue":"echo"}
//
// A record's members are those of Record: seq (ascending; without it, one more than the
// last), queue, name, workload and holder (bytes), space (required of a job: 1 Periodic,
// 4 dwork, 5 kts46), sched_at, due, priority, count, timeout, revision and task (whole
// numbers; without it, 0), log and after. The kinds are job, queue, dropped, edge and exit.
//
// A document is of the kind project, numbers, definition or progress. It has project and
// name, of the job (bytes), and state, a JSON object, or text (bytes).
//
// Bytes that are UTF-8 stand as a string, others in base64 under the member's name with
// _base64 behind it: "name_base64":"/w==". Empty bytes and zeros are left out.
// Anything else is refused.
//
// Version 1, which Import reads too, has jobs and settings alone. There a job of the spaces
// 12 to 15 is a note, one of dwork and kts46 has its members packed into the workload, and
// kts46's documents are settings.
package journal
