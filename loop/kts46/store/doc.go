// Package store reads and writes the MongoDB of a kts46 site as the original scheduler
// servers do: one database per project, in it the documents info, jobs, progresses and
// statistics (protocols/kts46-mongodb.md). Workers of both versions and the original web
// interface read and write the same documents beside it.
//
// The original workers count the steps of a job in progresses.done and note its statistics
// there: this package never writes either, but in a new job. It deletes what workers have
// written only with its job or project.
package store
