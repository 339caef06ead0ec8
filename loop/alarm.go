package loop

import (
	"container/heap"
	"time"

	"treadle/loop/protocol"
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
	heap  alarmHeap
	at    int64 // Mono at which clock runs; 0: it does not
	clock *time.Timer
}

// alarmHeap has the sessions with an alarm, the earliest place first. It implements heap.Interface.
type alarmHeap []*session

// Len implements sort.Interface.
func (a alarmHeap) Len() int { return len(a) }

// Less implements sort.Interface.
func (a alarmHeap) Less(i, j int) bool { return a[i].alarm.queued < a[j].alarm.queued }

// Swap implements sort.Interface.
func (a alarmHeap) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].alarm.index, a[j].alarm.index = i+1, j+1
}

// Push implements heap.Interface.
func (a *alarmHeap) Push(s any) {
	*a = append(*a, s.(*session))
	s.(*session).alarm.index = len(*a)
}

// Pop implements heap.Interface.
func (a *alarmHeap) Pop() any {
	last := len(*a) - 1
	s := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	s.alarm.index = 0
	return s
}

// Alarm implements protocol.Transport.
func (s *session) Alarm(at int64) {
	a, r := &s.alarm, s.r
	a.at = at
	switch {
	case at == 0 || a.index > 0 && a.queued <= at:
		return
	case a.index > 0:
		a.queued = at
		heap.Fix(&r.alarms.heap, a.index-1)
	default:
		a.queued = at
		heap.Push(&r.alarms.heap, s)
	}
	r.setAlarmClock()
}

// dropAlarm ends the alarm of a session that closes.
func (r *reactor) dropAlarm(s *session) {
	if s.alarm.at = 0; s.alarm.index > 0 {
		heap.Remove(&r.alarms.heap, s.alarm.index-1)
	}
}

// setAlarmClock has the timer run at the earliest place of the heap.
func (r *reactor) setAlarmClock() {
	a := &r.alarms
	if len(a.heap) == 0 || a.at != 0 && a.at <= a.heap[0].alarm.queued {
		return
	}
	if a.clock != nil {
		a.clock.Stop() // one that runs already is early and does nothing
	}
	a.at = a.heap[0].alarm.queued
	a.clock = r.after(time.Duration(max(a.at-r.Now.Mono, 0))*time.Millisecond, func() { r.exec(r.ringAlarms) })
}

// maxRings bounds the alarms that ring in one turn. Each costs about as much as a request.
const maxRings = 1024

// ringAlarms calls the conversations whose time has come.
func (r *reactor) ringAlarms() {
	r.begin()
	a := &r.alarms
	a.at = 0
	for rung := 0; rung < maxRings && len(a.heap) > 0 && a.heap[0].alarm.queued <= r.Now.Mono; rung++ {
		s := a.heap[0]
		if s.alarm.at > r.Now.Mono {
			s.alarm.queued = s.alarm.at
			heap.Fix(&a.heap, 0)
			continue
		}
		heap.Pop(&a.heap)
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
