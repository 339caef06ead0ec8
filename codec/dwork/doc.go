// Package dwork translates between bytes and the messages of the dwork task-graph protocol, dwork.proto. It knows no
// sockets and no clock.
//
// A payload is checked in one pass. All of it must be valid protobuf with every required field, and a request must have
// the fields of its type and no others, as the messaging API says. Decoded fields are views into the caller's bytes,
// valid until those bytes change. Tasks, dependencies and log entries are not collected but decoded again, one at a
// time, as the caller ranges over them. So only an error allocates, and a request of 16 MiB takes no memory besides its
// own. Protobuf's generated code is in dworkpb. It takes six times as long, and 87 allocations for a Complete of 16
// tasks, so the server does not use it; a fuzz target compares this package with it.
//
// Encoders append fields to the caller's slice. A message has its type, tasks, name, n and location, in this order. The
// messaging API says which of them each type has.
package dwork

// Type is the type of a message.
type Type int32

// The types, with their numbers on the wire.
const (
	Create   Type = 0 // tasks: adds tasks, or dependencies to tasks
	Steal    Type = 1 // location, n: reserves ready tasks
	Complete Type = 2 // tasks, location: the tasks are done
	Transfer Type = 3 // tasks, location: releases tasks; as the reply to Steal: the reserved tasks
	Lookup   Type = 4 // name: asks about a task
	NotFound Type = 5 // reply: no task is ready, or the tasks that were not found
	OK       Type = 6 // reply; as a request: asks for the status
	Exit     Type = 7 // location: the worker leaves; as a reply: the worker must leave
	Error    Type = 8 // reply: the request is malformed
)

var typeNames = [...]string{"Create", "Steal", "Complete", "Transfer", "Lookup", "NotFound", "OK", "Exit", "Error"}

// String returns the type's name on the wire, or "unknown type".
func (t Type) String() string {
	if t < 0 || int(t) >= len(typeNames) {
		return "unknown type"
	}
	return typeNames[t]
}

// State is a task's state in a log entry.
type State int32

// The states, with their numbers on the wire.
const (
	Pending  State = 0
	Stolen   State = 1
	Waiting  State = 2
	Copying  State = 3
	Ready    State = 4
	Started  State = 5
	Done     State = 6
	Recorded State = 7
)

var stateNames = [...]string{"Pending", "Stolen", "Waiting", "Copying", "Ready", "Started", "Done", "Recorded"}

// String returns the state's name on the wire, or "unknown state".
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "unknown state"
	}
	return stateNames[s]
}
