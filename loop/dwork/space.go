package dwork

import (
	codec "treadle/codec/dwork"
	"treadle/codec/jsontext"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Space is the name space of tasks, and Queue the queue of all of them.
const (
	Space sched.Space = 4
	Queue             = "dwork"
)

var queue = []byte(Queue)

// Spaces returns the name space of tasks. A task has predecessors, and its worker holds it without a time-out. A worker
// of another protocol gets a task as a JSON object.
func Spaces() []protocol.Space {
	return []protocol.Space{{
		ID: Space, Protocol: name, Rules: sched.Rules{Durable: true, Graph: true, Untimed: true},
		NoTimes: true, AsText: appendJSON, AsJSON: appendJSON,
	}}
}

func appendJSON(dst []byte, j *sched.Job) []byte {
	dst = append(dst, `{"name":`...)
	dst = jsontext.AppendText(dst, j.Name)
	dst = append(dst, `,"origin":`...)
	dst = jsontext.AppendText(dst, j.Workload)
	return append(dst, '}')
}

// stageOf and stateOf convert between the states of the wire and the stages of the scheduler, which names three of
// them.
func stageOf(s codec.State) uint8 {
	switch s {
	case codec.Ready:
		return sched.StageReady
	case codec.Stolen:
		return sched.StageReserved
	case codec.Done:
		return sched.StageDone
	}
	return sched.StageOther + uint8(s)
}

func stateOf(stage uint8) codec.State {
	switch stage {
	case sched.StageReady:
		return codec.Ready
	case sched.StageReserved:
		return codec.Stolen
	case sched.StageDone:
		return codec.Done
	}
	return codec.State(stage - sched.StageOther)
}
