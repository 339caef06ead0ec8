package protocol

import (
	"errors"

	"treadle/sched"
)

// Reason says why the server refused a request.
type Reason uint8

// The reasons. 0 is none.
const (
	ReasonDisk      Reason = iota + 1 // the disk of the journal has less free than --min-free
	ReasonRoom                        // a request is larger than what the disk may still take
	ReasonFunctions                   // there are as many functions as there may be
	ReasonWaiters                     // as many sessions wait for the job as may
	ReasonMemory                      // jobs, or what all sessions ask for together, take as much memory as they may
	ReasonReports                     // as many long replies are under way as may be
	ReasonLocks                       // there are as many named locks as there may be
	ReasonWorker                      // the worker serves as many functions, or asks for as many jobs, as it may
	ReasonSize                        // a job of a request is larger than --max-frame
	ReasonSetting                     // a setting of the server forbids it
	Reasons                           // one more than the last
)

var reasonLabels = [Reasons]string{
	"none", "disk", "room", "functions", "waiters", "memory", "reports", "locks", "worker", "size", "setting",
}

// String returns the label of the metrics.
func (r Reason) String() string { return reasonLabels[r] }

// ReasonOf is the reason that a limit of the scheduler stands for.
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
	}
	return ReasonMemory // ErrFull, ErrCrowded
}
