// Package node is the execution node and the task runner of a Disbatch site: disbatchd and task_runner of the original.
// A Node reads the site's database once per interval and claims tasks within the limits of queues and nodes. A separate
// process runs the tasks that are commands or task runners of the original (RunTasks). The workers of a server run the
// tasks that are functions (Functions). RunTask runs one claimed task with the arguments of the original's task runner.
//
// The package works on loop/disbatch/store, which has the states of tasks and all queries. It knows neither the command
// interface nor the server that it may be part of.
package node
