// Package dwork translates between bytes and the messages of the dwork task-graph protocol, dwork.proto. It knows no
// sockets and no clock.
//
// A payload is read once to judge it: all of it must be sound protobuf with every required field, and a request must
// have the fields of its type and no others, as the messaging API says. What is decoded are views into the caller's
// bytes, valid until those bytes change; tasks, dependencies and log entries are not gathered anywhere but read again,
// one at a time, as the caller ranges over them. So nothing here allocates but a refusal, and a request of 16 MiB takes no
// memory besides its own. Protobuf's generated code stands in dworkpb: it takes six times as long and 87 allocations for
// a Complete of 16 tasks, so no server uses it, but a fuzz target holds this package to it.
//
// Encoders append fields to the caller's slice. A message is its type, its tasks, its name, n and location, in this
// order, each left out where the messaging API lists none.
package dwork

// Type is what a message asks or answers.
type Type int32

// The types, with their numbers on the wire.
const (
	Create   Type = 0 // tasks: add them, or dependencies to them
	Steal    Type = 1 // location, n: give me ready tasks
	Complete Type = 2 // tasks, location: these are done
	Transfer Type = 3 // tasks, location: take these back; the reply to Steal: tasks
	Lookup   Type = 4 // name: what is known about this task
	NotFound Type = 5 // reply: nothing ready, or the tasks that were not found
	OK       Type = 6 // reply; asked: the status
	Exit     Type = 7 // location: this worker is gone; reply: go away
	Error    Type = 8 // reply: malformed
)

var typeNames = [...]string{"Create", "Steal", "Complete", "Transfer", "Lookup", "NotFound", "OK", "Exit", "Error"}

// String returns the type's name on the wire, or "unknown type".
func (t Type) String() string {
	if t < 0 || int(t) >= len(typeNames) {
		return "unknown type"
	}
	return typeNames[t]
}

// State is what a log entry says of a task.
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
