//go:build invariants

package sim

import "slices"

// The simulated Disbatch node has tasks done by the workers of Periodic and Gloom, through the interface
// that the real one uses, inside of the server's process: it dies with it. Its jobs are never journaled; each ends with
// the first worker that has it.

// disbatchStep lets the Disbatch node do one thing.
func (s *Simulator) disbatchStep() {
	s.settle()
	if s.rng.IntN(4) == 0 {
		s.withdraw()
		return
	}
	if s.ledger.live() >= maxJobs {
		return
	}
	j := s.ledger.newJob(ofDisbatch, s.rng.IntN(workedQueues), "")
	j.size = s.drawPadding()
	s.trace.Logf("the node submits %v", j)
	s.ledger.submitted(j, 0)
	j.nodeWaits = true
	incarnation := s.serverEnds
	err := s.server.Functions().Submit(s.ledger.queues[j.queue], j.name, []byte(j.workload()), func(data []byte, err error) {
		if s.serverEnds == incarnation {
			s.ledger.nodeAnswered(j, data, err)
		}
	})
	if err != nil {
		s.trace.Failf("the node cannot submit %v: %v", j, err)
	}
	s.settle()
}

// nodeAnswered checks the end of a job that the node is told of.
func (l *Ledger) nodeAnswered(j *Job, data []byte, err error) {
	l.trace.Logf("the node is told %q, %v of %v", brief(data), err, j)
	switch {
	case !j.nodeWaits:
		l.trace.Failf("the node is told of %v twice, or after it has withdrawn it", j)
	case err == nil && !slices.Contains(j.results, string(data)):
		l.trace.Failf("the result of %v at the node: got %q, want one of %q", j, data, j.results)
	case err != nil && l.failuresOf(j) == 0 && !l.waitsUnread(j): // a worker may have left with the job's assignment unread
		l.trace.Failf("the node is told that %v has failed, although no worker failed it", j)
	}
	j.nodeWaits = false
	l.results++
	holder := j.holder
	l.end(j)
	j.onDisk, j.holder = no, holder
}

// withdraw lets the node withdraw a job.
func (s *Simulator) withdraw() {
	var all []*Job
	for _, j := range s.ledger.jobs {
		if j.nodeWaits {
			all = append(all, j)
		}
	}
	if len(all) == 0 {
		return
	}
	j := all[s.rng.IntN(len(all))]
	held := s.ledger.holds(j.holder, j)
	unseen := s.server.Functions().Withdraw(s.ledger.queues[j.queue], j.name)
	s.trace.Logf("the node withdraws %v: %v", j, unseen)
	if unseen && held {
		s.trace.Failf("%v is withdrawn, although c%d holds it", j, j.holder.id)
	}
	if unseen {
		j.nodeWaits = false
		s.ledger.end(j)
	}
	s.settle()
}
