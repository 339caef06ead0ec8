package disbatch

import (
	"treadle/loop/protocol"
	"treadle/sched"
)

// Space is the name space of the tasks.
const Space sched.Space = 6

// Spaces returns the name space of the tasks. The database stores them, so they are not journaled and end with the
// node. A task ends when its worker fails it or leaves. The node enforces time-outs.
func Spaces() []protocol.Space {
	return []protocol.Space{{ID: Space, Protocol: name, Rules: sched.Rules{Owned: true, Untimed: true, NeverDropped: true, MaxFailures: 1}}}
}
