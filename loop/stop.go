package loop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"treadle/loop/protocol"
	"treadle/sched"
)

// halt begins a stop: no job is handed out any more, results are still taken.
func (s *Server) halt() {
	s.sched.Halt()
	s.stopping.Store(true)
	for service := range protocolsWith[protocol.Service](s) {
		service.Drain()
	}
}

// maxUnfinishedShown bounds the functions that logUnfinished names.
const maxUnfinishedShown = 10

// logUnfinished logs the running jobs, or unread replies, that the drain time was too short for.
func (s *Server) logUnfinished() {
	jobs, functions := s.unfinished()
	if jobs == 0 {
		s.log.Warn("stopping although peers have not read all they are owed", "drain", s.drain())
		return
	}
	s.log.Warn("stopping although jobs are running: their results do not count, and what is in the journal runs again; a longer --drain waits for them",
		"jobs", jobs, "functions", functions, "drain", s.drain())
}

// unfinished counts the running jobs that a restart repeats, and names the functions with the most
// of them.
func (s *Server) unfinished() (jobs int, functions string) {
	var all []sched.QueueStatus
	s.sched.Status(func(q sched.QueueStatus) {
		if q.Interruptible > 0 {
			jobs += q.Interruptible
			all = append(all, q)
		}
	})
	slices.SortFunc(all, func(a, b sched.QueueStatus) int {
		return cmp.Or(cmp.Compare(b.Interruptible, a.Interruptible), cmp.Compare(a.Name, b.Name))
	})
	var text []string
	for _, q := range all[:min(len(all), maxUnfinishedShown)] {
		text = append(text, fmt.Sprintf("%q %d", functionText(q.Name), q.Interruptible))
	}
	if more := len(all) - maxUnfinishedShown; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return jobs, strings.Join(text, ", ")
}
