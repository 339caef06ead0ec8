// Package disk is a disk in memory for the journal of a simulated server. It can stop in the middle of a sync,
// operations on it can fail, it can be full, and it knows what a crash leaves of it.
package disk
