package loop

import (
	"time"

	"treadle/loop/protocol"
	"treadle/sched/heap"
)

// sessionAlarm is the time at which a session's conversation wants a call. A conversation that sets a later time leaves
// its place in the heap alone until the earlier time has come: most alarms are set anew before they ring.
type sessionAlarm struct {
	at     int64 // Mono; 0: none
	queued int64 // Mono of its place in the heap
	index  int   // in the heap, from 1; 0: it has no place
}

// alarms are a reactor's sessions whose conversations asked for a call.
type alarms struct {
	heap  heap.Heap[*session] // the earliest place first
	at    int64               // Mono at which clock runs; 0: it does not
	clock *time.Timer
}

// Ahead implements heap.Ranked.
func (s *session) Ahead(o *session) bool { return s.alarm.queued < o.alarm.queued }

// HeapIndex implements heap.Ranked.
func (s *session) HeapIndex() int { return s.alarm.index - 1 }

// SetHeapIndex implements heap.Ranked.
func (s *session) SetHeapIndex(i int) { s.alarm.index = i + 1 }

// Alarm implements protocol.Transport.
func (s *session) Alarm(at int64) {
	a, r := &s.alarm, s.r
	a.at = at
	switch {
	case at == 0 || a.index > 0 && a.queued <= at:
		return
	case a.index > 0:
		a.queued = at
		r.alarms.heap.Fix(s)
	default:
		a.queued = at
		r.alarms.heap.Push(s)
	}
	r.setAlarmClock()
}

// dropAlarm ends the alarm of a session that closes.
func (r *reactor) dropAlarm(s *session) {
	if s.alarm.at = 0; s.alarm.index > 0 {
		r.alarms.heap.Remove(s)
	}
}

// setAlarmClock sets the timer to the earliest time of the heap.
func (r *reactor) setAlarmClock() {
	a := &r.alarms
	if len(a.heap) == 0 || a.at != 0 && a.at <= a.heap[0].alarm.queued {
		return
	}
	if a.clock != nil {
		a.clock.Stop() // one that runs already is early and does nothing
	}
	a.at = a.heap[0].alarm.queued
	a.clock = r.after(time.Duration(max(a.at-r.Now.Mono, 0))*time.Millisecond, func() { r.exec(r.fireAlarms) })
}

// maxRings bounds the alarms that ring in one turn. Each costs about as much as a request.
const maxRings = 1024

// fireAlarms calls the conversations whose time has come.
func (r *reactor) fireAlarms() {
	r.beginTurn()
	a := &r.alarms
	a.at = 0
	for rung := 0; rung < maxRings && len(a.heap) > 0 && a.heap[0].alarm.queued <= r.Now.Mono; rung++ {
		s := a.heap[0]
		if s.alarm.at > r.Now.Mono {
			s.alarm.queued = s.alarm.at
			a.heap.Fix(s)
			continue
		}
		a.heap.Remove(s)
		if s.alarm.at != 0 && s.open() {
			s.alarm.at = 0
			r.callAlarm(s)
		}
	}
	r.setAlarmClock()
}

func (r *reactor) callAlarm(s *session) {
	defer r.recoverSession(s)
	s.conv.(protocol.Alarmed).Alarm()
}
