//go:build invariants

package loop

import "slices"

// An orderly end of an Offline server has the parts of one with sockets, with all that may
// happen between them.

// BeginStop is the signal to stop: who is connected is served still, but handed no job, and
// nobody else may connect.
func (o *Offline) BeginStop() {
	o.server.halt()
	o.handedOut = o.handOuts()
}

// handOuts is how often a job was handed out.
func (o *Offline) handOuts() uint64 {
	st := o.server.sched.Stats()
	return st.Assigned + st.Broadcast
}

// Owes says whether the server, which is to stop, has something for somebody that it has to
// wait for.
func (o *Offline) Owes() bool {
	return o.server.hasPendingOffLoop() || slices.ContainsFunc(o.loops, (*reactor).hasUnsent)
}

// Stop has the server hang up on all and write what is left; an error is the journal's. closing
// is called in between: until then the disk may be at a sync, and it is the server's own until
// Stop returns.
func (o *Offline) Stop(closing func()) error {
	for _, r := range o.loops {
		r.begin()
		r.endAll()
	}
	o.Settle()
	o.kts46().Close()
	closing()
	var err error
	if o.server.journal != nil {
		err = o.server.closeJournal(nil)
	}
	o.Abandon()
	return err
}
