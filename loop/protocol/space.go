package protocol

import (
	"fmt"

	"treadle/sched"
)

// Space says how the jobs of one name space are kept, and how the workers of other protocols
// see them.
type Space struct {
	ID    sched.Space // from 1; it is on disk and never reused
	Rules sched.Rules
	// Protocol names the protocol of the jobs. Its Holders knows the holders of restored jobs; without one
	// these are ready.
	Protocol string
	// NoTimes hides sched_at, count and time-out, which the jobs do not have.
	NoTimes bool
	// AsText appends the workload for a worker that takes any bytes; nil: the workload as it is.
	AsText func(dst []byte, j *sched.Job) []byte
	// AsJSON appends the workload for a worker that takes JSON; nil: the workload, as a JSON
	// string when it is not JSON.
	AsJSON func(dst []byte, j *sched.Job) []byte
	// FromResult appends the result for the submitter, from the bytes that a worker of another
	// protocol answered; nil: those bytes.
	FromResult func(dst, data []byte) []byte
	// ReplyPart returns the part of a workload that Deliver needs to report the end of an Owned
	// job; nil: the whole workload. It saves a copy of the rest.
	ReplyPart func(workload []byte) []byte
}

// Spaces is the table of all name spaces, by ID.
type Spaces [sched.MaxSpaces]Space

// TableOf makes the table. It panics when a space has no ID or the ID of another one.
func TableOf(spaces ...Space) *Spaces {
	t := new(Spaces)
	for _, s := range spaces {
		if s.ID == 0 || t[s.ID].ID != 0 {
			panic(fmt.Sprintf("BUG: name space %d is none or there already", s.ID))
		}
		t[s.ID] = s
	}
	return t
}

// Rules returns the rules of all spaces, for the scheduler.
func (t *Spaces) Rules() (rules [sched.MaxSpaces]sched.Rules) {
	for i := range t {
		rules[i] = t[i].Rules
	}
	return rules
}
