package sched

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
)

// listPlace is where a Listing continues. A client may send any cursor, so every value must be safe. A Listing of one
// queue that has listed its first two ready jobs, of sequence numbers 7 and 9, is at
// {phase: ready, sub: 0, slot: 9's record, seq: 9, key: 9's key}. One of all queues in shard 3 is at {sub: 3, slot: n},
// where n is the next record.
type listPlace struct {
	phase uint8  // index in listPhases
	sub   uint32 // number of the index, watch or line within the phase; of all queues: of the shard
	// slot is the record of the last job of an index, or the number of held or parked jobs that are left. Of all queues
	// it is the next record.
	slot  uint32
	seq   uint64  // seq of the last job of an index
	key   sortKey // key of the last job of an index or a line
	bound uint64  // number up to which jobs with that key may have been visited
}

// listStart is the place before all jobs of a queue.
var listStart = listPlace{slot: none, key: firstKey}

func (p *listPlace) nextPhase() { *p = listPlace{phase: p.phase + 1, slot: none, key: firstKey} }
func (p *listPlace) nextSub() {
	*p = listPlace{phase: p.phase, sub: p.sub + 1, slot: none, key: firstKey}
}

var errListCursor = errors.New("it is no cursor of such a listing")

// Cursor returns where a Listing of the same jobs continues, as text that a URL may contain.
func (l *Listing) Cursor() string {
	p := &l.place
	b := []byte{byte(oneIf(l.inQueue)), p.phase}
	for _, n := range [...]uint64{uint64(p.sub), uint64(p.slot), p.seq, uint64(p.key.major), uint64(p.key.minor), p.bound, uint64(l.looked)} {
		b = binary.AppendUvarint(b, n)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parse sets the place to that of a Cursor.
func (l *Listing) parse(text string) error {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 2 || b[0] != byte(oneIf(l.inQueue)) || int(b[1]) >= len(listPhases) {
		return errListCursor
	}
	p := listPlace{phase: b[1]}
	b = b[2:]
	next := func(most uint64) (v uint64) {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > most {
			err = errListCursor
			return 0
		}
		b = b[n:]
		return v
	}
	p.sub, p.slot, p.seq = uint32(next(math.MaxUint32)), uint32(next(math.MaxUint32)), next(math.MaxUint64)
	p.key = sortKey{int64(next(math.MaxUint64)), int64(next(math.MaxUint64))}
	p.bound, l.looked = next(math.MaxUint64), int64(next(math.MaxInt64/2))
	if len(b) > 0 {
		err = errListCursor
	}
	l.place = p
	return err
}
