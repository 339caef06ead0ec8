package beanstalk

import (
	"math"

	"treadle/loop/protocol"
	"treadle/sched"
)

// Space is the name space of the jobs that were put. The id of a job is its number in the scheduler.
const Space sched.Space = 7

// Spaces returns the name space of the jobs that were put. A job's name, for the workers of other protocols, is its id,
// and its workload is its body.
func Spaces() []protocol.Space {
	return []protocol.Space{{ID: Space, Protocol: name, Rules: sched.Rules{Durable: true, Numbered: true}}}
}

// usualPriority is the priority of beanstalkd from which jobs are no longer urgent. It is the priority 0 of the other
// protocols, and of the scheduler, where larger priorities come first.
const usualPriority = 1024

// toPriority returns the scheduler's priority.
func toPriority(pri uint32) int64 { return usualPriority - int64(pri) }

// toPri returns the priority of the protocol, clamped: an operator may give a job any priority.
func toPri(priority int64) uint32 {
	return uint32(usualPriority - min(max(priority, usualPriority-math.MaxUint32), usualPriority))
}
