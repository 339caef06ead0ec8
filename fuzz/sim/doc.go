// Package sim simulates Treadle: whole servers in memory, of which everything around them is under control, so that
// whatever can happen happens, in an order that a seed alone decides. A seed that finds a bug finds it every time.
//
// There are two plays. PlayServer has one server, the real sessions, codecs, scheduler and journal, and peers of
// Periodic in both framings, Gloom, dwork, both versions of kts46 and a Disbatch node around it. PlaySite has three
// hosts of a Disbatch site, each a server with its node, and the driver, around the double of their database.
//
//   - Simulator acts. It draws the next step from the seed and the step's number, moves bytes and calls through the
//     Network, lets time pass, fills, slows and breaks the Disk, and kills, stops and starts the server.
//   - Ledger judges. It sees each message pass at the server's door, knows what the server has promised by it, and
//     fails the play when a promise is broken. At the end all peers behave, and everything promised must come true.
//   - Kts46Model is the ledger's part for kts46: projects, jobs and tasks as the server must show them.
//   - PolicyModel is the ledger's part for a queue with a policy: its rules, failed, done and expired jobs, dead letters,
//     names that are taken still, limits, rates, pauses, turns of keys, and a lock.
//   - CronModel is the ledger's part for cron entries: their times, and the jobs of each.
//   - Disk is a disk in memory that knows what a crash leaves of it.
//   - Site acts and judges in the play of the Disbatch site; SiteLedger is its model.
//   - Trace is the record of a play. Two plays of a seed have the same trace, or something is not simulated.
//
// The form of a method's name says who acts:
//
//   - An imperative is an act of the play. With a Conn as its first argument the act is that peer's, as in submit, serve
//     and reportJob; without one it is the simulator's, as in pass, commit and crash. The few imperatives of Ledger, as
//     end and doubt, change the ledger alone.
//   - A past participle is an event that the ledger is told of, as submitted, finished and crashed. It fails the play when
//     the event must not happen, and else notes it.
//   - checkX fails the play when X is not so. Other names stand for what the method returns, as holds, mayHold and live.
//
// A turn lasts from one moment at which nothing is under way in the server to the next. Within one the order of
// events may be unknown; then the ledger doubts (see certainty and Ledger.doubt) instead of guessing. All files but
// this one are in builds with the invariants tag, as is loop.Offline, the server in memory.
package sim
