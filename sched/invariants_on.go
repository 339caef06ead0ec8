//go:build invariants

package sched

// Check returns the first disagreement among the scheduler's structures. Only builds with the
// invariants tag have it. It expects that no verb is under way.
func (s *Scheduler) Check() error { return s.check() }
