package kts46

import (
	"treadle/loop/protocol"
	"treadle/sched"
)

// Space is the name space of tasks.
const Space sched.Space = 5

// Spaces returns the name spaces of the protocol's jobs. Workers reserve them with Steal, and hold them until a report
// or a restart that names the current revision.
func Spaces() []protocol.Space {
	return []protocol.Space{{ID: Space, Protocol: name, Rules: sched.Rules{Durable: true, Graph: true, Untimed: true, Private: true}}}
}

// Queues returns the protocol's queues in the scheduler.
func Queues() (all [][]byte) {
	for k := range kindCount {
		all = append(all, k.queue())
	}
	return all
}
