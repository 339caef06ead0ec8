package sched

// The sets of the states of kept jobs.
const (
	failedStates = StateSet(1 << JobFailed)
	doneStates   = StateSet(1<<JobDone | 1<<JobExpired)
)

// kept calls fn with the jobs of a queue that are kept in some states, by their end.
func (s *Scheduler) kept(now Time, queue string, states StateSet, fn func(*JobView)) {
	l, err := NewListing(&Match{States: states}, []byte(queue), false, "")
	if err != nil {
		panic(err)
	}
	for !s.List(now, l, 1, func(v *JobView) bool {
		fn(v)
		return true
	}) {
	}
}

// changeKept changes a kept job, which its number names alone.
func (s *Scheduler) changeKept(now Time, verb JobVerb, seq uint64, sink Sink) (why error) {
	s.ChangeJobs(now, []JobRef{{Seq: seq}}, &JobChange{Verb: verb}, sink, func(_ int, err error) { why = err })
	return why
}
