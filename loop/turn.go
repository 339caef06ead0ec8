package loop

import (
	"time"

	"treadle/loop/protocol"
)

// turn is the state of one turn of a reactor.
type turn struct {
	on        bool      // the turn has begun, and Now has been read
	armed     bool      // finishTurn is queued
	allUntil  time.Time // end of allConnsTime; zero: it has not begun
	toWake    []bool    // by loop: the first delivery found its mailbox empty
	delivered int       // cost of the deliveries, see turnDeliveries
	unwritten int       // bytes of the deliveries that are not written yet
	cost      int       // cost of the expensive requests, see pause.go
	newAcks   int       // acknowledgements that began to wait

	read, written [protocol.MaxProtocols]uint64 // bytes, by protocolID
}

// end ends the turn. armed and newAcks may belong to the next turn already.
func (t *turn) end() {
	t.on, t.allUntil = false, time.Time{}
	t.delivered, t.unwritten, t.cost = 0, 0, 0
}

// work has the sessions and deliveries that wait for the end of a turn. Those that the turn has no room for wait for
// the next turn.
type work struct {
	mail   []byte     // deliveries from other loops
	refill []*session // sessions that get more jobs in the next turn
	dirty  []*session // sessions to flush
	paused []*session // sessions that continue in the next turn, longest wait first
	queued bool       // scheduleNextTurn has queued a turn
}

// left reports whether there is any work.
func (w *work) left() bool { return len(w.mail)+len(w.refill)+len(w.dirty)+len(w.paused) > 0 }

// requestTurn asks the event loop for a turn, which begins and ends there. Any goroutine may call it.
func (r *reactor) requestTurn() { r.exec(r.finishFn) }

// beginTurn starts a turn, unless one is on, and asks the event loop to end it.
func (r *reactor) beginTurn() {
	r.startTurn()
	if !r.turn.armed {
		r.turn.armed = true
		r.requestTurn()
	}
}

// startTurn reads Now, unless a turn is on.
func (r *reactor) startTurn() {
	if !r.turn.on {
		r.turn.on = true
		r.Now = r.server.now()
	}
}

// finishTurn ends a turn. It delivers the mail and writes once to every session with output.
func (r *reactor) finishTurn() {
	r.turn.armed = false
	r.startTurn()
	r.resumePaused()
	r.readMail()
	for _, s := range r.work.refill {
		if !s.gone {
			s.Assigned = true // so that flush fills it again
			s.OpenOut()
		}
	}
	clear(r.work.refill)
	r.work.refill = r.work.refill[:0]
	r.server.journal.flush(r.turn.newAcks)
	r.turn.newAcks = 0
	r.releaseAcks()
	r.flushAll()
	r.server.wake(r.turn.toWake)
	r.countTurn()
	r.turn.end()
	r.scheduleNextTurn()
}

// scheduleNextTurn queues a turn for paused sessions and other work that is left. It uses a timer,
// because the loop would run a queued function before it polls its connections.
func (r *reactor) scheduleNextTurn() {
	if r.work.queued || !r.work.left() {
		return
	}
	r.work.queued = true
	r.after(0, func() {
		r.exec(func() {
			r.work.queued = false
			r.beginTurn()
		})
	})
}

// countTurn adds the turn to the metrics.
func (r *reactor) countTurn() {
	for p, one := range r.server.conns.protocols {
		if r.Frames[p]+r.turn.read[p]+r.turn.written[p] > 0 {
			one.frames.Add(r.Frames[p])
			one.read.Add(r.turn.read[p])
			one.written.Add(r.turn.written[p])
			r.Frames[p], r.turn.read[p], r.turn.written[p] = 0, 0, 0
		}
	}
	r.turnTimes.observe(r.server.now().WallMicros - r.Now.WallMicros)
}

// turnDeliveries bounds the deliveries of one turn that may wait: mail, and jobs for peers that
// have read their output. That many deliveries of at most 4 KiB take some milliseconds.
const (
	turnDeliveries = 8 << 10
	deliveryShift  = 12
)

// readMail delivers the mail of other loops, up to turnDeliveries.
func (r *reactor) readMail() {
	for r.turn.delivered < turnDeliveries {
		if len(r.work.mail) == 0 {
			if r.work.mail = r.inbox.take(); len(r.work.mail) == 0 {
				return
			}
		}
		r.work.mail = r.deliverNext(r.work.mail)
	}
}

// flushAll flushes the dirty sessions. A write may hand out jobs and so make more sessions dirty. When turnDeliveries
// is reached, the remaining sessions wait for the next turn.
func (r *reactor) flushAll() {
	i := 0
	for first := len(r.work.dirty); i < len(r.work.dirty) && (i < first || r.turn.delivered < turnDeliveries); i++ {
		r.flush(r.work.dirty[i])
	}
	n := copy(r.work.dirty, r.work.dirty[i:])
	clear(r.work.dirty[n:])
	r.work.dirty = r.work.dirty[:n]
}

// deliverNext delivers the first delivery of the mail and returns the rest.
func (r *reactor) deliverNext(mail []byte) (rest []byte) {
	rest = nextDelivery(mail, &r.delivery)
	if s := r.sessions.get(r.delivery.To); s != nil {
		defer r.recoverSession(s)
	}
	r.Deliver(&r.delivery)
	return rest
}
