package journal

import "encoding/binary"

// recordVersion4 is the first byte of a record of a finished job, which is kept. A server without policies that keep
// some writes none, and its directory stays good for the program before.
const recordVersion4 = 4

// Finished is the end of a job that is kept.
type Finished struct {
	DoneAt int64  // milliseconds since the Unix epoch when it was done or has expired; 0: it has not
	Result []byte // nil: it is not kept
}

// appendFinished appends the time of the end, and the result behind its length plus 1; 0: none.
func (f *Finished) appendFinished(dst []byte) []byte {
	dst = binary.AppendVarint(dst, f.DoneAt)
	if f.Result == nil {
		return append(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(f.Result))+1), f.Result...)
}

func (f *Finished) finishedSize() int {
	if f.Result == nil {
		return varintSize(f.DoneAt) + 1
	}
	return varintSize(f.DoneAt) + uvarintSize(uint64(len(f.Result))+1) + len(f.Result)
}

// finished reads what appendFinished has appended.
func (p *parser) finished(f *Finished) {
	f.DoneAt = p.varint()
	switch n := p.uvarint(); {
	case n > uint64(len(p.rest))+1, f.DoneAt == 0: // a record of no finished job is of version 2 or 3
		p.bad = true
	case n > 0:
		f.Result = p.rest[: n-1 : n-1]
		p.rest = p.rest[n-1:]
	}
}

// finished writes what a record says of a finished job. An empty result is written too: it is not the same as none.
func (l *jsonLine) finished(f *Finished) {
	l.number("done_at", f.DoneAt)
	if l.bytes("result", f.Result); f.Result != nil && len(f.Result) == 0 {
		l.name("result")
		l.b = append(l.b, '"', '"')
	}
}
