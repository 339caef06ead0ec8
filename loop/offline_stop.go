//go:build invariants

package loop

import "slices"

// BeginStop begins an orderly stop. Connected peers are served but get no job, and no peer may
// connect.
func (o *Offline) BeginStop() {
	o.server.halt()
	o.handedOut = o.handOuts()
}

// handOuts returns how many jobs were handed out.
func (o *Offline) handOuts() uint64 {
	st := o.server.sched.Stats()
	return st.Assigned + st.Broadcast
}

// HasPending reports whether a stopping server still has to wait for a job or a peer.
func (o *Offline) HasPending() bool {
	return o.server.hasPendingOffLoop() || slices.ContainsFunc(o.loops, (*reactor).hasUnsent)
}

// Stop ends all connections and closes the journal, whose error it returns. It calls closing before
// that: until then the disk may be at a sync, and afterwards it is the server's until Stop returns.
func (o *Offline) Stop(closing func()) error {
	for _, r := range o.loops {
		r.beginTurn()
		r.endAll()
	}
	o.closing = true
	o.Settle()
	o.kts46().Close()
	closing()
	var err error
	if o.server.journal != nil {
		if len(o.works) > 0 { // their answers are sent before the sockets are closed
			o.Commit()
		}
		err = o.server.closeJournal(nil)
	}
	o.Abandon()
	return err
}
