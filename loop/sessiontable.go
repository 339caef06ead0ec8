package loop

import (
	"iter"

	"treadle/sched"
)

// A session id has a loop, a slot and a generation, from the highest bits to the lowest.
const (
	loopShift = 56
	slotShift = 32
	slotMask  = 1<<(loopShift-slotShift) - 1
)

// loopOf returns the number of a session's loop.
func loopOf(id sched.SessionID) int { return int(uint64(id) >> loopShift) }

// slotOf returns the session's slot in its loop's table.
func slotOf(id sched.SessionID) uint32 { return uint32(uint64(id) >> slotShift & slotMask) }

// sessionTable has the open sessions of one event loop. A slot is used again under another generation, so that the id
// of a session that has ended finds no other session.
type sessionTable struct {
	slots []*session // nil: free
	gens  []uint32   // by slot: the generation of its next session
	free  []uint32   // slots without a session
}

// add gives a session of a loop a slot and its ID.
func (t *sessionTable) add(s *session, loop int) {
	var slot uint32
	if n := len(t.free); n > 0 {
		slot = t.free[n-1]
		t.free = t.free[:n-1]
		t.slots[slot] = s
	} else {
		slot = uint32(len(t.slots))
		t.slots = append(t.slots, s)
		t.gens = append(t.gens, 0)
	}
	s.ID = sched.SessionID(uint64(loop)<<loopShift | uint64(slot)<<slotShift | uint64(t.gens[slot]))
}

// remove frees the slot of a session that has ended.
func (t *sessionTable) remove(s *session) {
	slot := slotOf(s.ID)
	t.slots[slot] = nil
	t.gens[slot]++
	t.free = append(t.free, slot)
}

// get returns the session of an id; nil when it has ended.
func (t *sessionTable) get(id sched.SessionID) *session {
	if slot := slotOf(id); int(slot) < len(t.slots) {
		if s := t.slots[slot]; s != nil && s.ID == id {
			return s
		}
	}
	return nil
}

// all ranges over the sessions in the order of their slots.
func (t *sessionTable) all() iter.Seq[*session] {
	return func(yield func(*session) bool) {
		for _, s := range t.slots {
			if s != nil && !yield(s) {
				return
			}
		}
	}
}

// connectionID folds a session id into the four bytes of a handshake's answer. It has 8 bits of
// the loop, 20 of the slot, which is the most descriptors there can be, and 4 of the generation.
func connectionID(id sched.SessionID) uint32 {
	return uint32(loopOf(id))<<24 | slotOf(id)<<4&(1<<24-1) | uint32(id)&0xf
}
