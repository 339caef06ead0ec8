package protocol

import "treadle/sched"

// Space says how jobs of one name space are kept, and how the workers of other protocols
// see them. A field that is nil changes nothing.
type Space struct {
	ID    sched.Space // also on disk: never reused
	Rules sched.Rules
	// Protocol is the name of the protocol that knows who holds a restored job, see Holders; it may
	// be empty.
	Protocol string
	// Bare jobs have no sched_at, count and time-out to show.
	Bare bool
	// Text appends a job as a worker gets it that takes any bytes; nil: its workload.
	Text func(dst []byte, j *sched.Job) []byte
	// JSON appends a job as a worker gets it that takes JSON; nil: its workload, as a string
	// when that is no JSON.
	JSON func(dst []byte, j *sched.Job) []byte
	// Result appends what whoever submitted the job is told of the bytes that a worker
	// answered with; nil: these.
	Result func(dst, data []byte) []byte
	// Receipt is the part of a workload that Deliver needs to tell of the job's end; nil: all.
	Receipt func(workload []byte) []byte
}

// Spaces is the table of all name spaces, by their number.
type Spaces [sched.MaxSpaces]Space

// TableOf puts spaces in their places. A number that two have is a mistake of the server.
func TableOf(spaces ...Space) *Spaces {
	t := new(Spaces)
	for _, s := range spaces {
		if t[s.ID].ID != 0 {
			panic("two name spaces have one number")
		}
		t[s.ID] = s
	}
	return t
}

// Rules are those of all spaces, for the scheduler.
func (t *Spaces) Rules() (rules [sched.MaxSpaces]sched.Rules) {
	for i := range t {
		rules[i] = t[i].Rules
	}
	return rules
}
