// Package load is the load generator: it drives any job server over real sockets, as fast as the server answers or at a
// fixed rate, and checks that every job arrives exactly once.
//
// It knows no server: a Protocol makes the requests and reads the replies. Package peer has a Protocol for each server.
// A Trial is one load on one running server. A pump serves its connections with few system calls; it needs Linux'
// epoll.
package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
)

// Role is the part that a connection plays.
type Role int

// The roles. An idling connection is connected and greeted, and says nothing more.
const (
	Producing Role = iota
	Working
	Idling
)

// EventKind is the meaning of a server's message to the load generator.
type EventKind int

// The kinds of messages.
const (
	Submitted EventKind = iota // a submit was acknowledged
	Assigned                   // a job arrived
	Empty                      // a grab was answered with "no job"
	Woken                      // a sleeping worker is told to grab again
	Finished                   // a completion was acknowledged; in protocols that push, a join too
	Answered                   // a job's result arrived where it was submitted
	Ignored                    // whole and expected, without a meaning
)

// Event is one message of a server. Its slices are views into the bytes it was read from.
type Event struct {
	Kind     EventKind
	Slot     uint32 // Submitted, Assigned: the request's slot, in protocols with tags
	ID       uint64 // Submitted, Answered: the job, in protocols that answer
	Workload []byte // Assigned
	Handle   []byte // Assigned: the completion must quote it
}

// Traits are the ways in which a protocol differs from "ask, wait, complete".
type Traits struct {
	// Tagged: a reply names the request that it answers. Otherwise replies come in the order of the requests.
	Tagged bool
	// Sleep is the request that a worker sends before it waits for Woken, in protocols whose empty queue answers a grab
	// with Empty. Where it is nil a grab that is answered with Empty has waited, and is repeated.
	Sleep []byte
	// Unfinished is how many jobs of a connection with many requests in flight may still await their completion after
	// the last job arrived, in requests in flight: 0 or 1.
	Unfinished int
	// AcksDone: every completion is acknowledged with Finished, and every grab with Submitted or, in protocols that
	// push, with Finished.
	AcksDone bool
	// PushesJobs: a worker grabs once, and the grab is acknowledged like a completion. After the acknowledgement of
	// each completion it gets the next job.
	PushesJobs bool
	// AmbiguousAcks: a submit is acknowledged as a completion is, with Finished.
	AmbiguousAcks bool
	// Answers: the connection that submitted a job gets its result.
	Answers bool
	// Parse reads the id and the time of a workload.
	Parse func(workload []byte) (id uint64, sent int64, ok bool)
}

// Protocol is one server's wire language, as much of it as a load generator needs. It holds nothing but templates that
// never change, so any number of goroutines may use one.
type Protocol interface {
	Traits() Traits
	// Greet prepares a fresh connection for its first job, and returns when the server has answered.
	Greet(conn net.Conn, as Role) error
	// AppendSubmit appends the request that adds job id, whose workload carries the time sent.
	AppendSubmit(dst []byte, slot uint32, id uint64, sent int64) []byte
	// AppendGrab appends the request for one job.
	AppendGrab(dst []byte, slot uint32) []byte
	// AppendDone appends the completion of the job that e assigned.
	AppendDone(dst []byte, e *Event) []byte
	// Next decodes the first message of in. n == 0 and no error: more bytes are needed.
	Next(in []byte, e *Event) (n int, err error)
	// Pending asks over a greeted connection of its own for the number of jobs in the server, reserved jobs included.
	Pending(conn net.Conn) (int, error)
}

// decode gives the whole messages at the front of in to handle, one by one, and returns their length.
func decode(p Protocol, in []byte, handle func(e *Event) error) (used int, err error) {
	var e Event
	for {
		n, err := p.Next(in[used:], &e)
		if err != nil || n == 0 {
			return used, err
		}
		used += n
		if err := handle(&e); err != nil {
			return used, err
		}
	}
}

// ErrMalformed reports bytes that a protocol does not allow at this point.
var ErrMalformed = errors.New("malformed message")

// Unexpected wraps ErrMalformed with the bytes read, cut to a readable length.
func Unexpected(protocol string, in []byte) error {
	return fmt.Errorf("%s: %w: %.60q", protocol, ErrMalformed, in)
}

// Ask sends a request and checks that the reply is want.
func Ask(conn net.Conn, protocol, request, want string) error {
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	reply := make([]byte, len(want))
	if _, err := io.ReadFull(conn, reply); err != nil {
		return fmt.Errorf("%s: cannot read the answer to the greeting: %w", protocol, err)
	}
	if !bytes.Equal(reply, []byte(want)) {
		return Unexpected(protocol, reply)
	}
	return nil
}
