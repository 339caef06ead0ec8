//go:build invariants

package sched

// Check returns the first disagreement among the scheduler's structures. It is
// there in test builds only and expects that no verb is under way.
func (s *Scheduler) Check() error { return s.check() }
