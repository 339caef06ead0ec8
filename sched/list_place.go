package sched

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
)

// listPlace is where a Listing goes on. Every value of it is harmless: a cursor may be forged.
type listPlace struct {
	phase uint8  // of listPhases
	sub   uint32 // the part of the phase; of all queues: the shard
	slot  uint32 // of the last job of an index; of held and parked jobs: how many are left; of all queues: the next one
	seq   uint64 // of the last job of an index
	key   key    // of the last job of an index or a line
	bound uint64 // with that key, jobs up to this number may have been visited
}

// listStart is the place before all jobs of a queue.
var listStart = listPlace{slot: none, key: firstKey}

func (p *listPlace) nextPhase() { *p = listPlace{phase: p.phase + 1, slot: none, key: firstKey} }
func (p *listPlace) nextSub() {
	*p = listPlace{phase: p.phase, sub: p.sub + 1, slot: none, key: firstKey}
}

var errListCursor = errors.New("it is no cursor of such a listing")

// Cursor returns where a Listing of the same jobs goes on, as text that fits an address.
func (l *Listing) Cursor() string {
	p := &l.place
	b := []byte{byte(count(l.one)), p.phase}
	for _, n := range [...]uint64{uint64(p.sub), uint64(p.slot), p.seq, uint64(p.key.a), uint64(p.key.b), p.bound, uint64(l.looked)} {
		b = binary.AppendUvarint(b, n)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parse sets the place to that of a Cursor.
func (l *Listing) parse(text string) error {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 2 || b[0] != byte(count(l.one)) || int(b[1]) >= len(listPhases) {
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
	p.key = key{int64(next(math.MaxUint64)), int64(next(math.MaxUint64))}
	p.bound, l.looked = next(math.MaxUint64), int64(next(math.MaxInt64/2))
	if len(b) > 0 {
		err = errListCursor
	}
	l.place = p
	return err
}
