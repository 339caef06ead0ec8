package dwork

import (
	"errors"
	"fmt"
	"math"
)

// maxFields bounds the fields of a request, with those of its parts and unknown ones. Each is read several times, and
// 16 MiB have room for eight million. A task that waits for a quarter of a million others, each with a location, has
// fewer.
const maxFields = 1 << 20

// Errors of the bytes of a message.
var (
	errWire         = errors.New("dwork: the bytes are no protobuf message, or end too soon")
	errFields       = fmt.Errorf("dwork: a message of more than %d fields", maxFields)
	errNoType       = errors.New("dwork: a message without a type")
	errUnknownType  = errors.New("dwork: a message of unknown type")
	errNoTaskName   = errors.New("dwork: a task without a name")
	errNoOrigin     = errors.New("dwork: a task without an origin")
	errNoDepName    = errors.New("dwork: a dependency without a name")
	errNoState      = errors.New("dwork: a log entry without a state")
	errUnknownState = errors.New("dwork: a log entry of unknown state")
	errNoTime       = errors.New("dwork: a log entry without a time")
)

// invalid is the error of a message whose fields are not those of its type.
type invalid struct {
	kind  Type
	fault string
}

func (e *invalid) Error() string { return "dwork: " + e.kind.String() + " " + e.fault }

// part is a set of a message's parts.
type part uint8

const (
	partTasks part = 1 << iota
	partName
	partN
	partLocation
)

var partNames = [...]struct {
	part
	name string
}{{partTasks, "tasks"}, {partName, "name"}, {partN, "n"}, {partLocation, "location"}}

// shape is what messages of a type must have and may have.
type shape struct {
	isType            bool
	required, allowed part
}

// requests and replies are the shapes of the messaging API, with Lookup and its reply. A type that is not legal is
// never a request, or never a reply.
var (
	requests = [...]shape{
		Create:   {true, partTasks, 0},
		Steal:    {true, partLocation, partN},
		Complete: {true, partTasks | partLocation, 0},
		Transfer: {true, partTasks | partLocation, 0},
		Lookup:   {true, partName, 0},
		OK:       {true, 0, 0},
		Exit:     {true, partLocation, 0},
		Error:    {},
	}
	replies = [...]shape{
		Transfer: {true, partTasks, 0},
		NotFound: {true, 0, partTasks},
		OK:       {true, 0, partTasks | partName | partN | partLocation},
		Exit:     {true, 0, 0},
		Error:    {true, 0, 0},
	}
)

// Decode sets q to the request in payload. A request with an error must be answered with Error alone, and q must not be
// used. Unknown fields are ignored. Nothing is allocated without an error.
func Decode(payload []byte, q *Query) error {
	return decode(payload, q, maxFields, &requests, "is no request")
}

// DecodeReply is Decode for a server's replies, on the client's side.
func DecodeReply(payload []byte, q *Query) error {
	return decode(payload, q, math.MaxInt, &replies, "is no reply")
}

// decode parses a message and checks that its type may have its parts. illegal is the error about a type that only the
// other side sends.
func decode(payload []byte, q *Query, limit int, shapes *[Error + 1]shape, illegal string) error {
	if err := q.parse(payload, limit); err != nil {
		return err
	}
	s := shapes[q.Type]
	if !s.isType {
		return &invalid{q.Type, illegal}
	}
	has := q.parts()
	for _, p := range partNames {
		switch {
		case s.required&p.part != 0 && has&p.part == 0:
			return &invalid{q.Type, "without " + p.name}
		case has&p.part != 0 && (s.required|s.allowed)&p.part == 0:
			return &invalid{q.Type, "with " + p.name}
		}
	}
	return nil
}

// parts returns the parts that the message has.
func (q *Query) parts() (has part) {
	if q.Count > 0 {
		has |= partTasks
	}
	if q.Name != nil {
		has |= partName
	}
	if q.HasN {
		has |= partN
	}
	if q.Location != nil {
		has |= partLocation
	}
	return has
}
