// Package site is the play of a Disbatch site: three hosts share the fake of their database, a MongoDB. On each host a
// node runs inside a server in memory, with Periodic workers of functions. Nodes and driver are the real ones.
//
// Their goroutines are in a bubble of testing/synctest, whose clock stands still while any of them can run. Each
// command to the database, each call of a server and each reply waits as a message until the play delivers it, so the
// seed alone decides what happens, and in which order.
//
// # Files
//
// In reading order. All of them are in builds with the invariants tag alone.
//
//	site.go      the play and its steps: Play, site, step, settle
//	messages.go  what is on its way to the database and to a server: message
//	host.go      hosts and their processes, which start, die and stop: host, process
//	workers.go   the workers of a process: worker
//	ledger.go    queues and tasks, and what may become of them: ledger, task
//	finish.go    the end of a play: finish
//
// # Rules
//
// These functions fail the play when a rule is broken:
//
//	a task only takes steps that its host may take  allowed (ledger.go), which checkTasks asks about each change
//	no limit of a queue or a host is exceeded       checkTasks (ledger.go)
//	tasks are claimed in the order of their queue   checkOrder (ledger.go), for each claim that checkTasks finds
//	a worker gets a task once, on the host that     given (ledger.go)
//	runs it by the database
//	a node stops when told to, without an error     checkEnded (host.go)
//	a stop in order ends, and leaves no task        stopInOrder (host.go)
//	claimed or running
//	every task ends                                 finish (finish.go)
//
// # Trace
//
// A trace names a process by its host and its number there, and a task by its number: h0.1 is the first process of host
// h0, "h0.1's worker 2" the second worker that came to it, and t3 a task. A line that begins with + is a message that
// is on its way from now on. The same line without the + is its delivery, with the fault that hits it.
package site
