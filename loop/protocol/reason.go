package protocol

import (
	"errors"

	"treadle/sched"
)

// Reason says why the server refused a request.
type Reason uint8

// The reasons. 0 is no reason.
const (
	ReasonDisk      Reason = iota + 1 // the journal's disk has less free space than --min-free
	ReasonRoom                        // the disk has no room for a request of this size
	ReasonFunctions                   // too many functions
	ReasonWaiters                     // too many sessions wait for the job
	ReasonMemory                      // jobs or outstanding requests take too much memory
	ReasonReports                     // too many long replies are under way
	ReasonLocks                       // too many named locks
	ReasonWorker                      // the worker serves too many functions or asks for too many jobs
	ReasonSize                        // a job of a request is larger than --max-frame
	ReasonSetting                     // a setting of the server forbids the request
	ReasonPolicy                      // the policy of the queue refuses the job
	ReasonMaxMemory                   // the server holds as much as --max-memory
	Reasons                           // the number of reasons, with 0
)

var reasonLabels = [Reasons]string{
	"none", "disk", "room", "functions", "waiters", "memory", "reports", "locks", "worker", "size", "setting", "policy", "max-memory",
}

// String returns the reason's label in the metrics.
func (r Reason) String() string { return reasonLabels[r] }

// The errors of Host.CheckCapacity.
var (
	ErrDisk      = errors.New("the disk is nearly full, see --min-free")
	ErrMaxMemory = errors.New("the server holds as much as --max-memory allows")
)

// ReasonOf returns the reason of an error of Host.CheckCapacity, or of the scheduler, that means a limit.
func ReasonOf(err error) Reason {
	switch {
	case errors.Is(err, sched.ErrQueues):
		return ReasonFunctions
	case errors.Is(err, sched.ErrAwaits):
		return ReasonWaiters
	case errors.Is(err, sched.ErrLocks), errors.Is(err, sched.ErrJobLocks):
		return ReasonLocks
	case errors.Is(err, sched.ErrSlots), errors.Is(err, sched.ErrWatches):
		return ReasonWorker
	case errors.Is(err, sched.ErrPolicy):
		return ReasonPolicy
	case errors.Is(err, ErrDisk):
		return ReasonDisk
	case errors.Is(err, ErrMaxMemory):
		return ReasonMaxMemory
	}
	return ReasonMemory // too many jobs, or too much held by all sessions together
}
