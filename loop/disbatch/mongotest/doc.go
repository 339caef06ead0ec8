// Package mongotest is a stand-in for a MongoDB in tests and benchmarks: it speaks
// enough of the wire protocol for a driver, keeps everything in memory under one lock, and
// fails on request. It is a double and no database: what runs against it has not been shown
// to run against MongoDB. Only tests and benchmarks import it.
package mongotest
