// Package node is the execution node of a Disbatch site and the task runner: the original's disbatchd and task_runner. A Node
// reads the site's database once an interval, claims tasks within the limits of queues and nodes, and has them done: commands
// and the original's task runners by one process beside it (RunTasks), functions by the workers of a server (Functions).
// RunTask does one claimed task, as the original's runner is called to.
//
// How a task's document goes from queued to claimed, running and ended is in tasks.go; each step is one update, which says
// whether it happened. The room works on the store of loop/disbatch and knows nothing of the command interface, nor of the
// server that it may be part of.
package node
