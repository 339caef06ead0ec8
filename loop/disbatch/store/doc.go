// Package store is the database of a Disbatch 4 site: the queues, tasks, nodes and files in the site's MongoDB. All
// programs of a site share it. The execution node and the task runner are in loop/disbatch/node, the command interface
// is in loop/disbatch/web, and config.json is in loop/disbatch/config. The programs exchange messages through the
// database only, so each of them replaces a program of the original by itself.
//
// This package imports config only, for the plain values of a Connection. It knows no processes, slots, requests or
// pages. It makes all calls of the database. Documents are BSON for its callers too; everything else of MongoDB's
// driver stays inside.
//
// The states of a task's document are queued, claimed, running and ended. Each transition is one update in
// lifecycle.go, whose result reports whether it happened. ReleaseAll and ReleaseTask queue a claimed task again;
// Requeue queues a running one again. errors.go has the errors that callers tell apart, and the advice for those that a
// setting causes. value.go reads values in all forms that releases of the original write.
//
// Documents follow the design text of April 2016 or release 4.000 of 2018, which differ (see Schema). The field
// constructor or plugin of a queue tells its dialect. The store writes a queue and its tasks in that dialect.
package store
