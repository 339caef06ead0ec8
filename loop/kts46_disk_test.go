package loop

import (
	"testing"

	"treadle/sched"
)

// newKtsDiskRig is newKtsRig with a journal on a disk, at the time of a clock.
func newKtsDiskRig(t testing.TB, d *disk, clock sched.Time) *ktsRig {
	t.Helper()
	s, err := newServer(Options{Data: "data", Shards: 4, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := &ktsRig{t: t, ktsHub: s.kts46, clock: clock}
	s.clock = func() sched.Time { return r.clock }
	s.stop = func() {}
	s.store.FS = d
	if err := s.openJournal(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	return r
}

// end closes the journal, once.
func (r *ktsRig) end() {
	if err := r.server.feed.journal.Close(); err != nil {
		r.t.Error(err)
	}
}

const ktsQuoted = `"success"`
