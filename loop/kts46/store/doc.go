// Package store reads and writes the MongoDB of a kts46 site as the original scheduler servers do. Each project has a
// database with the documents info, jobs, progresses and statistics. Workers of both versions and the original web
// interface read and write the same documents at the same time.
//
// The original workers count the steps of a job in progresses.done, and record there which statistics are done. This
// package writes these fields only in a new job. It deletes the documents of workers only with their job or project.
package store
