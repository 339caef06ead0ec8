package zmq

import "sync/atomic"

// Stats are counts of a Listener since its start, except Open, the number of open connections.
type Stats struct {
	Open          int64
	Accepted      int64
	Refused       int64 // all of MaxConnections were open
	AcceptErrors  int64
	BadHandshakes int64
	BadFrames     int64 // connections closed for a frame or message that is against the limits or ZMTP
	Stalled       int64 // connections closed for a message that did not end or replies that were not read
	Overflows     int64 // connections closed for MaxBuffered or MaxOutbound
	NoDelimiter   int64 // messages dropped: no delimiter, or nothing behind it
	ExtraFrames   int64 // messages dropped: more than one frame behind the delimiter
	Requests      int64
	Heartbeats    int64 // PINGs answered
	Unasked       int64 // REQs that were sent Options.Unasked
}

type counters struct {
	accepted, refused, acceptErrors, badHandshakes, badFrames, stalled, overflows atomic.Int64
	noDelimiter, extraFrames, requests, heartbeats, unasked                       atomic.Int64
}

// Stats returns what was counted.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	open := len(l.conns)
	l.mu.Unlock()
	k := &l.counters
	return Stats{
		Open:          int64(open),
		Accepted:      k.accepted.Load(),
		Refused:       k.refused.Load(),
		AcceptErrors:  k.acceptErrors.Load(),
		BadHandshakes: k.badHandshakes.Load(),
		BadFrames:     k.badFrames.Load(),
		Stalled:       k.stalled.Load(),
		Overflows:     k.overflows.Load(),
		NoDelimiter:   k.noDelimiter.Load(),
		ExtraFrames:   k.extraFrames.Load(),
		Requests:      k.requests.Load(),
		Heartbeats:    k.heartbeats.Load(),
		Unasked:       k.unasked.Load(),
	}
}
