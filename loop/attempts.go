package loop

import (
	"treadle/loop/journal"
	"treadle/sched"
)

// attemptsOf returns what the journal keeps of a job's attempts.
func attemptsOf(j *sched.Saved) journal.Attempts {
	tries, all := sched.ParseHistory(j.History)
	a := journal.Attempts{FailedAt: j.FailedAt, Tries: tries}
	for i := range all {
		h := &all[i]
		a.History = append(a.History, journal.Attempt{Outcome: uint8(h.Outcome), At: h.At, Worker: []byte(h.Worker), Text: []byte(h.Text)})
	}
	return a
}

// restoreAttempts converts attempts of the journal to the scheduler's.
func restoreAttempts(j *sched.Saved, a *journal.Attempts) {
	var all []sched.Attempt
	for i := range a.History {
		h := &a.History[i]
		all = append(all, sched.Attempt{Outcome: sched.Outcome(h.Outcome), At: h.At, Worker: string(h.Worker), Text: string(h.Text)})
	}
	j.FailedAt, j.History = a.FailedAt, sched.AppendHistory(nil, a.Tries, all)
}
