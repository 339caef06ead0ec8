package store

import "time"

// Heartbeat is the last change of a node's entry. Its age follows from the clock of this process, since the clocks of
// hosts differ.
type Heartbeat struct {
	Timestamp time.Time // in the entry, by the clock of the node
	Since     time.Time // when this process first saw the timestamp, by its own clock; zero: it has never seen the entry
}

// Next returns the heartbeat after a look at the entry. It is the same one if the timestamp has not changed.
func (h Heartbeat) Next(timestamp, now time.Time) Heartbeat {
	if h.Known() && h.Timestamp.Equal(timestamp) {
		return h
	}
	return Heartbeat{timestamp, now}
}

// Known reports whether this process has seen the entry.
func (h Heartbeat) Known() bool { return !h.Since.IsZero() }
