package periodic

import (
	"treadle/loop/protocol"
	"treadle/sched"
)

// Space is the name space of Periodic jobs.
const Space sched.Space = 1

// Spaces returns the name space of Periodic jobs.
func Spaces() []protocol.Space {
	return []protocol.Space{{ID: Space, Protocol: name, Rules: sched.Rules{Durable: true}}}
}
