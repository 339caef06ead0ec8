// Package node is the execution node and the task runner of a Disbatch site: disbatchd and task_runner of the original.
// A Node reads the site's database once per interval and claims tasks within the limits of queues and nodes. A separate
// process, the executor, runs the tasks that are commands or task runners of the original (RunTasks). The workers of a
// server run the tasks that are functions (Functions). RunTask runs one claimed task with the arguments of the
// original's task runner.
//
// Words:
//
//   - site: the database with the queues and tasks, and all programs that use it.
//   - task runner: the original's program for one task. It begins and ends its task itself.
//   - executor: the process of Treadle that runs the commands of one node. It outlives the node.
//   - instance: one run of a node, from its start to its end.
//   - own task: a task that this process has claimed and that is not at its end.
//   - foreign task: a claimed or running task in the name of this node that is not an own task. An earlier process of
//     the node has claimed it, or the reply to its claim was lost.
//   - slot: a goroutine that claims and runs the tasks of a queue (slots.go).
//
// The package works on loop/disbatch/store, which has the states of tasks and all queries. It knows neither the command
// interface nor the server that it may be part of.
package node
