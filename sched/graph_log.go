package sched

// Event is an entry of a task's log.
type Event struct {
	Stage  uint8
	Micros int64 // microseconds since the Unix epoch
}

// The stages that the scheduler logs. The caller defines those from StageOther on.
const (
	StageReady uint8 = iota + 1
	StageReserved
	StageDone
	StageOther
)

// eventSize is the bytes of a log entry in the arena: one of the stage, eight of the time.
const eventSize = 9

// maxEvents bounds a task's log. Each change of a task journals its log, and a task that no worker
// can do comes back for ever.
const maxEvents = 1024

// log appends to a task's log and keeps its newest maxEvents entries. Entries are lost when the
// arena is full.
func (g *graph) log(job uint32, events ...Event) {
	sh := g.sh
	if len(events) == 0 {
		return
	}
	n := g.node(job)
	events = events[max(len(events)-maxEvents, 0):]
	old := min(int(n.logSize), (maxEvents-len(events))*eventSize)
	size := old + len(events)*eventSize
	ref, dst, ok := sh.arena.alloc(size)
	if !ok {
		return
	}
	at := 0
	if n.logSize > 0 {
		at = copy(dst, sh.arena.view(n.log, int(n.logSize))[int(n.logSize)-old:])
		sh.freeBytes(n.log)
	}
	for _, e := range events {
		dst[at] = e.Stage
		putMicros(dst[at+1:], e.Micros)
		at += eventSize
	}
	n.log, n.logSize = ref, uint32(size)
}

// events appends a task's log.
func (g *graph) events(dst []Event, n *node) []Event {
	if n.logSize == 0 {
		return dst
	}
	for b := g.sh.arena.view(n.log, int(n.logSize)); len(b) > 0; b = b[eventSize:] {
		dst = append(dst, Event{b[0], micros(b[1:])})
	}
	return dst
}

// lastStage is the stage of a task's newest log entry, 0 if it has none.
func (g *graph) lastStage(job uint32) uint8 {
	n := g.node(job)
	if n.logSize == 0 {
		return 0
	}
	return g.sh.arena.view(n.log, int(n.logSize))[n.logSize-eventSize]
}
