package loop

import (
	"encoding/binary"

	"treadle/loop/journal"
	"treadle/sched"
)

// leaseOf returns what the journal keeps of a job's lease.
func leaseOf(l *sched.SavedLease) (x journal.Lease) {
	binary.BigEndian.PutUint64(x.Token[:], l.Token.Number)
	binary.BigEndian.PutUint64(x.Token[8:], l.Token.Secret)
	x.Worker, x.Until, x.Length = []byte(l.Worker), l.Until, l.Length
	return x
}

// restoreLease converts a lease of the journal to the scheduler's.
func restoreLease(x *journal.Lease) sched.SavedLease {
	return sched.SavedLease{
		Token:  sched.Token{Number: binary.BigEndian.Uint64(x.Token[:]), Secret: binary.BigEndian.Uint64(x.Token[8:])},
		Worker: string(x.Worker), Until: x.Until, Length: x.Length,
	}
}
